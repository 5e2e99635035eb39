//! Evictions on a runtime in memory, whose pods use what a test says.

use std::time::Duration;

use headwater_edged::pod::PodUid;
use headwater_edged::runtime::memory::MemoryRuntime;
use headwater_edged::runtime::{PodState, Runtime as _};
use headwater_edged::{Edged, Handle, NOTICES_MAX, PressureSettings, SoftThresholds};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Bench, condition, is_ready, script_pod, until};
use crate::fake_edge::{asked_delete, latest_status};

const MIB: u64 = 1 << 20;

fn settings() -> PressureSettings {
    PressureSettings { check: Duration::from_millis(20), ..PressureSettings::without_thresholds() }
}

async fn edged(bench: &Bench, pressure: PressureSettings) -> (Handle, MemoryRuntime) {
    let (notices, noticed) = mpsc::channel(NOTICES_MAX);
    let runtime = MemoryRuntime::new(notices);
    runtime.limit_memory(100 * MIB);
    let mut config = bench.config();
    config.settings.pressure = pressure;
    let edged = Edged::spawn_with(config, runtime.measured_runtime(), noticed).await;
    (edged.expect("the pod worker starts"), runtime)
}

fn uid(name: &str) -> PodUid {
    PodUid::try_from(format!("uid-{name}")).expect("a UID")
}

/// A pod of a priority, with a request of memory, so that a node under pressure admits it.
fn pod(name: &str, priority: i64) -> Value {
    let mut pod = script_pod(name, uid(name).as_str(), "");
    pod["spec"]["priority"] = json!(priority);
    pod["spec"]["containers"][0]["image"] = json!("localhost/web:1");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "1Mi"}});
    pod
}

fn is_evicted(status: &Value) -> bool {
    status["phase"] == "Failed" && status["reason"] == "Evicted"
}

fn is_still_ready(bench: &Bench, name: &str) -> bool {
    latest_status(&bench.edge.operations(), name).is_some_and(|status| is_ready(&status))
}

#[tokio::test]
async fn pods_go_one_by_one_until_there_is_enough_and_leave_their_status_alone() {
    let bench = Bench::new(&[]);
    let pressure = PressureSettings { memory_available_bytes: 30 * MIB, ..settings() };
    let (edged, runtime) = edged(&bench, pressure).await;
    let pods = [("low", 0, 20), ("large", 0, 30), ("high", 9, 40), ("critical", 2_000_000_000, 5)];
    for (name, priority, _) in pods {
        bench.edge.apply(&pod(name, priority));
        bench.edge.until_status(name, "a ready pod", is_ready).await;
    }
    for (name, _, used) in pods {
        // Together 95 of 100: without the largest 65, without the next one 45.
        runtime.use_memory(&uid(name), used * MIB);
    }
    let status = bench.edge.until_status("large", "its eviction", is_evicted).await;
    assert_eq!(condition(&status, "DisruptionTarget"), "True");
    let message = status["message"].as_str().expect("words");
    let words = "The node was low on resource: memory. Threshold quantity: 30Mi, available: ";
    assert!(message.starts_with(words), "{message}");
    assert!(!status["containerStatuses"][0]["state"]["terminated"].is_null(), "{status}");
    // Its content goes, and 35 of 100 are free.
    until("nothing of the pod", || (!runtime.pods().contains(&uid("large"))).then_some(())).await;
    runtime.use_memory(&uid("high"), 44 * MIB);
    let other = pod("other", 0);
    bench.edge.apply(&other);
    bench.edge.until_status("other", "a pod after that", is_ready).await;
    for name in ["low", "high", "critical"] {
        assert!(is_still_ready(&bench, name), "{name}: one was enough");
    }
    // The pod with the highest usage is critical, and the next ones are not enough.
    runtime.use_memory(&uid("critical"), 90 * MIB);
    for name in ["low", "high"] {
        bench.edge.until_status(name, "its eviction", is_evicted).await;
    }
    assert!(is_still_ready(&bench, "critical"));
    // The cloud deletes it in the end, as any other.
    bench.edge.apply(&crate::bench::deleting(&pod("large", 0), 1));
    bench.edge.until("the delete", |all| asked_delete(all, "large")).await;
    edged.stop_pods(Duration::from_secs(5)).await;
}

/// Waits for several measurements that begin from now on.
async fn measured(runtime: &MemoryRuntime) {
    let before = runtime.measurements();
    let is_measured = || (runtime.measurements() > before + 5).then_some(());
    until("measurements", is_measured).await;
}

