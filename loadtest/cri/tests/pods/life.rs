//! Pods on a real containerd.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use headwater_cri_lab::{Containerd, ContainerdSettings};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use crate::bench::{Bench, is_running, uid, until};
use crate::cgroups::trees;
use crate::fake_edge::latest_status;

/// Runs until it is asked to end.
pub(crate) const FOREVER: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

/// The longest time from one kill of containerd to the next.
const BETWEEN_KILLS_MS: u64 = 1500;

const SEEDS: [u64; 2] = [1, 2];

pub(crate) fn start() -> Option<Containerd> {
    let start = || Containerd::start(ContainerdSettings::default()).expect("containerd");
    Containerd::is_possible().then(start)
}

/// The ids of all containers, sandboxes' among them.
pub(crate) fn containers(containerd: &Containerd) -> Vec<String> {
    let output = containerd.ctr().args(["containers", "list", "--quiet"]).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// The control groups of a pod.
pub(crate) fn cgroups(name: &str) -> Vec<PathBuf> {
    let pod = format!("pod{}", uid(name));
    let classes = ["headwater", "headwater/burstable", "headwater/besteffort"];
    let of_tree = |tree: PathBuf| classes.map(|class| tree.join(class).join(&pod));
    let groups = trees().into_iter().flat_map(of_tree);
    groups.filter(|group| group.exists()).collect()
}

fn restarts(status: &Value) -> usize {
    let count = status["containerStatuses"][0]["restartCount"].as_u64();
    count.and_then(|count| count.try_into().ok()).expect("a count")
}

/// Waits until nothing of the pods is left.
pub(crate) async fn gone(containerd: &Containerd, names: &[&str]) {
    nothing_left(async || containers(containerd), names).await;
}

/// Waits until a runtime lists nothing any more, and nothing of the pods is left.
pub(crate) async fn nothing_left(listed: impl AsyncFn() -> Vec<String>, names: &[&str]) {
    let none = || async { listed().await.is_empty().then_some(()) };
    assert!(until(none).await.is_some(), "left: {:?}", listed().await);
    for name in names {
        let none = || async { cgroups(name).is_empty().then_some(()) };
        assert!(until(none).await.is_some(), "left: {:?}", cgroups(name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_restarts_survives_edged_and_is_deleted() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    // It fails once, then runs.
    let once = format!("[ $(wc -l < /notes/web) -gt 1 ] || exit 3; {FOREVER}");
    let pod = bench.pod("web", &once);
    bench.edge.apply(&pod);
    let again =
        |status: &Value| is_running(status) && status["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.status("web", "the pod after its failure", again).await;
    let last = &status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&3.into(), &"Error".into()), "{status}");
    let before = containers(&containerd);
    edged.stop().await;
    assert_eq!(containers(&containerd), before, "edged's end ended pods");
    let edged = bench.edged().await;
    let other = bench.pod("other", FOREVER);
    bench.edge.apply(&other);
    bench.status("other", "another pod", is_running).await;
    bench.status("web", "the adopted pod", again).await;
    bench.until_starts("web", 2).await;
    bench.delete(&pod).await;
    bench.delete(&other).await;
    gone(&containerd, &["web", "other"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_is_killed_at_any_moment_and_nothing_starts_twice() {
    for seed in SEEDS {
        eprintln!("seed {seed}");
        let Some(mut containerd) = start() else { return };
        let mut random = StdRng::seed_from_u64(seed);
        let bench = Bench::new(containerd.socket());
        let edged = bench.edged().await;
        let names = ["a", "b", "c", "d"];
        let mut pods = Vec::new();
        // The pods that were reported to run before a kill, with their restarts by then.
        let mut settled = BTreeMap::new();
        for name in names {
            let pod = bench.pod(name, FOREVER);
            bench.edge.apply(&pod);
            pods.push(pod);
            let moment = Duration::from_millis(random.random_range(0..BETWEEN_KILLS_MS));
            tokio::time::sleep(moment).await;
            for name in names {
                let status = latest_status(&bench.edge.operations(), name);
                if let Some(status) = status.filter(is_running) {
                    settled.entry(name).or_insert_with(|| restarts(&status));
                }
            }
            containerd.server().kill().expect("it can be killed");
            containerd.server().start().expect("it starts again");
        }
        for name in names {
            let status = bench.status(name, "a running pod", is_running).await;
            // A container is reported before it notes its start.
            let noted = || async { (bench.starts(name) > 0).then_some(()) };
            assert!(until(noted).await.is_some(), "seed {seed}, pod {name} notes no start");
            let (starts, restarts) = (bench.starts(name), restarts(&status));
            // A start that a kill cut off counts as a run, whether its process began or not.
            let expected = match settled.get(name) {
                Some(before) => *before..=*before,
                None => 0..=names.len(),
            };
            let case = format!("seed {seed}, pod {name}: {starts} starts, {status}");
            assert!(expected.contains(&restarts), "{case}");
            assert!((1..=restarts + 1).contains(&starts), "{case}");
        }
        for pod in &pods {
            bench.delete(pod).await;
        }
        gone(&containerd, &names).await;
        edged.stop().await;
    }
}
