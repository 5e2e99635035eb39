//! The restart of all containers of a pod: on containerd, and on the twin, whose calls fail by a seed.

use headwater_cri::client::CriClient;
use headwater_cri_lab::Containerd;
use serde_json::{Value, json};

use crate::bench::{Bench, is_running, on_a_twin, sandboxes};
use crate::faults::RATES;
use crate::life::{FOREVER, gone, start};

const SEEDS: std::ops::Range<u64> = 0..6;

/// A pod whose first container restarts both when it ends with 42.
fn pod(bench: &Bench, script: &str) -> Value {
    let mut pod = bench.pod("source", script);
    pod["spec"]["restartPolicy"] = json!("Never");
    let rule =
        json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}});
    let containers = pod["spec"]["containers"].as_array_mut().expect("a list");
    let mut other = containers[0].clone();
    other["name"] = json!("other");
    other["command"] = json!(["/bin/sh", "-c", FOREVER]);
    containers[0]["restartPolicy"] = json!("Never");
    containers[0]["restartPolicyRules"] = json!([rule]);
    containers.push(other);
    pod
}

/// Whether both containers run, after this many restarts each or more: a start whose answer is lost counts.
fn run_again(status: &Value, restarts: u64) -> bool {
    let is_again = |status: &Value| {
        status["restartCount"].as_u64() >= Some(restarts) && !status["state"]["running"].is_null()
    };
    let statuses = status["containerStatuses"].as_array();
    is_running(status) && statuses.is_some_and(|all| all.iter().all(is_again))
}

/// The numbers of all sandboxes.
async fn sandbox_numbers(client: &CriClient) -> Vec<u32> {
    sandboxes(client).await.into_iter().filter_map(|it| Some(it.metadata?.attempt)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_containers_restart_in_the_sandbox_that_is_there() {
    let Some(containerd) = start() else { return };
    let bench = Bench::new(containerd.socket());
    let edged = bench.edged().await;
    let script = format!("[ $(wc -l < /notes/source) -gt 1 ] || exit 42; {FOREVER}");
    let pod = pod(&bench, &script);
    bench.edge.apply(&pod);
    bench.status("source", "the restarted pod", |status| run_again(status, 1)).await;
    bench.until_starts("source", 2).await;
    let client = CriClient::new(containerd.socket());
    assert_eq!(sandbox_numbers(&client).await, [0], "the sandbox stays");
    bench.delete(&pod).await;
    gone(&containerd, &["source"]).await;
    edged.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_all_containers_happens_once_whatever_fails() {
    if !Containerd::is_possible() {
        return;
    }
    for seed in SEEDS {
        eprintln!("seed {seed}");
        let (_scratch, twin, bench, edged) = on_a_twin().await;
        let pod = pod(&bench, "");
        bench.edge.apply(&pod);
        bench.status("source", "a running pod", |status| run_again(status, 0)).await;
        twin.set_faults(seed, RATES);
        twin.end("source", 42).await;
        bench.status("source", "the restarted pod", |status| run_again(status, 1)).await;
        assert_eq!((twin.starts("source"), twin.starts("other")), (2, 2), "seed {seed}");
        bench.delete(&pod).await;
        edged.stop().await;
    }
}