#[tokio::test]
async fn no_further_pod_goes_while_the_content_of_one_is_still_being_removed() {
    // For a shortage, and for a limit of its own.
    for has_limit in [false, true] {
        let bench = Bench::new(&[]);
        let pressure = PressureSettings { memory_available_bytes: 30 * MIB, ..settings() };
        let (edged, runtime) = edged(&bench, pressure).await;
        for name in ["goes", "stays"] {
            let mut pod = pod(name, 0);
            if has_limit && name == "goes" {
                let limits = json!({"ephemeral-storage": "2Mi"});
                pod["spec"]["containers"][0]["resources"]["limits"] = limits;
            }
            bench.edge.apply(&pod);
            bench.edge.until_status(name, "a ready pod", is_ready).await;
        }
        runtime.keep_content(&uid("goes"));
        if has_limit {
            runtime.use_disk(&uid("goes"), 3 * MIB);
            bench.edge.until_status("goes", "its eviction", is_evicted).await;
        }
        // Together 90 of 100, and 40 without the first one.
        runtime.use_memory(&uid("stays"), 40 * MIB);
        runtime.use_memory(&uid("goes"), 50 * MIB);
        bench.edge.until_status("goes", "its eviction", is_evicted).await;
        let nothing = || (runtime.pod(&uid("goes")) == PodState::default()).then_some(());
        until("the removal", nothing).await;
        measured(&runtime).await;
        assert!(is_still_ready(&bench, "stays"), "the content of the first one goes");
        runtime.drop_content(&uid("goes"));
        let gone = || (!runtime.pods().contains(&uid("goes"))).then_some(());
        until("nothing of the pod", gone).await;
        measured(&runtime).await;
        assert!(is_still_ready(&bench, "stays"), "one was enough");
        edged.stop_pods(Duration::from_secs(5)).await;
    }
}

#[tokio::test]
async fn a_pod_whose_end_is_pending_is_not_evicted_and_keeps_no_other_from_it() {
    let bench = Bench::new(&[]);
    let pressure = PressureSettings { memory_available_bytes: 30 * MIB, ..settings() };
    let (edged, runtime) = edged(&bench, pressure).await;
    for name in ["pending", "other"] {
        let mut pod = pod(name, 0);
        pod["spec"]["restartPolicy"] = json!("Never");
        bench.edge.apply(&pod);
        bench.edge.until_status(name, "a ready pod", is_ready).await;
    }
    runtime.hide_end(&uid("pending"), "main");
    // Together 80 of 100, and 60 without the other one.
    runtime.use_memory(&uid("pending"), 60 * MIB);
    runtime.use_memory(&uid("other"), 20 * MIB);
    bench.edge.until_status("other", "its eviction", is_evicted).await;
    runtime.exit(&uid("pending"), "main", 0);
    let has_ended = |status: &Value| status["phase"] != "Running";
    let status = bench.edge.until_status("pending", "its end", has_ended).await;
    assert_eq!(status["phase"], "Succeeded", "{status}");
    edged.stop().await;
}

#[tokio::test]
async fn a_soft_threshold_gives_the_pod_its_time_and_a_node_that_evicts_none_only_says_so() {
    for evicts in [true, false] {
        let bench = Bench::new(&[]);
        let soft = SoftThresholds {
            grace: Duration::from_millis(50),
            pod_grace: Duration::from_secs(3600),
            ..SoftThresholds::default()
        };
        // The soft thresholds are of the machine, which always has less than this.
        let soft = SoftThresholds { memory_available_bytes: u64::MAX, ..soft };
        let (edged, runtime) = edged(&bench, PressureSettings { soft, evicts, ..settings() }).await;
        let mut given = pod("web", 0);
        given["spec"]["terminationGracePeriodSeconds"] = json!(1);
        runtime.use_memory(&uid("web"), MIB << 1);
        runtime.ignore_stops(&uid("web"), "main");
        bench.edge.apply(&given);
        if evicts {
            // It ignores the request to end, and is killed after its own grace period.
            let status = bench.edge.until_status("web", "its eviction", is_evicted).await;
            let state = &status["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(state["signal"], 9, "{status}");
        } else {
            bench.edge.until_status("web", "a ready pod", is_ready).await;
            let pressed = |all: &[headwater_proto::local::Operation]| {
                let node = all.iter().rfind(|it| it.resource == "null/node/gw-1")?;
                let node: Value = serde_json::from_slice(&node.content).expect("JSON");
                (condition(&node["status"], "MemoryPressure") == "True").then_some(())
            };
            bench.edge.until("the condition", pressed).await;
        }
        edged.stop_pods(Duration::from_secs(5)).await;
    }
}
