//! Events: those of an edge are Events of the cluster, after everything else.

use std::time::Instant;

use headwater_event::ResourceKey;
use serde_json::{Value, json};

use super::edge::{Edge, running_status, warning};
use super::{Api, CLUSTER, Fixture, SOON};
use crate::world::{Kubectl as _, POLL, Running, object};

/// Events that a hostile edge sends at once.
const FLOOD: usize = 10_000;

/// Waits until the API has an Event that happened so many times.
async fn counted(api: &Api, name: &str, count: u32) -> Value {
    api.wait_for("event", name, "counted", |event| event["count"] == count).await
}

/// Waits until an Event has left the picture, and so the log.
async fn settled(running: &Running, name: &str) {
    let key: ResourceKey = format!("default/event/{name}").parse().expect("a key");
    let end = Instant::now() + SOON;
    while running.controller.picture().reported_event(&key).expect("readable").is_some() {
        assert!(Instant::now() < end, "{name} is still in the picture");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warning_of_an_edge_is_an_event_of_the_cluster_whose_count_moves() {
    let Fixture { api, world: _world, running, edge } = Fixture::start("warns").await;
    let uid = api.create_pod("warns", "warns").await;
    let mut normal = warning("warns", &uid, 1);
    normal["type"] = "Normal".into();
    edge.report_event("warns.normal", &normal).await;
    edge.report_event("warns.1", &warning("warns", &uid, 1)).await;
    let event = counted(&api, "warns.1", 1).await;
    assert_eq!(event["involvedObject"]["uid"], uid);
    assert_eq!(event["source"], json!({"component": "edged", "host": "warns"}));
    assert_eq!(event["type"], "Warning");
    settled(&running, "warns.1").await;
    edge.report_event("warns.1", &warning("warns", &uid, 3)).await;
    counted(&api, "warns.1", 3).await;
    // The edge has started again, and counts from one; the cluster has forgotten another one.
    settled(&running, "warns.1").await;
    edge.report_event("warns.1", &warning("warns", &uid, 1)).await;
    counted(&api, "warns.1", 1).await;
    edge.report_event("warns.2", &warning("warns", &uid, 7)).await;
    counted(&api, "warns.2", 7).await;
    running.requested("create events", "done", 2).await;
    running.requested("patch events", "done", 2).await;
    assert!(api.get("event", "warns.normal").await.is_null());
    // About the Node itself, and about a pod that is gone.
    let mut about_node = warning("warns", "", 1);
    about_node["involvedObject"] = json!({"kind": "Node", "name": "warns"});
    edge.report_event("warns.node", &about_node).await;
    let event = counted(&api, "warns.node", 1).await;
    assert_eq!(event["involvedObject"]["uid"], api.node("warns").await["metadata"]["uid"]);
    CLUSTER.run(&["delete", "pod", "warns", "--wait=false"]);
    edge.report_end("warns", &uid).await;
    api.gone("warns").await;
    edge.report_event("warns.last", &warning("warns", &uid, 1)).await;
    counted(&api, "warns.last", 1).await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_events_of_an_edge_delay_no_other_and_those_of_others_objects_are_refused() {
    let Fixture { api, world, running, edge: hostile } = Fixture::start("floods").await;
    let calm = Edge::connect(&world, &running, "calm").await;
    api.node("calm").await;
    let own = api.create_pod("floods", "floods").await;
    let theirs = api.create_pod("calm", "calm").await;
    // An Event of another has the name that the hostile edge chooses.
    let mut taken = warning("floods", &own, 5);
    taken["source"] = json!({"component": "kubelet", "host": "elsewhere"});
    CLUSTER.create(&[object("v1", "Event", "taken", taken)]);
    hostile.report_event("stolen", &warning("calm", &theirs, 1)).await;
    running.sink_trouble("Event default/stolen of node floods is not written").await;
    hostile.report_event("taken", &warning("floods", &own, 9)).await;
    running.sink_trouble("Event default/taken of node floods is not written").await;
    assert_eq!(api.get("event", "taken").await["count"], 5);
    assert!(api.get("event", "stolen").await.is_null());

    let flood = (0..FLOOD).map(|number| (format!("floods.{number}"), warning("floods", &own, 1)));
    hostile.report_events(flood).await;
    calm.report_status("calm", &theirs, &running_status("10.2.11.1")).await;
    calm.report_event("calm.1", &warning("calm", &theirs, 1)).await;
    api.running("calm").await;
    counted(&api, "calm.1", 1).await;
    hostile.report_status("floods", &own, &running_status("10.2.11.2")).await;
    api.running("floods").await;
    // All of that comes while next to nothing of the flood is written, and the picture keeps some of it.
    let written = running.requests("create events", "done");
    assert!(written < 100, "{written} Events are written");
    let kept = running.controller.picture().events(&hostile.name).expect("readable").len();
    assert!(kept <= 256, "{kept} Events of the node are in the picture");
    CLUSTER.stop(running).await;
}
