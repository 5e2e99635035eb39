//! An API server whose priority and fairness has one seat for the controller and its nodes, and no queue.

use std::collections::BTreeMap;
use std::time::Instant;

use headwater_cluster::{ControlPlaneSettings, Part};
use serde_json::{Value, json};

use super::edge::{Edge, warning};
use super::observer::Observer;
use super::{Api, SOON, SharedCluster};
use crate::world::{Kubectl as _, POLL, World, pod};

/// The nodes, and the pods of each.
const NODES: usize = 3;
const PODS: usize = 12;

/// The level with one seat: its share of the requests of the whole server is less than one.
fn one_seat() -> [Value; 2] {
    let limited = json!({
        "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    });
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "one-seat"}, "spec": {"type": "Limited", "limited": limited},
    });
    let account = json!({"namespace": "headwater-system", "name": "headwater-controller"});
    let rules = json!({
        "subjects": [
            {"kind": "Group", "group": {"name": "system:nodes"}},
            {"kind": "ServiceAccount", "serviceAccount": account},
        ],
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
            "namespaces": ["*"],
        }],
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "one-seat"},
        "spec": {
            "priorityLevelConfiguration": {"name": "one-seat"}, "matchingPrecedence": 10,
            "rules": [rules],
        },
    });
    [level, schema]
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_seat_leases_go_first_and_each_status_is_written_once() {
    let flags = ["--max-requests-inflight=40", "--max-mutating-requests-inflight=20"];
    let cluster = SharedCluster::start(ControlPlaneSettings {
        parts: Vec::new(),
        flags: BTreeMap::from([(Part::ApiServer, flags.map(ToOwned::to_owned).to_vec())]),
        ..ControlPlaneSettings::default()
    });
    let (api, world) = (Api::of(&cluster.kubeconfig).await, World::new());
    let running = world.start_with_sink(cluster.account()).await;
    running.reconciled().await;
    let mut nodes = Vec::new();
    for node in 0..NODES {
        let edge = Edge::connect(&world, &running, &format!("seat-{node}")).await;
        let name = edge.name.as_str();
        api.node(name).await;
        let names: Vec<String> = (0..PODS).map(|pod| format!("{name}-{pod}")).collect();
        let pods: Vec<_> = names.iter().map(|pod_name| pod(pod_name, name, "settings")).collect();
        cluster.create(&pods);
        let observer = Observer::start(&api, name).await;
        let mut pods = Vec::new();
        for name in names {
            let uid = api.uid(&name).await;
            pods.push((name, uid));
        }
        nodes.push((edge, pods, observer));
    }
    cluster.create(&one_seat());
    // Statuses of all pods and Events, until the storm is there and the Lease of each node was renewed in it.
    let mut leases = Vec::new();
    for (edge, ..) in &nodes {
        let lease = api.wait_for("leases", edge.name.as_str(), "there", |lease| !lease.is_null());
        leases.push(lease.await["spec"]["renewTime"].clone());
    }
    let (end, mut number) = (Instant::now() + SOON, 0);
    loop {
        number += 1;
        for (edge, pods, observer) in &nodes {
            for (name, uid) in pods {
                observer.report(edge, name, uid, number).await;
            }
            let (name, uid) = &pods[0];
            let event = warning(name, uid, 1);
            edge.report_event(&format!("{name}.{number}"), &event).await;
        }
        let mut renewed = 0;
        for ((edge, ..), before) in nodes.iter().zip(&leases) {
            let lease = api.get("leases", edge.name.as_str()).await;
            renewed += usize::from(lease["spec"]["renewTime"] != *before);
        }
        let is_storm = running.requests("patch pods/status", "throttled") > 0;
        if is_storm && renewed == NODES {
            break;
        }
        assert!(Instant::now() < end, "{renewed} Leases renewed, a storm: {is_storm}");
        let behind = running.behind();
        assert!(behind <= NODES * (PODS + 1), "{behind} objects are behind");
        tokio::time::sleep(POLL).await;
    }
    for (.., observer) in &nodes {
        observer.settle().await;
    }
    // Each write has changed something: none is repeated that was done.
    let shown = nodes.iter().map(|(.., observer)| observer.statuses()).sum();
    running.requested("patch pods/status", "done", shown).await;
    // While requests wait for each other, a Lease waits for no status: it is refused only by the first wave.
    let refused = running.requests("patch leases", "throttled");
    assert!(refused <= NODES as u64, "{refused} renewals of Leases are refused");
    cluster.stop(running).await;
}
