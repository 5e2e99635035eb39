//! Allocations of the edge: from the bytes of what a hub said to what a watch is told.
//!
//! What a hub said to an edge is said to another one again, with nobody else on its thread. RocksDB
//! allocates for itself and is not counted, nor is what the sockets take.

use allocation_counter::AllocationInfo;
use bytes::Bytes;
use headwater_proto::replication::HubMessage;
use headwater_proto::replication::hub_message::Message;
use prost::Message as _;
use tokio::sync::mpsc;

use crate::edge::{Watched, rest, runtime};
use crate::figure::{Figure, each, witness};
use crate::scene::{Cost, Course, cost};
use crate::wire::to_player;

const EVENTS: u64 = 500;

/// Its message decoded and prepared, its patch applied, its row in a batch of its own; then it is told,
/// and acknowledged. The object itself has 2 KiB.
const ALONE: Figure =
    Figure { what: "allocations an event that comes alone", is: 53.0, within: 0.02 };
const ALONE_BYTES: Figure =
    Figure { what: "bytes allocated an event that comes alone", is: 18_821.0, within: 0.05 };
/// What each has for itself: its texts, the object, the row. All else is shared.
const TOGETHER: Figure = Figure { what: "allocations an event of a burst", is: 17.8, within: 0.02 };
const TOGETHER_BYTES: Figure =
    Figure { what: "bytes allocated an event of a burst", is: 7_586.0, within: 0.05 };

/// What it takes to be told what a hub said on this course.
fn allocated(course: Course) -> AllocationInfo {
    let Cost { said, before, .. } = cost(course, EVENTS);
    let before: Vec<Bytes> = before.down.into_iter().filter(opens).collect();
    let said = said.down;
    let (at_once, messages) = match course {
        Course::OneByOne => (1, 1),
        Course::Burst => (EVENTS, said.len()),
    };
    let turns = said.chunks(messages).len() as u64;
    assert_eq!(turns * at_once, EVENTS, "an event a message, where they come alone");
    let runtime = runtime();
    let (mut edge, play) = runtime.block_on(async {
        let (play, played) = mpsc::channel::<Bytes>(said.len().max(1));
        let mut edge = Watched::start(to_player(played)).await;
        for message in before {
            play.send(message).await.expect("it hears");
        }
        edge.is_complete().await;
        rest().await;
        (edge, play)
    });
    allocation_counter::measure(|| {
        runtime.block_on(async {
            for said in said.chunks(messages) {
                for message in said {
                    play.send(message.clone()).await.expect("it hears");
                }
                edge.shows(at_once).await;
                rest().await;
            }
        });
    })
}

/// Whether an edge needs to hear this to have what was there before. What it was told of its own
/// reports is another edge's matter.
fn opens(message: &Bytes) -> bool {
    let message = HubMessage::decode(message.clone()).expect("it was sent");
    matches!(message.message, Some(Message::Welcome(_) | Message::Push(_)))
}

#[test]
fn an_event_that_comes_alone_is_applied_with_so_many() {
    let taken = allocated(Course::OneByOne);
    let [count, bytes] = [taken.count_total, taken.bytes_total].map(|it| each(it, EVENTS));
    witness([(ALONE, count), (ALONE_BYTES, bytes)]);
}

#[test]
fn an_event_of_a_burst_is_applied_with_so_many() {
    let taken = allocated(Course::Burst);
    let [count, bytes] = [taken.count_total, taken.bytes_total].map(|it| each(it, EVENTS));
    witness([(TOGETHER, count), (TOGETHER_BYTES, bytes)]);
}
