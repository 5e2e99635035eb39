//! Nodes that are gone for long, of which an earlier version stored the position, or the log has none.

use headwater_store::position::CURSORS;
use headwater_store::{Batch, Durability, Json};

use super::*;
use crate::picture::tables::{LoggedProgress, NODE_PROGRESS};

const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;

/// The time between two looks at the nodes.
const LOOK_INTERVAL: Duration = Duration::from_mins(1);

fn node(name: &str) -> NodeName {
    name.parse().expect("a name")
}

impl World {
    async fn contact(&self, name: &str) {
        self.append_upstream(&node(name), position(&node(name), Vec::new())).await;
    }

    fn position_of(&self, name: &str) -> Option<LoggedProgress> {
        let row = NODE_PROGRESS.get(&*self.picture, &node(name)).expect("readable");
        row.map(|Json(logged)| logged)
    }

    /// Stores the position of a node as an earlier version did, without its time.
    fn store_as_before(&self, name: &str) {
        let logged = self.position_of(name).expect("it is stored");
        let partition = StreamId::node(&node(name)).partition(2);
        let cursor = CURSORS.get(&*self.picture, &partition).expect("readable").expect("stored");
        let mut batch = Batch::new();
        let earlier = LoggedProgress { logged_ms: None, ..logged };
        batch.put(&NODE_PROGRESS, &node(name), &Json(earlier));
        batch.commit(&*self.picture, &[cursor], Durability::Synced).expect("stored");
    }
}

#[tokio::test]
async fn a_node_whose_position_has_no_time_is_forgotten_so_long_after_the_first_look() {
    let world = World::new();
    let running = world.start().await;
    for name in ["b", "c"] {
        world.contact(name).await;
        running.folds(name).await;
    }
    running.controller.stop().await;
    world.store_as_before("b");
    let logged_ms = || world.position_of("b").expect("it is known").logged_ms;
    assert_eq!(logged_ms(), None);

    // A controller that starts looks at the nodes with the first record that it reads.
    let running = world.start().await;
    running.list([]).await;
    until_true("a time", async || {
        world.contact("c").await;
        logged_ms().is_some()
    })
    .await;
    running.controller.stop().await;

    world.upstream.advance_clock(WEEK_MS + 1);
    let running = world.start().await;
    running.list([]).await;
    until_true("b to be forgotten", async || {
        world.contact("c").await;
        world.position_of("b").is_none()
    })
    .await;
    assert!(world.position_of("c").is_some(), "it was there today");
    running.controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_of_which_only_statuses_are_left_is_forgotten_so_long_after_the_first_look() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    for name in ["a", "b"] {
        world.report(name, 1, status("Running")).await;
        running.folds(name).await;
    }
    running.controller.stop().await;
    world.upstream.advance_clock(WEEK_MS + 1);
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let statuses = |name: &str| {
        let rows = PodStatusFold::statuses(&*world.picture, &node(name), None, usize::MAX);
        rows.expect("readable").len()
    };
    // A look dates the node, however long ago it left.
    let look = async || {
        tokio::time::advance(2 * LOOK_INTERVAL).await;
        world.upstream.advance_clock(1);
        let now_ms = world.upstream.now_ms();
        world.contact("c").await;
        let is_read = || world.position_of("c").is_some_and(|at| at.logged_ms == Some(now_ms));
        until_true("a look", async || is_read()).await;
    };
    look().await;
    look().await;
    assert_eq!(statuses("b"), 1, "it may be back soon");
    world.upstream.advance_clock(WEEK_MS + 1);
    look().await;
    assert_eq!(["a", "b"].map(statuses), [1, 0], "a has a stream");
    running.controller.stop().await;
}
