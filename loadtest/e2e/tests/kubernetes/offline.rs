//! Edges that are away, and a log that is away, in a cluster whose controllers take silent nodes for lost.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};
use headwater_e2e::fleet::Fleet;
use headwater_e2e::proxy::{Conditions, Proxy};
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

/// A control plane that takes a node for lost after 20 s, in which its Lease is renewed twice, and evicts its pods
/// 2 s later.
fn impatient() -> ControlPlaneSettings {
    let flags = |flags: [&str; 2]| flags.map(ToOwned::to_owned).to_vec();
    let controllers = ["--node-monitor-grace-period=20s", "--node-monitor-period=1s"];
    let server =
        ["--default-not-ready-toleration-seconds=2", "--default-unreachable-toleration-seconds=2"];
    let flags = BTreeMap::from([
        (Part::ControllerManager, flags(controllers)),
        (Part::ApiServer, flags(server)),
    ]);
    ControlPlaneSettings { flags, ..ControlPlaneSettings::default() }
}

/// A Deployment of one pod.
fn deployment(name: &str, annotations: &Value) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec()},
        },
    })
}

/// A pod as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    uid: String,
    node: String,
    phase: String,
    is_deleted: bool,
}

/// The pods of an application.
fn pods(cluster: &ControlPlane, app: &str) -> Vec<Shown> {
    let list = kubectl(cluster, &["get", "pods", "-l", &format!("app={app}"), "-o", "json"]);
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown = |pod: &Value| Shown {
        uid: text(&pod["metadata"]["uid"]),
        node: text(&pod["spec"]["nodeName"]),
        phase: text(&pod["status"]["phase"]),
        is_deleted: !pod["metadata"]["deletionTimestamp"].is_null(),
    };
    list["items"].as_array().expect("items").iter().map(shown).collect()
}

#[test]
fn pods_of_an_edge_that_is_away_stay_and_those_to_be_evicted_are_replaced() {
    const NODES: [&str; 2] = ["gw-1", "gw-2"];
    let (cluster, mut fleet) = start(impatient(), &NODES);
    let link = Proxy::start(fleet.hub_address("hub"));
    fleet.add_edge_with("gw-1", &[link.address()], &["--insecure-loopback"]);
    fleet.add_edge("gw-2", &["hub"]);
    wait_until_ready(&fleet, &cluster, &NODES);
    // The scheduler places all of them on the node that will be away.
    kubectl(&cluster, &["cordon", "gw-2"]);
    create(&cluster, &deployment("kept", &json!({})));
    create(&cluster, &deployment("stopped", &json!({})));
    create(&cluster, &deployment("moved", &json!({"headwater/offline": "evict"})));
    let running = |app: &str| {
        fleet.wait_for(app, |_| match &pods(&cluster, app)[..] {
            [pod] if pod.phase == "Running" && pod.node == "gw-1" => Some(pod.clone()),
            _ => None,
        })
    };
    let [kept, stopped, moved] = ["kept", "stopped", "moved"].map(running);
    kubectl(&cluster, &["uncordon", "gw-2"]);

    link.set(Conditions { closed: true, ..Conditions::default() });
    link.cut();
    fleet.wait_for("the node unknown", |_| (ready(&cluster, "gw-1") == "Unknown").then_some(()));
    fleet.wait_for("a pod in place of the one that is evicted", |_| {
        let pods = pods(&cluster, "moved");
        let is_former = |pod: &&Shown| pod.uid == moved.uid && pod.is_deleted;
        let is_new = |pod: &&Shown| pod.node == "gw-2" && pod.phase == "Running";
        let found = [pods.iter().find(is_former), pods.iter().find(is_new)];
        found.iter().all(Option::is_some).then_some(())
    });
    // A person deletes a Deployment meanwhile: its pod stays until its node confirms the end.
    kubectl(&cluster, &["delete", "deployment", "stopped", "--wait=false"]);
    fleet.wait_for("the deletion of a pod", |_| {
        pods(&cluster, "stopped")
            .iter()
            .any(|pod| pod.uid == stopped.uid && pod.is_deleted)
            .then_some(())
    });
    assert_eq!(
        pods(&cluster, "kept"),
        std::slice::from_ref(&kept),
        "it is neither evicted nor doubled"
    );

    link.set(Conditions::default());
    wait_until_ready(&fleet, &cluster, &NODES);
    fleet.wait_for("the end of what was deleted", |_| {
        let (moved_now, stopped_now) = (pods(&cluster, "moved"), pods(&cluster, "stopped"));
        let is_replaced = moved_now.len() == 1 && moved_now[0].uid != moved.uid;
        (is_replaced && stopped_now.is_empty()).then_some(())
    });
    assert_eq!(pods(&cluster, "kept"), [kept]);
    fleet.wait_for("one pod at the edge", |fleet| {
        let at_edge = fleet.part("gw-1").text(&["get", "pods", "-o", "name"])?;
        (at_edge.lines().count() == 1).then_some(())
    });
    check_rights(&cluster);
}
