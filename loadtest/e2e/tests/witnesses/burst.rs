//! Events that come all at once: they share pushes, batches and syncs.

use crate::figure::{Figure, each, witness};
use crate::scene::{Course, cost};
use crate::wire::Messages;

/// Fewer than a hub sends as such.
const EVENTS: u64 = 1_000;

/// They fit one batch.
const WRITES: Figure = Figure { what: "writes of the edge's state", is: 1.0, within: 0.0 };
/// One lets all of them out.
const SYNCS: Figure = Figure { what: "syncs of the edge's state", is: 1.0, within: 0.0 };
/// The base of the first patch of each pod; the next patch of the same pod finds it in the batch.
const READS: Figure = Figure { what: "reads of the edge's state an event", is: 0.064, within: 0.0 };

/// Changes are no reports, and lead to none.
const OUTBOX: Figure = Figure { what: "writes of the outbox", is: 0.0, within: 0.0 };
/// The log hands on 512 records at a time, and what is derived from them fills a batch of 1 MiB.
const HUB_WRITES: Figure = Figure { what: "writes of the hub's fold", is: 3.0, within: 0.0 };

/// As of one that comes alone, but a batch is asked before the store.
const HUB_READS: Figure =
    Figure { what: "reads of the hub's fold an event", is: 0.456, within: 0.02 };
/// A push holds objects of 1 MiB, as they are when they are whole: these are a little less than two.
const PUSHES: Figure = Figure { what: "messages to the edge", is: 2.0, within: 0.0 };
/// The acknowledgement follows within 250 ms; the scene ends before.
const ACKS: Figure = Figure { what: "messages to the hub", is: 0.0, within: 0.0 };

/// What the patches have in common travels once.
const DOWN: Figure = Figure { what: "bytes to the edge an event", is: 4.401, within: 0.02 };

#[test]
fn a_thousand_events_at_once_cost_this() {
    let cost = cost(Course::Burst, EVENTS);
    println!("{:?}\n{:?}\n{:?}", cost.edge, cost.outbox, cost.hub);
    let all = |count| each(count, 1);
    let of = |count| each(count, EVENTS);
    witness([
        (WRITES, all(cost.edge.writes)),
        (SYNCS, all(cost.edge.syncs)),
        (READS, of(cost.edge.reads())),
        (OUTBOX, all(cost.outbox.writes)),
        (HUB_WRITES, all(cost.hub.writes)),
        (HUB_READS, of(cost.hub.reads())),
        (PUSHES, all(cost.messages.down.len() as u64)),
        (ACKS, all(cost.messages.up.len() as u64)),
        (DOWN, of(Messages::bytes(&cost.messages.down))),
    ]);
}
