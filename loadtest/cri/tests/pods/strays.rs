//! Pods that the pod worker made, and of which it has no record any more.

use std::fs;
use std::time::Duration;

use headwater_cri::client::CriClient;
use headwater_cri::proto::{
    ListPodSandboxRequest, PodSandbox, PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest,
};
use headwater_cri::spec::{DIR_LABEL, NODE_LABEL, POD_NAME, POD_UID};
use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd};

use crate::bench::{Bench, is_running, start_twin, uid, until};

async fn sandboxes(client: &CriClient) -> Vec<PodSandbox> {
    let listed = client.list_pod_sandbox(ListPodSandboxRequest::default()).await;
    listed.expect("a list").items
}

/// Whether these sandboxes are left, and no other.
async fn are_left(client: &CriClient, kept: &[String]) -> Option<()> {
    let mut ids: Vec<_> = sandboxes(client).await.into_iter().map(|it| it.id).collect();
    ids.sort();
    (ids == kept).then_some(())
}

/// Makes a sandbox like this one, with these labels instead of its own.
async fn make_like(client: &CriClient, of: &PodSandbox, labels: &[(&str, &str)]) -> String {
    let metadata = PodSandboxMetadata {
        uid: labels.iter().map(|(_, value)| *value).collect(),
        ..of.metadata.clone().expect("a name")
    };
    let mut all = of.labels.clone();
    all.extend(labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let config =
        PodSandboxConfig { metadata: Some(metadata), labels: all, ..PodSandboxConfig::default() };
    let request = RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    client.run_pod_sandbox(request).await.expect("a sandbox").pod_sandbox_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_record_ends_and_those_of_other_nodes_stay() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin) = start_twin();
    twin.add_image(BUSYBOX_IMAGE);
    let client = CriClient::new(twin.socket());
    let mut bench = Bench::new(twin.socket());
    bench.settings.relist = Duration::from_millis(200);
    let edged = bench.edged().await;
    for name in ["web", "stays"] {
        bench.edge.apply(&bench.pod(name, ""));
        bench.status(name, "a running pod", is_running).await;
    }
    edged.stop().await;

    // The disk loses both pods, and the cloud deletes one of them.
    let listed = sandboxes(&client).await;
    let of = |name: &str| {
        let is = |it: &&PodSandbox| it.labels.get(POD_NAME).is_some_and(|own| own == name);
        listed.iter().find(is).expect("a sandbox").clone()
    };
    let (web, stays) = (of("web"), of("stays"));
    for name in ["web", "stays"] {
        fs::remove_dir_all(bench.edged_dir().join("pods").join(uid(name))).expect("removed");
    }
    bench.edge.delete("shop/pod/web");
    let mut kept = vec![stays.id.clone()];
    for labels in [(NODE_LABEL, "gw-2"), (DIR_LABEL, "/other")] {
        kept.push(make_like(&client, &web, &[labels]).await);
    }
    kept.sort();
    let edged = bench.edged().await;
    assert!(
        until(|| are_left(&client, &kept)).await.is_some(),
        "left: {:#?}",
        sandboxes(&client).await
    );
    assert_eq!(twin.starts("stays"), 1, "a pod of the view runs on");

    // A call whose end nothing waited for acts after its pod is gone.
    make_like(&client, &web, &[(POD_NAME, "late"), (POD_UID, "late")]).await;
    assert!(
        until(|| are_left(&client, &kept)).await.is_some(),
        "left: {:#?}",
        sandboxes(&client).await
    );
    edged.stop().await;
}
