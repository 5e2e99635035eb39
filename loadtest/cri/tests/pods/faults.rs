//! Pods on the twin, whose calls and events fail by a seed.

use std::time::Duration;

use headwater_cri_lab::{
    BUSYBOX_IMAGE, Containerd, Fault, FaultRates, Life, PullOutcome, Restart, Twin,
};
use headwater_edged::runtime::UNOBSERVED;
use serde_json::Value;

use crate::bench::{
    Bench, is_running, lose_events, on_a_twin, on_a_twin_that_is_listed_often, until,
};

const SEEDS: std::ops::Range<u64> = 0..4;

/// Faults of each kind, in thousandths of the calls and events.
pub(crate) const RATES: FaultRates = FaultRates {
    lost_answers: 80,
    refused: 80,
    slow: 20,
    lost_events: 200,
    doubled_events: 200,
    late_events: 200,
};

/// Every call by which a pod begins, restarts and ends.
const CALLS: [&str; 13] = [
    "PullImage",
    "ImageStatus",
    "RunPodSandbox",
    "PodSandboxStatus",
    "ListPodSandbox",
    "CreateContainer",
    "StartContainer",
    "ContainerStatus",
    "ListContainers",
    "StopContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
    "RemoveContainer",
];

/// The attempts of the sandboxes, and the containers by name and attempt. A list of the test's own would take a fault
/// that is planned for edged's.
fn names(twin: &Twin) -> (Vec<u32>, Vec<(String, u32)>) {
    let (sandboxes, containers) = (twin.sandboxes().into_iter(), twin.containers().into_iter());
    let sandboxes = sandboxes.filter_map(|it| Some(it.metadata?.attempt));
    let containers = containers.filter_map(|it| it.metadata.map(|it| (it.name, it.attempt)));
    (sandboxes.collect(), containers.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_is_lost_makes_nothing_twice_and_leaves_nothing() {
    if !Containerd::is_possible() {
        return;
    }
    for method in CALLS {
        let (_scratch, twin, bench, edged) = on_a_twin().await;
        twin.set_pull(BUSYBOX_IMAGE, PullOutcome::Pulled);
        twin.fail_next(method, Fault::LostAnswer);
        let mut pod = bench.pod("web", "");
        pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
        // The status of a sandbox has its addresses: one in the network of the node has none, and is not asked for.
        pod["spec"]["hostNetwork"] = (method != "PodSandboxStatus").into();
        bench.edge.apply(&pod);
        // With the third run the first one is removed.
        for restarts in 0..3 {
            let runs = |status: &Value| {
                is_running(status) && status["containerStatuses"][0]["restartCount"] == restarts
            };
            let status = bench.status("web", method, runs).await;
            assert_eq!(twin.starts("web"), restarts + 1, "{method}: {status}");
            let (sandboxes, containers) = names(&twin);
            let mut once = containers.clone();
            once.sort();
            once.dedup();
            assert_eq!((sandboxes, once.len()), (vec![0], containers.len()), "{method}: {once:?}");
            if restarts < 2 {
                twin.end("web", 3).await;
            }
        }
        bench.delete(&pod).await;
        let nothing = async || (names(&twin) == (vec![], vec![])).then_some(());
        assert!(until(nothing).await.is_some(), "{method}: left: {:?}", names(&twin));
        // edged goes on listing.
        let occurred = async || (!twin.has_planned_fault()).then_some(());
        assert!(until(occurred).await.is_some(), "{method} was not called");
        edged.stop().await;
    }
}

/// A start that is refused uses up its number. The next container is made, its answer is lost, and no list shows it
/// before a third one is made: that one runs, and the second one, whose number is the higher one, never starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_never_started_hides_no_running_one() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    twin.fail_next("StartContainer", Fault::Refused);
    twin.fail_next("CreateContainer", Fault::Slow(Duration::ZERO));
    twin.fail_next("CreateContainer", Fault::LostAnswer);
    // The pod worker lists each second by itself, too.
    (0..7).for_each(|_| twin.fail_next("ListContainers", Fault::Refused));
    let pod = bench.pod("web", "");
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    assert_eq!(twin.starts("web"), 1);
    let refused = || async { (!twin.has_planned_fault()).then_some(()) };
    assert!(until(refused).await.is_some(), "a call was not made");
    let lists = twin.calls("ListContainers");
    // The second one began after the first one was known.
    let listed = || async { (twin.calls("ListContainers") > lists + 1).then_some(()) };
    assert!(until(listed).await.is_some(), "no list shows both containers");
    bench.delete(&pod).await;
    let nothing = async || (names(&twin) == (vec![], vec![])).then_some(());
    assert!(until(nothing).await.is_some(), "left: {:?}", names(&twin));
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_once_whatever_fails() {
    if !Containerd::is_possible() {
        return;
    }
    for seed in SEEDS {
        eprintln!("seed {seed}");
        let (_scratch, mut twin, bench, edged) = on_a_twin().await;
        twin.set_faults(seed, RATES);
        let names = ["a", "b", "c", "d"];
        let pods = names.map(|name| bench.pod(name, ""));
        pods.iter().for_each(|pod| bench.edge.apply(pod));
        for name in names {
            bench.status(name, "a running pod", is_running).await;
        }
        // An end while nothing listens has no event: edged looks when it is connected again.
        twin.stop().await;
        twin.end("a", 3).await;
        twin.restart(Restart::Kept).await.expect("it serves again");
        let again = || async { (twin.starts("a") > 1).then_some(()) };
        assert!(until(again).await.is_some(), "seed {seed}: the end of a container is not noticed");
        let starts = names.map(|name| twin.starts(name));
        assert_eq!(starts, [2, 1, 1, 1], "seed {seed}");
        for pod in &pods {
            bench.delete(pod).await;
        }
        edged.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_does_not_reach_the_runtime_ends_no_container() {
    /// Probes of which none may fail.
    const LOST: usize = 3;
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    let mut pod = bench.pod("web", "");
    pod["spec"]["containers"][0]["livenessProbe"] = serde_json::json!({
        "exec": {"command": Life::probe()}, "periodSeconds": 1, "failureThreshold": 1,
        "timeoutSeconds": 20,
    });
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    for _ in 0..LOST {
        twin.fail_next("ExecSync", Fault::LostAnswer);
    }
    let all_lost = async || (!twin.has_planned_fault()).then_some(());
    assert!(until(all_lost).await.is_some(), "no probe was sent");
    let calls = twin.calls("ExecSync");
    let goes_on = async || (twin.calls("ExecSync") > calls + 1).then_some(());
    assert!(until(goes_on).await.is_some(), "no further probe was sent");
    assert_eq!((twin.starts("web"), twin.calls("StopContainer")), (1, 0));
    bench.delete(&pod).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_whose_sandboxes_hang_delay_no_other_pod() {
    /// As many as start at the same time.
    const HANGING: usize = 5;
    const FOR_EVER: Duration = Duration::from_secs(100_000);
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    for number in 0..HANGING {
        twin.fail_next("RunPodSandbox", Fault::Slow(FOR_EVER));
        bench.edge.apply(&bench.pod(&format!("hangs-{number}"), ""));
    }
    let all_hang = async || (!twin.has_planned_fault()).then_some(());
    assert!(until(all_hang).await.is_some(), "a pod was not started");
    let pod = bench.pod("web", "");
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    bench.delete(&pod).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_hangs_keeps_no_list_waiting() {
    /// Every list that waits for an end has one that hangs.
    const HANGING: usize = 2;
    const FOR_EVER: Duration = Duration::from_secs(100_000);
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin_that_is_listed_often().await;
    for name in ["lost", "web"] {
        bench.edge.apply(&bench.pod(name, ""));
        bench.status(name, "a running pod", is_running).await;
    }
    for _ in 0..HANGING {
        twin.fail_next("StopContainer", Fault::Slow(FOR_EVER));
    }
    twin.lose_state("lost");
    let hangs = async || (twin.calls("StopContainer") > 0).then_some(());
    assert!(until(hangs).await.is_some(), "a container in an unknown state is not ended");

    // Only a list finds this end.
    lose_events(&twin);
    twin.end("web", 3).await;
    let again = async || (twin.starts("web") > 1).then_some(());
    assert!(until(again).await.is_some(), "the end of a container is not noticed");
    assert_eq!(twin.calls("StopContainer"), 1, "it is ended once");
    edged.stop().await;
}

/// Starts the pod `web`, whose container starts no second time after an end of its own.
async fn start_once(bench: &Bench) -> Value {
    let mut pod = bench.pod("web", "");
    pod["spec"]["restartPolicy"] = "Never".into();
    bench.edge.apply(&pod);
    bench.status("web", "a running pod", is_running).await;
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_in_an_unknown_state_is_ended_and_starts_again() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin_that_is_listed_often().await;
    let pod = start_once(&bench).await;
    twin.lose_state("web");
    // That is no failure of the container: it starts again under any restart policy.
    let again = async || (twin.starts("web") > 1).then_some(());
    assert!(until(again).await.is_some(), "it does not start again");
    bench.status("web", "a running pod", is_running).await;
    bench.delete(&pod).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_the_runtime_finds_when_it_ends_a_container_in_an_unknown_state_counts() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin_that_is_listed_often().await;
    start_once(&bench).await;
    twin.lose_end("web", 3);
    let has_failed = |status: &Value| status["phase"] == "Failed";
    let status = bench.status("web", "a failed pod", has_failed).await;
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    assert_eq!(twin.starts("web"), 1);
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_status_hides_no_other_and_starts_no_second_time() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    for name in ["damaged", "web"] {
        bench.edge.apply(&bench.pod(name, ""));
        bench.status(name, "a running pod", is_running).await;
    }
    edged.stop().await;
    twin.damage("damaged");
    let edged = bench.edged().await;
    bench.edge.apply(&bench.pod("new", ""));
    bench.status("new", "a running pod", is_running).await;
    twin.end("web", 3).await;
    let again = async || (twin.starts("web") > 1).then_some(());
    assert!(until(again).await.is_some(), "the end of another container is not noticed");
    assert_eq!(twin.starts("damaged"), 1);
    // It ends with its pod.
    bench.delete(&bench.pod("damaged", "")).await;
    assert_eq!(twin.starts("damaged"), 1);
    edged.stop().await;
}

/// Whether the containers of the status were restarted so many times, and the init container has done its part.
fn runs_after(status: &Value, restarts: u32) -> bool {
    is_running(status)
        && status["containerStatuses"][0]["restartCount"] == restarts
        && status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_runtime_loses_while_it_is_away_runs_again_in_a_new_sandbox_or_goes() {
    /// More than the runs of which the runtime keeps the containers.
    const RESTARTS: u32 = 3;
    if !Containerd::is_possible() {
        return;
    }
    for restart in [Restart::Lost, Restart::Emptied] {
        let (_scratch, mut twin, bench, edged) = on_a_twin().await;
        twin.set_life("init", Life::Exit { code: 0, tenths: 0 });
        let mut web = bench.pod("web", "");
        let mut init = web["spec"]["containers"][0].clone();
        init["name"] = "init".into();
        web["spec"]["initContainers"] = vec![init].into();
        let going = bench.pod("going", "");
        let mut job = bench.pod("job", "");
        job["spec"]["restartPolicy"] = "Never".into();
        [&web, &going, &job].iter().for_each(|pod| bench.edge.apply(pod));
        for restarts in 0..RESTARTS {
            bench.status("web", "a running pod", |status| runs_after(status, restarts)).await;
            twin.end("web", 3).await;
        }
        bench.status("web", "a running pod", |status| runs_after(status, RESTARTS)).await;
        for name in ["going", "job"] {
            bench.status(name, "a running pod", is_running).await;
        }
        let before: Vec<String> = twin.sandboxes().into_iter().map(|it| it.id).collect();

        twin.stop().await;
        bench.ask_for_end(&going);
        twin.restart(restart).await.expect("it serves again");
        let again = |status: &Value| runs_after(status, RESTARTS + 1);
        bench.status("web", "the pod in a new sandbox", again).await;
        let new = twin.containers().into_iter().filter(|it| !before.contains(&it.pod_sandbox_id));
        let mut new: Vec<_> =
            new.filter_map(|it| it.metadata).map(|it| (it.name, it.attempt)).collect();
        new.sort();
        let expected = [("init".to_owned(), 1), ("web".to_owned(), RESTARTS + 1)];
        assert_eq!((new, twin.starts("init")), (expected.to_vec(), 2), "{restart:?}");
        bench.delete(&going).await;
        let has_failed = |status: &Value| status["phase"] == "Failed";
        let status = bench.status("job", "its end", has_failed).await;
        let end = &status["containerStatuses"][0]["state"]["terminated"];
        if restart == Restart::Emptied {
            assert_eq!(
                (end["exitCode"].as_i64(), end["reason"].as_str()),
                (Some(137), Some(UNOBSERVED))
            );
        }
        assert_eq!(twin.starts("job"), 1);
        for pod in [&web, &job] {
            bench.delete(pod).await;
        }
        let nothing = async || (names(&twin) == (vec![], vec![])).then_some(());
        assert!(until(nothing).await.is_some(), "{restart:?}: left: {:?}", names(&twin));
        edged.stop().await;
    }
}
