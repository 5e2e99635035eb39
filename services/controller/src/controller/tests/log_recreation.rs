//! A log that is made again under a controller: the next life goes on where the one before ended.

use std::ops::ControlFlow;

use headwater_store::{Durability, Range, Read, WriteBatch};

use super::power_loss::PublishedProbe;
use super::*;
use crate::publisher::PublishedFold;
use crate::source::PublishedReader;

/// The published objects that a source receives when it starts now: keys and UIDs. It lists nothing,
/// as if the controller were killed before.
async fn published_objects(world: &World) -> Vec<(String, String)> {
    let (sender, mut receiver) = mpsc::channel(1);
    let (unused, _) = mpsc::channel(1);
    let running = world.start_with(vec![Box::new(PublishedProbe(sender))], unused).await;
    let found = receiver.recv().await.expect("it runs");
    running.controller.stop().await;
    found
}

#[tokio::test]
async fn what_was_published_keeps_its_uid_in_the_next_life_of_the_log() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), pod("q", "c")]).await;
    running.controller.stop().await;
    let published = published_objects(&world).await;
    assert_eq!(published.len(), 2, "{published:?}");

    world.downstream.recreate(2);
    // Nothing is in the new life yet, however often a controller dies before it lists.
    for _ in 0..2 {
        assert_eq!(published_objects(&world).await, published);
    }
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    running.controller.stop().await;
    let now = published_objects(&world).await;
    assert_eq!(now, published[..1], "a removed object does not keep its UID for ever");
}

#[tokio::test]
async fn a_reader_of_what_is_published_has_all_of_it_also_when_the_fold_is_dropped_meanwhile() {
    // More than are read at once.
    const PODS: usize = 600;
    let world = World::new();
    let running = world.start().await;
    running.list((0..PODS).map(|number| pod(&format!("p{number}"), "c"))).await;
    running.controller.stop().await;

    let mut found = BTreeSet::new();
    let fold = PublishedFold(world.published.clone());
    fold.read(&mut |key, _| {
        if found.is_empty() {
            let mut batch = WriteBatch::default();
            batch.delete_range(&b""[..], &b"\xff"[..]);
            world.published.write(batch, Durability::Buffered).expect("memory takes it");
        }
        found.insert(key);
        ControlFlow::Continue(())
    })
    .expect("memory is readable");
    assert_eq!(found.len(), PODS);
    let left = world.published.scan(&Range::all(), 1).expect("memory is readable");
    assert_eq!(left, []);
}

#[tokio::test]
async fn what_nodes_reported_to_a_log_that_was_lost_is_asked_for_again() {
    let world = World::new();
    let node: NodeName = "a".parse().expect("a name");
    world.append_upstream(&node, position(&node, Vec::new())).await;
    world.report("a", 1, status("Running")).await;
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    until_true("a status", async || phase(&running).await.as_deref() == Some("Running")).await;

    world.upstream.recreate(2);
    until_true("the question", async || is_asked(&world).await).await;
    let is_gone = async || phase(&running).await.as_deref() == Some("Pending");
    until_true("a picture without the lost reports", is_gone).await;
    world.report("a", 2, status("Running")).await;
    until_true("the answer", async || phase(&running).await.as_deref() == Some("Running")).await;
    running.controller.stop().await;
}

/// Whether a node was asked for all of its statuses.
async fn is_asked(world: &World) -> bool {
    let (events, _) = world.read().await;
    events.iter().any(|event| event.event.key() == Some(&EntryKey::SnapshotRequest))
}

#[tokio::test]
async fn a_node_whose_reports_the_log_has_lost_is_asked_again() {
    let world = World::new();
    let node: NodeName = "a".parse().expect("a name");
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    // A node that has just connected, or whose reports wait, reports by itself.
    let come = node_progress(Vec::new());
    let waits = NodeProgress { meta_sync_ms: 1, outbox_depth: 1, ..come.clone() };
    for progress in [&come, &waits] {
        world.append_upstream(&node, position_record(&node, progress)).await;
    }
    let has_seen =
        async || running.controller.picture().node_progress(0).is_ok_and(|s| !s.is_empty());
    until_true("its progress", has_seen).await;
    assert!(!is_asked(&world).await);
    let reported = NodeProgress { outbox_depth: 0, ..waits };
    world.append_upstream(&node, position_record(&node, &reported)).await;
    until_true("the question", async || is_asked(&world).await).await;
    running.controller.stop().await;
}

#[tokio::test]
async fn an_epoch_whose_claim_the_log_has_lost_is_not_claimed_again() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    let lost = running.controller.progress().borrow().epoch;
    running.controller.stop().await;
    let published = published_objects(&world).await;

    // The log metadata is left: edges may have all events of that claim.
    world.downstream.truncate(Partition(0), headwater_event::Offset(1));
    world.downstream.truncate(Partition(1), headwater_event::Offset(0));
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    assert!(running.controller.progress().borrow().epoch > lost);
    running.controller.stop().await;
    assert_eq!(published_objects(&world).await, published);
}
