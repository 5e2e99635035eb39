//! Terminations leave the upstream log when their pods are gone.

use headwater_event::upstream::encode_termination_removed;
use headwater_store::{Batch, Durability, Free, Table, TableId};

use super::*;
use crate::picture::tables::EARLIER_TERMINATIONS;

impl World {
    /// The values of the records in the upstream log under the key of the termination of `pod` at
    /// node `a`, in order; `None` for a tombstone.
    async fn logged_terminations(&self, pod: &str) -> Vec<Option<Bytes>> {
        let key = format!("node/a d/podtermination/{pod}");
        let records = records_of(&self.upstream).await.into_iter();
        let of_pod = records.filter(|stored| stored.record.key == key);
        of_pod.map(|stored| stored.record.value).collect()
    }

    /// Node `a` reports that the containers of `d/pod/POD` have stopped.
    async fn terminate(&self, seq: u64, pod: &str, uid: &str) {
        let pod = format!("d/pod/{pod}").parse().expect("a key");
        self.report("a", seq, ReportBody::PodTerminated { pod, uid: uid.to_owned() }).await;
    }
}

fn terminated() -> Option<Bytes> {
    Some(Bytes::from_static(b"{}"))
}

fn dying(name: &str) -> Object {
    let mut dying = pod_value(name, "c");
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    object(dying)
}

#[tokio::test]
async fn the_log_keeps_no_termination_of_a_pod_that_is_gone() {
    let world = World::new();
    let running = world.start().await;
    running.list([dying("p"), pod("q", "c"), config("c", 1, "x")]).await;
    world.terminate(1, "p", "u-p").await;
    world.terminate(2, "q", "u-q").await;
    until_true("the tombstone", async || world.logged_terminations("p").await.len() == 2).await;
    assert_eq!(world.logged_terminations("p").await, [terminated(), None]);
    until_true("an empty picture", async || {
        let shown = running.controller.picture().terminations().expect("readable");
        shown.iter().all(|ended| ended.pod.name() == "q")
    })
    .await;
    running.controller.stop().await;
    world.weeks_pass();
    assert_eq!(world.logged_terminations("p").await, []);
    assert_eq!(world.logged_terminations("q").await, [terminated()], "its pod is there");
}

#[tokio::test]
async fn what_an_earlier_version_left_in_the_log_goes_and_only_the_writer_removes_it() {
    let world = World::new();
    world.terminate(1, "p", "u-p").await;
    let running = world.start().await;
    running.folds("a").await;
    assert_eq!(world.logged_terminations("p").await, [terminated()], "nothing is listed");
    running.controller.stop().await;
    let running = world.start().await;
    // Another pod has the name.
    let mut other = pod_value("p", "c");
    other["metadata"]["uid"] = "u-other".into();
    running.list([object(other)]).await;
    until_true("the tombstone", async || world.logged_terminations("p").await.len() == 2).await;
    assert_eq!(world.logged_terminations("p").await, [terminated(), None]);
    running.controller.stop().await;
}

#[tokio::test]
async fn the_termination_of_a_later_pod_outlives_the_tombstone_of_the_earlier_one() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    world.terminate(5, "p", "u-p").await;
    let node: NodeName = "a".parse().expect("a name");
    let id = ReportId { incarnation: Incarnation(1), boot: 1, seq: 4 };
    let late = encode_termination_removed(&node, pod_key(), "u-earlier".to_owned(), id);
    let late = late.expect("a record");
    let record =
        Record { key: late.key, value: late.value, header: late.header, traceparent: None };
    world.append_upstream(&node, record).await;
    until_true("the repair", async || world.logged_terminations("p").await.len() == 3).await;
    assert_eq!(world.logged_terminations("p").await, [terminated(), None, terminated()]);
    let node = "a".parse().expect("a name");
    let shown = running.controller.picture().termination(&node, &pod_key()).expect("readable");
    assert_eq!(shown.as_deref(), Some("u-p"));
    running.controller.stop().await;
}

#[tokio::test]
async fn a_removal_of_unknown_outcome_is_made_again() {
    let world = World::new();
    let (source, script) = script();
    let upstream = world.upstream.handle();
    let running = world.start_reading(upstream.clone(), vec![script], source).await;
    running.list([config("c", 1, "x")]).await;
    upstream.inject_fault(AppendFault::UnknownLost);
    world.terminate(1, "p", "u-p").await;
    until_true("the tombstone", async || world.logged_terminations("p").await.len() == 2).await;
    assert_eq!(world.logged_terminations("p").await, [terminated(), None]);
    running.controller.stop().await;
}

#[tokio::test]
async fn a_node_does_not_end_the_pod_of_another_node() {
    let world = World::new();
    let running = world.start().await;
    running.list([dying("p"), dying("q"), config("c", 1, "x")]).await;
    let pod: ResourceKey = "d/pod/p".parse().expect("a key");
    world.report("b", 1, ReportBody::PodTerminated { pod, uid: "u-p".to_owned() }).await;
    running.folds("b").await;
    // The sink takes the changes in order.
    world.terminate(1, "q", "u-q").await;
    let left = |pod: &'static str| {
        let world = &world;
        async move { world.events_in("node/a").await.contains(&format!("-d/pod/{pod}")) }
    };
    until_true("the removal of q", async || left("q").await).await;
    assert!(!left("p").await, "node b does not run it");
    // The report of the other node does not hide that of its own.
    world.terminate(2, "p", "u-p").await;
    until_true("the removal of p", async || left("p").await).await;
    running.controller.stop().await;
}

#[tokio::test]
async fn a_picture_that_does_not_know_the_nodes_of_its_terminations_is_folded_anew() {
    let world = World::new();
    let running = world.start().await;
    world.terminate(1, "p", "u-p").await;
    running.folds("a").await;
    running.controller.stop().await;
    // As an earlier version left it: without the node.
    let earlier: Table<ResourceKey, String, Free> = Table::new(TableId::Terminations);
    let present: Table<(NodeName, ResourceKey), String, Free> =
        Table::new(TableId::NodeTerminations);
    let mut batch = Batch::new();
    batch.delete(&present, &("a".parse().expect("a name"), pod_key()));
    batch.put(&earlier, &pod_key(), &"u-p".to_owned());
    batch.write(&*world.picture, Durability::Buffered).expect("written");

    // What a partition that is away has could not be folded again.
    let of_node = StreamId::node(&"a".parse().expect("a name")).partition(2);
    let other = Partition(1 - of_node.0);
    world.upstream.set_partition_fault(other, Some(PartitionFault::NoLeader));
    let running = world.start().await;
    until_true("a partition that is away", async || {
        !running.controller.picture_troubles().borrow().is_empty()
    })
    .await;
    assert!(EARLIER_TERMINATIONS.rows(&*world.picture).next().is_some());

    world.upstream.set_partition_fault(other, None);
    running.list([dying("p"), pod("q", "c")]).await;
    until_true("the removal", async || {
        world.events_in("node/a").await.contains(&"-d/pod/p".to_owned())
    })
    .await;
    assert!(EARLIER_TERMINATIONS.rows(&*world.picture).next().is_none());
    running.controller.stop().await;
}
