//! Containers of the twin that are listed as ended, and whose status does not come.

use headwater_cri::client::CriClient;
use headwater_cri_lab::{Containerd, FaultRates, Twin};
use serde_json::{Value, json};

use crate::bench::{
    Bench, is_running, lose_events, on_a_twin, on_a_twin_that_is_listed_often, sandboxes,
    stop_sandbox, until,
};

/// Lists after which a pod worker has decided what it does with what they show.
const LISTS: u64 = 5;

/// How a status does not come.
#[derive(Clone, Copy, Debug)]
enum Silence {
    Hangs,
    Fails,
}

impl Silence {
    fn begin(self, twin: &Twin, container: &str) {
        match self {
            Self::Hangs => twin.hold_status(container),
            Self::Fails => twin.damage(container),
        }
    }

    fn end(self, twin: &Twin, container: &str) {
        match self {
            Self::Hangs => twin.give_status(container),
            Self::Fails => twin.repair(container),
        }
    }
}

/// A pod that does not run again once it has ended.
fn job(bench: &Bench) -> Value {
    let mut job = bench.pod("job", "");
    job["spec"]["restartPolicy"] = json!("Never");
    job
}

/// Waits for lists that begin from now on.
async fn lists(twin: &Twin) {
    let before = twin.calls("ListContainers");
    let listed = async || (twin.calls("ListContainers") > before + LISTS).then_some(());
    assert!(until(listed).await.is_some(), "no lists are made");
}

/// The id of the only sandbox.
async fn sandbox(client: &CriClient) -> String {
    sandboxes(client).await.pop().expect("the sandbox").id
}

fn is_pending(status: &Value) -> bool {
    is_running(status) && status["containerStatuses"][0]["ready"] == false
}

