//! Which starts of an edge had a Node, as every controller knows it from the log.

use headwater_event::EdgeStart;

use super::*;

fn node(name: &str) -> NodeName {
    name.parse().expect("a name")
}

fn start(boot: u64) -> EdgeStart {
    EdgeStart { incarnation: Incarnation(1), boot }
}

/// The names of two nodes whose reports are in partitions 0 and 1 of two.
fn nodes() -> [NodeName; 2] {
    [0, 1].map(|partition| {
        let names = (0..100).map(|number| node(&format!("n{number}")));
        let mut of = names.filter(|name| StreamId::node(name).partition(2) == Partition(partition));
        of.next().expect("one of a hundred")
    })
}

impl Running {
    fn registration(&self, node: &NodeName) -> Option<EdgeStart> {
        self.controller.picture().registration(node).expect("readable")
    }

    fn knows(&self, node: &NodeName) -> bool {
        self.controller.picture().has_caught_up(node).expect("readable")
    }

    fn note(&self, node: &NodeName, start: EdgeStart) {
        self.controller.picture().note_registration(node, start).expect("writable");
    }
}

impl World {
    async fn report_node(&self, node: &NodeName, seq: u64) {
        self.report(node.as_str(), seq, ReportBody::Node { object: "{}".into() }).await;
    }

    /// The partitions of the registrations in the log, in order.
    async fn registrations(&self) -> Vec<Partition> {
        let records = records_of(&self.upstream).await;
        let is_one = |recorded: &StoredRecord| {
            matches!(ReportKey::decode(&recorded.record.key), Ok((_, ReportKey::Registration)))
        };
        records.iter().filter(|it| is_one(it)).map(|it| it.partition).collect()
    }
}

#[tokio::test]
async fn a_controller_that_was_away_while_a_node_came_and_went_knows_its_registration() {
    let world = World::new();
    let running = world.start().await;
    running.list([]).await;
    let [first, second] = nodes();
    for name in [&first, &second] {
        world.report_node(name, 1).await;
        running.folds(name.as_str()).await;
    }
    running.note(&first, start(3));
    until_true("the record", async || world.registrations().await == [Partition(0)]).await;
    running.note(&first, start(2));
    running.note(&second, start(1));
    until_true("the record", async || world.registrations().await.len() == 2).await;
    running.controller.stop().await;
    world.weeks_pass();

    // A standby knows them, too: nothing is listed.
    let later = world.elsewhere();
    let running = later.start().await;
    until_true("what the log has", async || running.registration(&first) == Some(start(3))).await;
    until_true("what the log has", async || running.registration(&second) == Some(start(1))).await;
    running.list([]).await;
    running.note(&second, start(2));
    until_true("the next one", async || world.registrations().await.len() == 3).await;
    running.controller.stop().await;

    let running = later.start().await;
    assert_eq!(running.registration(&second), Some(start(2)));
    running.list([]).await;
    running.note(&first, start(4));
    until_true("the next one", async || world.registrations().await.len() == 4).await;
    running.controller.stop().await;
    assert_eq!(world.registrations().await.len(), 4, "what the log has is not appended again");
}

#[tokio::test]
async fn what_a_standby_noted_and_an_append_of_unknown_outcome_are_appended_by_the_writer() {
    let world = World::new();
    let [first, second] = nodes();
    let (source, script) = script();
    let upstream = world.upstream.handle();
    let running = world.start_reading(upstream.clone(), vec![script], source).await;
    world.report_node(&first, 1).await;
    running.folds(first.as_str()).await;
    running.note(&first, start(1));
    // What is noted is looked at before the next report is.
    world.report_node(&second, 1).await;
    running.folds(second.as_str()).await;
    assert!(world.registrations().await.is_empty(), "another controller may be the writer");
    upstream.inject_fault(AppendFault::UnknownLost);
    running.list([]).await;
    until_true("the record", async || world.registrations().await == [Partition(0)]).await;
    running.controller.stop().await;
}

#[tokio::test]
async fn a_log_that_is_made_again_gets_the_registrations_of_the_former_one() {
    let world = World::new();
    let [first, _] = nodes();
    let running = world.start().await;
    running.list([]).await;
    world.report_node(&first, 1).await;
    running.folds(first.as_str()).await;
    running.note(&first, start(1));
    until_true("the record", async || world.registrations().await.len() == 1).await;
    running.controller.stop().await;

    let running = world.elsewhere().start().await;
    until_true("what the log has", async || running.registration(&first) == Some(start(1))).await;
    running.list([]).await;
    world.upstream.recreate(2);
    until_true("the record", async || world.registrations().await.len() == 1).await;
    assert_eq!(running.registration(&first), Some(start(1)));
    running.controller.stop().await;
}

#[tokio::test]
async fn the_registration_of_a_node_is_known_once_its_partition_was_read() {
    let world = World::new();
    let [first, second] = nodes();
    for name in [&first, &second] {
        world.report_node(name, 1).await;
    }
    let running = world.start().await;
    for name in [&first, &second] {
        until_true("what the log has", async || running.knows(name)).await;
    }
    running.controller.stop().await;

    world.upstream.set_partition_fault(Partition(1), Some(PartitionFault::NoLeader));
    let running = world.start().await;
    until_true("the other partition", async || running.knows(&first)).await;
    assert!(!running.knows(&second), "another controller may have noted it meanwhile");
    world.upstream.set_partition_fault(Partition(1), None);
    until_true("the partition", async || running.knows(&second)).await;
    running.controller.stop().await;
}
