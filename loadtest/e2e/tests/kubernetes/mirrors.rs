//! kubectl shows the pods of a node's own files.

use std::fs;

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_e2e::fleet::Fleet;
use serde_json::{Value, json};

use crate::world::{USER, create, deployed, kubectl, node};

const NODE: &str = "gw-1";
const POD: &str = "web-gw-1";

/// The pod as the API shows it; null: it does not.
fn shown(cluster: &ControlPlane) -> Value {
    let pod = kubectl(cluster, &["get", "pod", POD, "--ignore-not-found", "-o", "json"]);
    if pod.is_empty() { Value::Null } else { serde_json::from_str(&pod).expect("JSON") }
}

/// Waits for a mirror that is running, and returns its UID.
fn running(
    fleet: &Fleet,
    cluster: &ControlPlane,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> String {
    fleet.wait_for(what, |_| {
        let pod = shown(cluster);
        let is_running = pod["status"]["phase"] == "Running" && is_so(&pod);
        is_running.then(|| pod["metadata"]["uid"].as_str().expect("a UID").to_owned())
    })
}

#[test]
fn kubectl_shows_a_static_pod_which_lives_by_its_file_alone() {
    let (cluster, kubeconfig) = deployed(ControlPlaneSettings::default());
    create(&cluster, &node(NODE));
    let mut fleet = Fleet::on_one_broker(3);
    let listening = ["--listen", "127.0.0.1:0", "--insecure-loopback"].map(str::to_owned);
    fleet.add_kubernetes_controller("controller", &kubeconfig, &listening);
    fleet.add_hub("hub");
    let scratch = tempfile::tempdir().expect("a folder");
    let (manifests, config) = (scratch.path().join("manifests"), scratch.path().join("edge.toml"));
    fs::create_dir(&manifests).expect("created");
    fs::write(&config, format!("static_pods = {:?}\n", manifests.display().to_string()))
        .expect("written");
    let file = manifests.join("web.json");
    let of_image = |image: &str| {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "containers": [{"name": "main", "image": image}],
                "terminationGracePeriodSeconds": 1,
            },
        });
        fs::write(&file, pod.to_string()).expect("written");
    };
    of_image("example.invalid/first");
    let hub = fleet.hub_address("hub");
    let config = config.display().to_string();
    fleet.add_edge_with(NODE, &[hub], &["--insecure-loopback", "--config", &config]);
    let first = running(&fleet, &cluster, "a mirror", |_| true);
    // A person deletes it.
    kubectl(&cluster, &["delete", "pod", POD, "--wait=false"]);
    let second =
        running(&fleet, &cluster, "the next mirror", |pod| pod["metadata"]["uid"] != first);
    // The edge and the controller die: the mirror stays.
    fleet.part_mut(NODE).kill();
    fleet.part_mut("controller").kill();
    fleet.part_mut("controller").start_again();
    fleet.part_mut(NODE).start_again();
    fleet.wait_until_reconciled("controller");
    // The file has another pod.
    of_image("example.invalid/second");
    running(&fleet, &cluster, "the mirror of the other file", |pod| {
        pod["spec"]["containers"][0]["image"] == "example.invalid/second"
            && pod["metadata"]["uid"] != second
    });
    fs::remove_file(&file).expect("removed");
    fleet.wait_for("no mirror", |_| shown(&cluster).is_null().then_some(()));
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0]);
}
