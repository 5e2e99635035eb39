//! A log that is away, in a cluster whose controllers take silent nodes for lost.

use std::thread;
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};
use headwater_e2e::fleet::Fleet;
use serde_json::{Value, json};

use crate::world::{USER, create, deployed, kubectl, node, without_controllers};

/// Few, so that a claim in each is quick.
const PARTITIONS: u32 = 3;

/// Hubs connect to a controller, which learns from them that an edge is there.
const LISTENING: [&str; 3] = ["--listen", "127.0.0.1:0", "--insecure-loopback"];

/// The time without a log: more than twice the grace that a cluster gives a silent node by default (50 s).
const LOG_AWAY: Duration = Duration::from_mins(2);

/// The interval between two looks at the nodes meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A cluster of `nodes`, and a fleet with one controller and one hub.
fn start(settings: ControlPlaneSettings, nodes: &[&str]) -> (ControlPlane, Fleet) {
    let (cluster, kubeconfig) = deployed(settings);
    without_controllers(&cluster);
    for name in nodes {
        create(&cluster, &node(name));
    }
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    fleet.add_kubernetes_controller("controller", &kubeconfig, &LISTENING.map(str::to_owned));
    fleet.add_hub("hub");
    (cluster, fleet)
}

/// The status of the condition `Ready` of a node.
fn ready(cluster: &ControlPlane, node: &str) -> String {
    let status = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    kubectl(cluster, &["get", "node", node, "-o", status])
}

fn wait_until_ready(fleet: &Fleet, cluster: &ControlPlane, nodes: &[&str]) {
    fleet.wait_for("every node ready", |_| {
        nodes.iter().all(|node| ready(cluster, node) == "True").then_some(())
    });
}

/// The controller was refused nothing.
fn check_rights(cluster: &ControlPlane) {
    let log = cluster.audit_log().expect("an audit log");
    assert_eq!(log.refused(USER), [""; 0]);
}

/// A pod whose image no hollow runtime pulls.
fn spec() -> Value {
    json!({
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "example.invalid/main"}],
    })
}

#[test]
fn every_node_stays_ready_while_the_log_is_away() {
    const NODES: [&str; 3] = ["gw-1", "gw-2", "gw-3"];
    let parts = vec![Part::ControllerManager];
    let (cluster, mut fleet) =
        start(ControlPlaneSettings { parts, ..ControlPlaneSettings::default() }, &NODES);
    for name in NODES {
        fleet.add_edge(name, &["hub"]);
    }
    wait_until_ready(&fleet, &cluster, &NODES);

    fleet.kafka.broker(1).freeze().expect("it freezes");
    let until = Instant::now() + LOG_AWAY;
    while Instant::now() < until {
        for node in NODES {
            assert_eq!(ready(&cluster, node), "True", "{node}\n{}", fleet.outputs());
        }
        thread::sleep(LOOK_EVERY);
    }
    fleet.kafka.broker(1).thaw().expect("it continues");

    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "later"}});
    pod["spec"] = spec();
    pod["spec"]["nodeName"] = NODES[0].into();
    create(&cluster, &pod);
    fleet.wait_for("the pod of the log that is back", |_| {
        let phase = ["get", "pod", "later", "-o", "jsonpath={.status.phase}"];
        (kubectl(&cluster, &phase) == "Running").then_some(())
    });
    wait_until_ready(&fleet, &cluster, &NODES);
    let lost = ["get", "events", "-A", "--field-selector=reason=NodeNotReady", "-o", "name"];
    assert_eq!(kubectl(&cluster, &lost), "", "the cluster took an edge for lost");
    check_rights(&cluster);
}
