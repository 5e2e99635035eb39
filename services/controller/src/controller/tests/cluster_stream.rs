//! The shared stream goes to the nodes whose programs read it.

use super::*;

const WITH: &str = r#"["cluster"]"#;
const WITHOUT: &str = "[]";

impl World {
    fn auto() -> Self {
        Self { cluster_stream: ClusterStream::Auto, ..Self::new() }
    }

    /// What node `a` reports of its programs, in its position record.
    async fn consume(&self, consumes_cluster: Option<bool>) {
        let node: NodeName = "a".parse().expect("a name");
        let progress = NodeProgress { consumes_cluster, ..node_progress(Vec::new()) };
        self.append_upstream(&node, position_record(&node, &progress)).await;
    }

    /// Every assignment of streams to node `a`, in order.
    async fn assignments(&self) -> Vec<String> {
        let (events, _) = self.read().await;
        let of_node = events.into_iter().filter_map(|event| match event.event {
            Event::Applied(applied) if applied.key == EntryKey::Streams => Some(applied.object),
            _ => None,
        });
        of_node.map(|object| String::from_utf8(object.to_vec()).expect("text")).collect()
    }
}

#[tokio::test]
async fn a_node_has_the_shared_stream_while_its_programs_read_it() {
    let world = World::auto();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    assert_eq!(world.assignments().await, [WITHOUT]);
    world.consume(Some(true)).await;
    until_true("the stream", async || world.assignments().await == [WITHOUT, WITH]).await;
    // A node that has just connected has not reported yet.
    world.consume(None).await;
    world.consume(Some(true)).await;
    running.folds("a").await;
    world.consume(Some(false)).await;
    let expected = [WITHOUT, WITH, WITHOUT];
    until_true("the end of it", async || world.assignments().await == expected).await;
    running.controller.stop().await;
}

#[tokio::test]
async fn a_controller_that_starts_assigns_by_the_newest_positions() {
    for loses_its_disks in [false, true] {
        let world = World::auto();
        let running = world.start().await;
        running.list([pod("p", "c")]).await;
        for consumes_cluster in [true, false, true] {
            world.consume(Some(consumes_cluster)).await;
        }
        until_true("the stream", async || {
            world.assignments().await.last().is_some_and(|last| last == WITH)
        })
        .await;
        running.controller.stop().await;
        let before = world.assignments().await;
        let later = if loses_its_disks { world.elsewhere() } else { world.clone() };
        let running = later.start().await;
        running.list([pod("p", "c")]).await;
        // The fold counts its lag once it has read something.
        world.consume(Some(true)).await;
        running.folds("a").await;
        running.controller.stop().await;
        assert_eq!(world.assignments().await, before, "nothing has changed");
    }
}

#[tokio::test]
async fn a_node_without_a_report_keeps_the_shared_stream() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    running.controller.stop().await;
    assert_eq!(world.assignments().await, [WITH], "the setting was another");
    let world = World { cluster_stream: ClusterStream::Auto, ..world };
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    assert_eq!(world.assignments().await, [WITH]);
    world.consume(Some(false)).await;
    until_true("the end of it", async || world.assignments().await == [WITH, WITHOUT]).await;
    running.controller.stop().await;
}
