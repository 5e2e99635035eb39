//! What a change of the runtime leaves of the pods. Both runtimes are the same one here: what the former one has is removed.

use std::time::Duration;

use headwater_edged::{Edged, running_pods};
use serde_json::json;

use crate::bench::{Bench, is_running, script_pod, until};

/// The pods end within it, also on a machine that is busy.
const GRACE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn hooks_run_and_sidecars_end_last_although_no_edge_names_the_pods() {
    let bench = Bench::new(&[]);
    let (order, ready) = (bench.path("order"), bench.path("ready"));
    let script = |name: &str| {
        let (order, ready) = (order.display(), ready.display());
        format!(
            "trap 'echo {name} >> {order}; exit 0' TERM; echo {name} >> {ready}; \
             while true; do sleep 0.02; done"
        )
    };
    let sidecar = |name: &str| {
        let command = json!(["sh", "-c", script(name)]);
        json!({"name": name, "restartPolicy": "Always", "command": command})
    };
    let mut pod = script_pod("web", "u1", &script("main"));
    let hook = format!("echo hook >> {}", order.display());
    pod["spec"]["containers"][0]["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", hook]}}});
    pod["spec"]["initContainers"] = json!([sidecar("first"), sidecar("second")]);
    bench.edge.apply(&pod);
    let edged = bench.edged().await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    let lines = |path: &std::path::Path| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    until("three containers", || (lines(&ready).len() == 3).then_some(())).await;
    edged.stop().await;

    Edged::clear(bench.config(), GRACE).await.expect("the pod ends");
    assert_eq!(lines(&order), ["hook", "main", "second", "first"]);
}

#[tokio::test]
async fn a_pod_that_ended_unreported_does_not_run_again_and_one_that_was_stopped_does() {
    let bench = Bench::new(&[]);
    let (job_starts, web_starts, end) = (bench.path("job"), bench.path("web"), bench.path("end"));
    let wait = format!("until [ -e {} ]; do sleep 0.02; done; exit 3", end.display());
    for (name, starts, script) in
        [("job", &job_starts, wait.as_str()), ("web", &web_starts, "exec sleep 1000")]
    {
        let script = format!("echo start >> {}; {script}", starts.display());
        let mut pod = script_pod(name, name, &script);
        pod["spec"]["restartPolicy"] = json!("Never");
        bench.edge.apply(&pod);
    }
    let first = bench.edged().await;
    for name in ["job", "web"] {
        bench.edge.until_status(name, "a running pod", is_running).await;
    }
    first.stop().await;
    std::fs::write(&end, "").expect("written");
    let runs = || running_pods(&bench.edged_dir()).expect("readable").len();
    until("the end that no pod worker reports", || (runs() == 1).then_some(())).await;

    let ended = Edged::clear(bench.config(), GRACE).await.expect("the pods end");
    let names: Vec<_> = ended.ended.iter().map(|pod| pod.key.name().to_owned()).collect();
    assert_eq!(names, ["web"], "the other one had ended");
    assert_eq!(runs(), 0);

    let second = bench.edged().await;
    let failed = |status: &serde_json::Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("job", "its end", failed).await;
    let exit = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(exit["exitCode"], 3, "{status:#}");
    let starts =
        |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default().lines().count();
    until("the pod that was stopped", || (starts(&web_starts) == 2).then_some(())).await;
    assert_eq!(starts(&job_starts), 1);
    second.stop_pods(GRACE).await;
}

#[tokio::test]
async fn a_pod_that_ended_unreported_after_an_earlier_change_of_the_runtime_does_not_run_again() {
    let bench = Bench::new(&[]);
    let (starts, end) = (bench.path("starts"), bench.path("end"));
    let script = format!(
        "echo start >> {}; until [ -e {} ]; do sleep 0.02; done; exit 3",
        starts.display(),
        end.display()
    );
    let mut pod = script_pod("job", "job", &script);
    pod["spec"]["restartPolicy"] = json!("Never");
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    bench.edge.until_status("job", "a running pod", is_running).await;
    first.stop().await;
    Edged::clear(bench.config(), GRACE).await.expect("the pod ends");

    let starts = || std::fs::read_to_string(&starts).unwrap_or_default().lines().count();
    let second = bench.edged().await;
    until("the pod that was stopped", || (starts() == 2).then_some(())).await;
    second.stop().await;
    std::fs::write(&end, "").expect("written");
    let runs = || running_pods(&bench.edged_dir()).expect("readable").len();
    until("the end that no pod worker reports", || (runs() == 0).then_some(())).await;
    Edged::clear(bench.config(), GRACE).await.expect("the pod has ended");

    let third = bench.edged().await;
    let failed = |status: &serde_json::Value| status["phase"] == "Failed";
    let status = bench.edge.until_status("job", "its end", failed).await;
    let exit = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(exit["exitCode"], 3, "{status:#}");
    assert_eq!(starts(), 2);
    third.stop_pods(GRACE).await;
}
