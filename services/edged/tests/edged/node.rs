//! The node object, and pod workers that do not start.

use headwater_edged::{Edged, EdgedError, RuntimeKind};
use headwater_proto::local::Operation;
use headwater_proto::local::operation::Verb;
use serde_json::Value;

use crate::bench::{Bench, condition, is_ready, script_pod};

#[tokio::test]
async fn a_node_is_registered_and_reported_again_after_a_new_listing() {
    let bench = Bench::new(&[]);
    let edged = bench.edged().await;
    let reported = |all: &[Operation], verb| {
        all.iter().find(|o| o.resource == "null/node/gw-1" && o.verb() == verb).cloned()
    };
    let node = bench.edge.until("the node", |all| reported(all, Verb::Insert)).await;
    let node: Value = serde_json::from_slice(&node.content).expect("JSON");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "gw-1");
    assert_eq!(node["status"]["capacity"]["pods"], "110");
    let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str();
    assert!(runtime.is_some_and(|runtime| runtime.starts_with("process://")));
    bench.edge.watched().await;
    bench.edge.list_again(true);
    bench.edge.until("the node again", |all| reported(all, Verb::Update)).await;
    edged.stop().await;
}

#[tokio::test]
async fn a_node_that_lacks_a_resource_reports_pressure() {
    let bench = Bench::new(&[]);
    let mut config = bench.config();
    config.settings.pressure.memory_available_bytes = u64::MAX;
    config.settings.pressure.disk_available_percent = 0;
    config.settings.pressure.files_free_percent = 0;
    let edged = Edged::spawn(config).await.expect("starts");
    let reported = |all: &[Operation]| all.iter().find(|o| o.resource == "null/node/gw-1").cloned();
    let node = bench.edge.until("the node", reported).await;
    let node: Value = serde_json::from_slice(&node.content).expect("JSON");
    assert_eq!(condition(&node["status"], "MemoryPressure"), "True");
    assert_eq!(condition(&node["status"], "DiskPressure"), "False");
    edged.stop().await;
}

#[tokio::test]
async fn hollow_pods_run_without_processes() {
    let mut pod = script_pod("web", "u1", "");
    pod["spec"]["containers"] = serde_json::json!([
        {"name": "main", "image": "nginx", "readinessProbe": {"tcpSocket": {"port": 1}}}]);
    pod["spec"]["initContainers"] = serde_json::json!([{"name": "init", "image": "busybox"}]);
    let bench = Bench::new(std::slice::from_ref(&pod));
    let mut config = bench.config();
    config.runtime = RuntimeKind::Hollow;
    let edged = Edged::spawn(config).await.expect("starts");
    bench.edge.until_status("web", "a ready pod", is_ready).await;
    bench.edge.apply(&crate::bench::deleting(&pod, 30));
    let asked = |all: &[Operation]| crate::fake_edge::asked_delete(all, "web");
    bench.edge.until("the delete", asked).await;
    assert!(!bench.edged_dir().exists(), "a hollow pod leaves nothing on the disk");
    edged.stop().await;
}

#[tokio::test]
async fn a_socket_path_that_no_socket_can_have_is_refused_by_name() {
    let bench = Bench::new(&[]);
    let mut config = bench.config();
    config.edge_socket = bench.path(&"x".repeat(120));
    let error = Edged::spawn(config).await.expect_err("too long");
    assert!(matches!(error, EdgedError::Socket(_)));
    assert!(error.to_string().contains("shorter data directory"), "{error}");
}
