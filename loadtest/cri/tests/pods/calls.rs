//! What the start of a pod costs its runtime and its edge, and what that of the pod worker costs the runtime.

use std::time::Duration;

use headwater_cri_lab::{Containerd, Fault};

use crate::bench::{is_running, on_a_twin, until};
use crate::fake_edge::statuses;

/// Pods that start together: as many as at the same time, and some more.
const PODS: usize = 8;

/// A start takes so long that a status between the sandbox and the container would be reported.
const SLOW: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_start_together_share_looks_at_their_image_and_report_sandbox_and_start_in_one() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    let names: Vec<String> = (0..PODS).map(|number| format!("web-{number}")).collect();
    for name in &names {
        twin.fail_next("StartContainer", Fault::Slow(SLOW));
        bench.edge.apply(&bench.pod(name, ""));
    }
    for name in &names {
        bench.status(name, "a running pod", is_running).await;
        let reported = statuses(&bench.edge.operations(), name);
        let pending = reported.iter().filter(|status| status["phase"] == "Pending").count();
        assert!(pending <= 1, "{name}: {reported:#?}");
    }
    let pods = u64::try_from(PODS).expect("a few");
    for method in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        assert_eq!(twin.calls(method), pods, "{method}");
    }
    // A list may find a sandbox at the moment at which it is made. All pods may look for the image before any has an answer; each
    // of them looks three times.
    for (method, below) in [("PodSandboxStatus", pods), ("ImageStatus", 3 * pods)] {
        assert!(twin.calls(method) < below, "{method}: {} calls", twin.calls(method));
    }
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_worker_that_starts_asks_for_some_statuses_at_a_time_and_takes_over_every_pod() {
    /// The pods that run.
    const RUNNING: u64 = 12;
    /// The statuses that a list asks for at the same time.
    const AT_ONCE: u64 = 8;
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    let names: Vec<String> = (0..RUNNING).map(|number| format!("web-{number}")).collect();
    // One after another: the twin lists them in this order.
    for name in &names {
        bench.edge.apply(&bench.pod(name, ""));
        bench.status(name, "a running pod", is_running).await;
    }
    edged.stop().await;
    names.iter().for_each(|name| twin.hold_status(name));
    let before = twin.calls("ContainerStatus");
    let give = async || {
        for (given, name) in (0_u64..).zip(&names) {
            let asked = (given + AT_ONCE).min(RUNNING);
            let are_asked =
                async || (twin.calls("ContainerStatus") >= before + asked).then_some(());
            assert!(until(are_asked).await.is_some(), "{given} given: fewer are asked for");
            let calls = twin.calls("ContainerStatus") - before;
            assert_eq!(calls, asked, "{given} given: more are asked for");
            twin.give_status(name);
        }
    };
    let (edged, ()) = tokio::join!(bench.edged(), give());
    bench.edge.apply(&bench.pod("new", ""));
    bench.status("new", "a running pod", is_running).await;
    for name in &names {
        assert_eq!(twin.starts(name), 1, "{name}");
    }
    for method in ["RunPodSandbox", "CreateContainer", "StartContainer"] {
        assert_eq!(twin.calls(method), RUNNING + 1, "{method}");
    }
    assert_eq!(twin.calls("StopContainer"), 0);
    edged.stop().await;
}
