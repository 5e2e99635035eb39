//! The restart of all containers of a pod, which the end of one of them brings about.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::{Bench, condition, is_running, script_pod, startup_probe, until};

/// Restart counts of all containers, init containers first.
fn restart_counts(status: &Value) -> Vec<u64> {
    let statuses = [&status["initContainerStatuses"], &status["containerStatuses"]];
    let statuses = statuses.into_iter().filter_map(Value::as_array).flatten();
    statuses.filter_map(|status| status["restartCount"].as_u64()).collect()
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_end_of_one_container_restarts_all_of_them_once() {
    let bench = Bench::new(&[]);
    let (order, done) = (bench.path("order"), bench.path("done"));
    let container = |name: &str, script: &str| {
        let script = format!("echo {name} >> {}; {script}", order.display());
        json!({"name": name, "command": ["sh", "-c", script]})
    };
    // They ignore the request to end: a restart leaves them no time.
    let stay = "trap '' TERM; while true; do sleep 0.1; done";
    let mut sidecar = container("side", stay);
    sidecar["restartPolicy"] = json!("Always");
    // A process that was started may not have run its first line. In each run its line comes before that of the other one.
    let has_begun =
        format!("[ `grep -c side {order}` -gt `grep -c other {order}` ]", order = order.display());
    sidecar["startupProbe"] = startup_probe(&has_begun);
    let source = format!(
        "[ -e {done} ] && exec sleep 1000; until grep -q other {order}; do sleep 0.02; done; : > {done}; exit 42",
        done = done.display(),
        order = order.display(),
    );
    let mut source = container("source", &source);
    source["restartPolicy"] = json!("Never");
    source["restartPolicyRules"] = json!([
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}},
    ]);
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["initContainers"] = json!([container("init", "exit 0"), sidecar]);
    pod["spec"]["containers"] = json!([source, container("other", stay)]);
    bench.edge.apply(&pod);

    let first = bench.edged().await;
    let again = |status: &Value| is_running(status) && restart_counts(status) == [1, 1, 1, 1];
    let status = bench.edge.until_status("web", "the restarted pod", again).await;
    assert_eq!(condition(&status, "AllContainersRestarting"), "False");
    let source = &status["containerStatuses"][0]["lastState"]["terminated"];
    let other = &status["containerStatuses"][1]["lastState"]["terminated"];
    assert_eq!((&source["exitCode"], &other["exitCode"]), (&42.into(), &137.into()), "{status:#}");
    let started = || Some(lines(&order)).filter(|lines| lines.len() == 8);
    let mut started = until("two starts of four containers", started).await;
    for starts in started.chunks_mut(4) {
        // The two main containers start in any order.
        starts[2..].sort();
        assert_eq!(starts, ["init", "side", "other", "source"]);
    }
    first.stop().await;

    // The next pod worker does not take the end of the source for a new one.
    let second = bench.edged().await;
    bench.edge.apply(&script_pod("later", "u2", "exec sleep 1000"));
    bench.edge.until_status("later", "another pod", is_running).await;
    let status = bench.edge.until_status("web", "the same pod", again).await;
    assert_eq!(restart_counts(&status), [1, 1, 1, 1]);
    assert_eq!(lines(&order).len(), 8, "nothing started again");
    second.stop_pods(Duration::from_secs(5)).await;
}

/// The pod worker ends when the restart is written down and before anything is killed.
#[tokio::test]
async fn a_restart_goes_on_in_the_next_pod_worker() {
    let bench = Bench::new(&[]);
    let mut pod = script_pod("web", "u1", "exec sleep 1000");
    let main = &mut pod["spec"]["containers"][0];
    main["restartPolicy"] = json!("Never");
    main["restartPolicyRules"] = json!([
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}},
    ]);
    bench.edge.apply(&pod);
    let first = bench.edged().await;
    bench.edge.until_status("web", "a running pod", is_running).await;
    first.stop().await;
    let restart = bench.edged_dir().join("pods/u1/restart.json");
    std::fs::write(restart, json!({"main": 0}).to_string()).expect("written");
    let second = bench.edged().await;
    let again = |status: &Value| is_running(status) && restart_counts(status) == [1];
    let status = bench.edge.until_status("web", "the restarted pod", again).await;
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137);
    second.stop_pods(Duration::from_secs(5)).await;
}
