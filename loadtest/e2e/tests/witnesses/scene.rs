//! A hub and its edge in step, and what events cost them.

use crate::cloud::Cloud;
use crate::counted::EngineCounts;
use crate::edge::{WatchedEdge, rest, runtime};
use crate::wire::{Messages, Tape, to_hub};

/// How the events come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// Each when the one before was shown, and everything that it led to is done.
    OneByOne,
    /// All in one append.
    Burst,
}

/// The operations of the databases and the messages for some events.
pub(crate) struct Cost {
    pub(crate) edge: EngineCounts,
    pub(crate) outbox: EngineCounts,
    pub(crate) hub: EngineCounts,
    pub(crate) messages: Messages,
    /// The messages before it, from the beginning.
    pub(crate) before: Messages,
}

/// What `events` changes cost that come on this course.
pub(crate) fn cost(course: Course, events: u64) -> Cost {
    runtime().block_on(async {
        let mut cloud = Cloud::start().await;
        let tape = Tape::default();
        rest().await;
        let mut edge = WatchedEdge::start(to_hub(cloud.hub.clone(), tape.clone())).await;
        edge.is_complete().await;
        rest().await;

        let before = tape.messages();
        let stores = [edge.state.clone(), edge.outbox.clone(), cloud.store.clone()];
        let asked = stores.each_ref().map(|store| store.asked());
        let (turns, at_once) = match course {
            Course::OneByOne => (events, 1),
            Course::Burst => (1, events),
        };
        for _ in 0..turns {
            cloud.append_changes(at_once).await;
            edge.shows(at_once).await;
            rest().await;
        }
        let [edge, outbox, hub] = [0, 1, 2].map(|of| stores[of].asked() - asked[of]);
        Cost { edge, outbox, hub, messages: tape.messages().since(&before), before }
    })
}
