//! Events that come alone: each is pushed, made durable, shown and acknowledged by itself.

use crate::figure::{Figure, each, witness};
use crate::scene::{Course, cost};
use crate::wire::Messages;

/// Each one waits for a sync.
const EVENTS: u64 = 500;

/// A batch for each: the object and the position, whatever is derived from them.
const WRITES: Figure = Figure { what: "writes of the edge's state an event", is: 1.0, within: 0.0 };

/// A watcher waits for each event, so that it is synced at once, and once.
const SYNCS: Figure = Figure { what: "syncs of the edge's state an event", is: 1.0, within: 0.0 };

/// A patch wants its base; what else a fold must know of an entry is held in memory.
const READS: Figure = Figure { what: "reads of the edge's state an event", is: 1.0, within: 0.0 };

/// A change is no report, and leads to none.
const OUTBOX: Figure = Figure { what: "writes of the outbox", is: 0.0, within: 0.0 };

/// The event, all that is derived from it, and how far the log is read: one batch.
const HUB_WRITES: Figure =
    Figure { what: "writes of the hub's fold an event", is: 1.0, within: 0.0 };

/// To fold it: what it is a patch of, and the key's last change, by its key and by its seq. To push
/// it: none, for how a stream ends is remembered.
const HUB_READS: Figure = Figure { what: "reads of the hub's fold an event", is: 3.0, within: 0.0 };
const PUSHES: Figure = Figure { what: "messages to the edge an event", is: 1.0, within: 0.0 };

/// The events come a millisecond apart, and an acknowledgement covers those of 250 ms.
const ACKS: Figure = Figure { what: "messages to the hub an event", is: 0.004, within: 0.0 };

/// Eight digits change in 2 KiB: the patch, and beside it the key, positions, the hash after it.
const DOWN: Figure = Figure { what: "bytes to the edge an event", is: 142.3, within: 0.02 };
/// Positions.
const UP: Figure = Figure { what: "bytes to the hub an event", is: 0.1, within: 0.02 };

#[test]
fn an_event_that_comes_alone_costs_this() {
    let cost = cost(Course::OneByOne, EVENTS);
    println!("{:?}\n{:?}\n{:?}", cost.edge, cost.outbox, cost.hub);
    let of = |count| each(count, EVENTS);
    witness([
        (WRITES, of(cost.edge.writes)),
        (SYNCS, of(cost.edge.syncs)),
        (READS, of(cost.edge.reads())),
        (OUTBOX, each(cost.outbox.writes, 1)),
        (HUB_WRITES, of(cost.hub.writes)),
        (HUB_READS, of(cost.hub.reads())),
        (PUSHES, of(cost.messages.down.len() as u64)),
        (ACKS, of(cost.messages.up.len() as u64)),
        (DOWN, of(Messages::bytes(&cost.messages.down))),
        (UP, of(Messages::bytes(&cost.messages.up))),
    ]);
}
