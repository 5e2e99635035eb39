//! The writer of the log writes to the API, while it is certainly the only writer.

use std::time::Duration;

use headwater_event::Partition;
use headwater_log::PartitionFault;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::edge::{Edge, running_status};
use super::observer::Observer;
use super::{Api, CLUSTER};
use crate::world::{POLL, World};

/// How long a condition may take to hold.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn while_the_log_is_away_leases_are_renewed_and_nothing_else_is_written() {
    let (api, world) = (Api::connect().await, World::quick());
    let running = world.start_with_sink(CLUSTER.account()).await;
    running.reconciled().await;
    let edge = Edge::connect(&world, &running, "log-away").await;
    api.node("log-away").await;
    let uid = api.create_pod("log-away", "log-away").await;
    edge.report_status("log-away", &uid, &running_status("10.5.0.1")).await;
    api.running("log-away").await;
    let set_fault = |fault| {
        for partition in 0..2 {
            world.downstream.set_partition_fault(Partition(partition), fault);
        }
    };
    set_fault(Some(PartitionFault::Hangs));
    let may_write = || running.controller.progress().borrow().may_write(Instant::now());
    let end = Instant::now() + SOON;
    while may_write() {
        assert!(Instant::now() < end, "it still writes");
        tokio::time::sleep(POLL).await;
    }
    edge.report_status("log-away", &uid, &running_status("10.5.0.2")).await;
    let renewed = |lease: &Value| lease["spec"]["renewTime"].clone();
    let before = renewed(&api.get("leases", "log-away").await);
    let is_later = |lease: &Value| renewed(lease) != before;
    api.wait_for("leases", "log-away", "renewed", is_later).await;
    let shown = api.get("pod", "log-away").await;
    assert_eq!(shown["status"]["podIP"], "10.5.0.1");
    set_fault(None);
    let is_last = |pod: &Value| pod["status"]["podIP"] == "10.5.0.2";
    api.wait_for("pod", "log-away", "as it was last reported", is_last).await;
    CLUSTER.stop(running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_writes_nothing_and_takes_over_when_the_writer_is_killed() {
    let (api, world) = (Api::connect().await, World::quick());
    let first = world.start_with_sink(CLUSTER.account()).await;
    first.reconciled().await;
    let edge = Edge::connect(&world, &first, "taken").await;
    api.node("taken").await;
    let standby = world.beside();
    let second = standby.start_with_sink(CLUSTER.account()).await;
    let mut progress = second.controller.progress();
    let is_standby = progress.wait_for(|now| now.is_standby);
    timeout(SOON, is_standby).await.expect("it is a standby").expect("it runs");
    // The edge is seen by both, as by hubs that connect to the new writer before the old one ends.
    let seen = Edge::unreported(&standby, &second, "taken");
    let uid = api.create_pod("taken", "taken").await;
    let observer = Observer::start(&api, "taken").await;
    observer.report(&edge, "taken", &uid, 1).await;
    observer.settle().await;
    assert_eq!(second.requests("patch pods/status", "done"), 0);
    // Dropped, it releases nothing: a killed one.
    drop(first);
    observer.report(&edge, "taken", &uid, 2).await;
    observer.settle().await;
    second.requested("patch pods/status", "done", 1).await;
    drop(seen);
    CLUSTER.stop(second).await;
}
