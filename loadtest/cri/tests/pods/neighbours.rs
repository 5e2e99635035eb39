//! Two nodes whose pod workers share one containerd.

use std::fs;

use crate::bench::{Bench, is_running, uid, until};
use crate::life::{FOREVER, cgroups, containers, gone, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_worker_ends_its_own_pods_alone_on_a_containerd_of_two() {
    let Some(mut containerd) = start() else { return };
    let first = Bench::new(containerd.socket());
    let mut second = Bench::new(containerd.socket());
    second.node = "gw-2".to_owned();
    let (edged, neighbour) = (first.edged().await, second.edged().await);
    let stays = second.pod("stays", FOREVER);
    for (bench, pod) in [
        (&first, first.pod("deleted", FOREVER)),
        (&first, first.pod("lost", FOREVER)),
        (&second, stays.clone()),
    ] {
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        bench.edge.apply(&pod);
        bench.status(&name, "a running pod", is_running).await;
    }
    let before = containers(&containerd).len();

    // One pod is deleted, and of the other the disk has no record any more when the pod worker starts again.
    first.delete(&first.pod("deleted", FOREVER)).await;
    edged.stop().await;
    fs::remove_dir_all(first.edged_dir().join("pods").join(uid("lost"))).expect("removed");
    first.edge.delete("shop/pod/lost");
    let edged = first.edged().await;
    // A sandbox and a container each.
    let left = || async { (containers(&containerd).len() == before - 4).then_some(()) };
    assert!(until(left).await.is_some(), "left: {:?}", containers(&containerd));
    for name in ["deleted", "lost"] {
        let none = || async { cgroups(name).is_empty().then_some(()) };
        assert!(until(none).await.is_some(), "left: {:?}", cgroups(name));
    }

    // Both lists are new then.
    containerd.server().kill().expect("it can be killed");
    containerd.server().start().expect("it starts again");
    let later = first.pod("later", FOREVER);
    first.edge.apply(&later);
    first.status("later", "a pod of the first node", is_running).await;
    let second_later = second.pod("second-later", FOREVER);
    second.edge.apply(&second_later);
    second.status("second-later", "a pod of the second node", is_running).await;
    assert_eq!(second.starts("stays"), 1, "its container was ended");
    second.delete(&stays).await;
    second.delete(&second_later).await;
    first.delete(&later).await;
    gone(&containerd, &["stays", "later", "second-later"]).await;
    edged.stop().await;
    neighbour.stop().await;
}
