//! Other resources for a pod that runs (KEP-1287).

use std::time::Duration;

use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::{Edged, EdgedConfig, Handle, NOTICES_MAX};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Bench, is_ready, is_running, script_pod};

/// A bench whose node has one processor for pods, whatever the machine has.
fn config(bench: &Bench) -> EdgedConfig {
    let cpus = std::thread::available_parallelism().expect("a machine").get();
    let mut config = bench.config();
    config.settings.reserved.cpu_milli = u64::try_from(cpus * 1000 - 1000).expect("a number");
    config
}

async fn edged(bench: &Bench) -> (Handle, MemoryRuntime) {
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let runtime = MemoryRuntime::new(notices);
    let edged = Edged::spawn_with(config(bench), runtime.node_runtime(), noticed).await;
    (edged.expect("the pod worker starts"), runtime)
}

fn pod(name: &str, cpu: &str) -> Value {
    let mut pod = script_pod(name, name, "");
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

/// The CPU that the container's status states: what is given to it, and what it runs with.
fn cpus(status: &Value) -> (Value, Value) {
    let container = &status["containerStatuses"][0];
    let allocated = container["allocatedResources"]["cpu"].clone();
    (allocated, container["resources"]["requests"]["cpu"].clone())
}

fn has(status: &Value, cpu: &str) -> bool {
    cpus(status) == (json!(cpu), json!(cpu)) && reason(status, "PodResizeInProgress").is_none()
}

/// The reason and the message of a condition that holds.
fn reason(status: &Value, kind: &str) -> Option<(String, String)> {
    let conditions = status["conditions"].as_array()?;
    let own = conditions.iter().find(|it| it["type"] == kind && it["status"] == "True")?;
    let text = |field: &str| own[field].as_str().unwrap_or_default().to_owned();
    Some((text("reason"), text("message")))
}

#[tokio::test]
async fn a_container_that_runs_gets_other_resources_and_runs_on() {
    let mut web = pod("web", "100m");
    let bench = Bench::new(std::slice::from_ref(&web));
    let (edged, _runtime) = edged(&bench).await;
    let before = bench.edge.until_status("web", "a ready pod", is_ready).await;
    assert!(has(&before, "100m"), "{before:#}");
    web["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("250m");
    bench.edge.apply(&web);
    let after = bench.edge.until_status("web", "the new request", |it| has(it, "250m")).await;
    let run = |status: &Value| {
        let container = &status["containerStatuses"][0];
        (container["containerID"].clone(), container["restartCount"].clone(), is_running(status))
    };
    assert_eq!(run(&after), run(&before));
    edged.stop().await;
}

#[tokio::test]
async fn a_container_whose_policy_demands_it_starts_again() {
    let mut web = pod("web", "100m");
    web["spec"]["containers"][0]["resizePolicy"] =
        json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let bench = Bench::new(std::slice::from_ref(&web));
    let (edged, _runtime) = edged(&bench).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    web["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("250m");
    bench.edge.apply(&web);
    let again = |s: &Value| is_ready(s) && s["containerStatuses"][0]["restartCount"] == 1;
    let status = bench.edge.until_status("web", "the next run", again).await;
    assert!(has(&status, "250m"), "{status:#}");
    edged.stop().await;
}

#[tokio::test]
async fn a_pod_keeps_what_it_has_until_the_node_has_room() {
    let (mut web, other) = (pod("web", "100m"), pod("other", "600m"));
    let bench = Bench::new(&[web.clone(), other]);
    let (edged, _runtime) = edged(&bench).await;
    for name in ["web", "other"] {
        bench.edge.until_status(name, "a ready pod", is_ready).await;
    }
    let pending = |status: &Value| reason(status, "PodResizePending").map(|(reason, _)| reason);
    let is =
        |expected: &'static str| move |status: &Value| pending(status).as_deref() == Some(expected);
    web["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    bench.edge.apply(&web);
    let status = bench.edge.until_status("web", "more than there is", is("Infeasible")).await;
    assert_eq!(cpus(&status), (json!("100m"), json!("100m")));
    let (_, message) = reason(&status, "PodResizePending").expect("pending");
    let words = "Node didn't have enough capacity: cpu, requested: 2000, capacity: 1000";
    assert_eq!(message, words);

    web["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("500m");
    bench.edge.apply(&web);
    let status = bench.edge.until_status("web", "more than is left", is("Deferred")).await;
    assert_eq!(cpus(&status), (json!("100m"), json!("100m")));

    // The next pod worker knows what the pod has, and asks for no more room than that.
    edged.stop().await;
    let (edged, _runtime) = self::edged(&bench).await;
    bench.edge.until_status("web", "the wait again", is("Deferred")).await;
    bench.edge.delete("shop/pod/other");
    let status = bench.edge.until_status("web", "the new request", |it| has(it, "500m")).await;
    assert_eq!(reason(&status, "PodResizePending"), None);
    edged.stop_pods(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_change_that_fails_is_named_and_the_next_one_is_tried_at_once() {
    let mut web = pod("web", "100m");
    let bench = Bench::new(std::slice::from_ref(&web));
    let (edged, runtime) = edged(&bench).await;
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    runtime.fail_resizes(1);
    web["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("250m");
    bench.edge.apply(&web);
    let failed = |status: &Value| {
        reason(status, "PodResizeInProgress").is_some_and(|(reason, _)| reason == "Error")
    };
    let status = bench.edge.until_status("web", "an error", failed).await;
    assert_eq!(cpus(&status), (json!("250m"), json!("100m")));
    let (_, message) = reason(&status, "PodResizeInProgress").expect("in progress");
    assert!(message.contains("its cgroup is busy"), "{message}");
    web["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("300m");
    bench.edge.apply(&web);
    bench.edge.until_status("web", "the new request", |it| has(it, "300m")).await;
    edged.stop().await;
}