fn has_succeeded(status: &Value) -> bool {
    status["phase"] == "Succeeded"
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_without_a_status_delays_no_other_end() {
    if !Containerd::is_possible() {
        return;
    }
    for silence in [Silence::Hangs, Silence::Fails] {
        let (_scratch, twin, bench, edged) = on_a_twin_that_is_listed_often().await;
        bench.edge.apply(&job(&bench));
        bench.status("job", "a running pod", is_running).await;
        bench.edge.apply(&bench.pod("web", ""));
        bench.status("web", "a running pod", is_running).await;
        lose_events(&twin);
        silence.begin(&twin, "job");
        twin.end("job", 0).await;
        twin.end("web", 3).await;
        let again = async || (twin.starts("web") > 1).then_some(());
        assert!(until(again).await.is_some(), "{silence:?}: another end is not noticed");
        bench.status("job", "a pod that is not ready", is_pending).await;
        silence.end(&twin, "job");
        bench.status("job", "its end", has_succeeded).await;
        assert_eq!(twin.starts("job"), 1, "{silence:?}");
        edged.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_end_has_no_status_runs_once_though_its_sandbox_is_lost() {
    if !Containerd::is_possible() {
        return;
    }
    for silence in [Silence::Hangs, Silence::Fails] {
        let (_scratch, twin, bench, edged) = on_a_twin_that_is_listed_often().await;
        let client = CriClient::new(twin.socket());
        bench.edge.apply(&job(&bench));
        bench.status("job", "a running pod", is_running).await;
        lose_events(&twin);
        silence.begin(&twin, "job");
        twin.end("job", 0).await;
        stop_sandbox(&client, sandbox(&client).await).await;
        bench.status("job", "a pod that is not ready", is_pending).await;
        lists(&twin).await;
        silence.end(&twin, "job");
        let status = bench.status("job", "its end", has_succeeded).await;
        let container = &status["containerStatuses"][0];
        assert_eq!(container["state"]["terminated"]["exitCode"], 0, "{silence:?}: {status}");
        assert_eq!(container["restartCount"], 0, "{silence:?}: {status}");
        assert_eq!((twin.starts("job"), twin.calls("StopContainer")), (1, 0), "{silence:?}");
        assert_eq!(sandboxes(&client).await.len(), 1, "{silence:?}: no other one is made");
        edged.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_worker_starts_though_an_end_has_no_status_and_waits_for_its_code() {
    if !Containerd::is_possible() {
        return;
    }
    for (silence, code) in [(Silence::Hangs, 0), (Silence::Fails, 3)] {
        let (_scratch, twin, bench, edged) = on_a_twin_that_is_listed_often().await;
        let client = CriClient::new(twin.socket());
        bench.edge.apply(&job(&bench));
        bench.status("job", "a running pod", is_running).await;
        edged.stop().await;
        // Its subscription ends after the stop: an event that still reached it would be written down.
        let is_unfollowed = async || (!twin.is_followed()).then_some(());
        assert!(until(is_unfollowed).await.is_some(), "the events are still followed");
        silence.begin(&twin, "job");
        twin.end("job", code).await;
        stop_sandbox(&client, sandbox(&client).await).await;

        let edged = bench.edged().await;
        bench.edge.apply(&bench.pod("web", ""));
        bench.status("web", "a running pod", is_running).await;
        bench.status("job", "a pod that is not ready", is_pending).await;
        lists(&twin).await;
        silence.end(&twin, "job");
        let has_ended = |status: &Value| status["phase"] != "Running";
        let status = bench.status("job", "its end", has_ended).await;
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(ended["exitCode"], code, "{silence:?}: {status}");
        assert_eq!((twin.starts("job"), twin.calls("StopContainer")), (1, 0), "{silence:?}");
        edged.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_reported_stays_reported_while_it_is_pending_for_the_next_pod_worker() {
    if !Containerd::is_possible() {
        return;
    }
    for silence in [Silence::Hangs, Silence::Fails] {
        let (_scratch, twin, bench, edged) = on_a_twin_that_is_listed_often().await;
        let mut pod = job(&bench);
        let mut other = pod["spec"]["containers"][0].clone();
        other["name"] = json!("other");
        pod["spec"]["containers"].as_array_mut().expect("containers").push(other);
        bench.edge.apply(&pod);
        let code = |status: &Value, index: usize| {
            status["containerStatuses"][index]["state"]["terminated"]["exitCode"].as_i64()
        };
        let both_run = |status: &Value| {
            let runs =
                |index: usize| !status["containerStatuses"][index]["state"]["running"].is_null();
            runs(0) && runs(1)
        };
        bench.status("job", "a running pod", both_run).await;
        // The end is not written down, either.
        lose_events(&twin);
        twin.end("job", 3).await;
        bench.status("job", "the first end", |status| code(status, 0) == Some(3)).await;
        edged.stop().await;
        silence.begin(&twin, "job");

        let edged = bench.edged().await;
        twin.end("other", 0).await;
        let other_ended = |status: &Value| code(status, 1) == Some(0);
        let status = bench.status("job", "the other end", other_ended).await;
        assert_eq!(
            (code(&status, 0), &status["phase"]),
            (Some(3), &json!("Running")),
            "{silence:?}"
        );
        silence.end(&twin, "job");
        let has_failed = |status: &Value| status["phase"] == "Failed";
        let status = bench.status("job", "its end", has_failed).await;
        assert_eq!((code(&status, 0), code(&status, 1)), (Some(3), Some(0)), "{silence:?}");
        assert_eq!((twin.starts("job"), twin.starts("other")), (1, 1), "{silence:?}");
        edged.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_ended_is_not_interrupted_though_its_event_is_lost_and_its_sandbox_ends() {
    if !Containerd::is_possible() {
        return;
    }
    let (_scratch, twin, bench, edged) = on_a_twin().await;
    let client = CriClient::new(twin.socket());
    bench.edge.apply(&job(&bench));
    bench.status("job", "a running pod", is_running).await;
    lose_events(&twin);
    twin.end("job", 0).await;
    // The event of the sandbox comes, and the pod worker ends what runs there.
    let sandbox = sandbox(&client).await;
    stop_sandbox(&client, sandbox.clone()).await;
    twin.set_faults(0, FaultRates::default());
    twin.report_sandbox_end(&sandbox);
    let status = bench.status("job", "its end", has_succeeded).await;
    let container = &status["containerStatuses"][0];
    assert_eq!(container["state"]["terminated"]["exitCode"], 0, "{status}");
    assert_eq!((twin.starts("job"), twin.calls("StopContainer")), (1, 0), "{status}");
    edged.stop().await;
}
