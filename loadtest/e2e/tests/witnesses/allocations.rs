//! Allocations of the edge, from the bytes of a hub's message to the notification of a watch.
//!
//! The messages of a hub to one edge are sent to another edge that is alone on its thread. Allocations of
//! RocksDB and of the sockets are not counted.

use allocation_counter::AllocationInfo;
use bytes::Bytes;
use headwater_proto::replication::HubMessage;
use headwater_proto::replication::hub_message::Message;
use prost::Message as _;
use tokio::sync::mpsc;

use crate::edge::{WatchedEdge, rest, runtime};
use crate::figure::{Figure, each, witness};
use crate::scene::{Cost, Course, cost};
use crate::wire::to_player;

const EVENTS: u64 = 500;

/// The message is decoded and prepared, the patch applied, the row written in its own batch; then the
/// watch is notified. The object itself has 2 KiB, and once more with its resource version for the watch.
const ALONE: Figure =
    Figure { what: "allocations an event that comes alone", is: 51.0, within: 0.02 };
const ALONE_BYTES: Figure =
    Figure { what: "bytes allocated an event that comes alone", is: 20_472.0, within: 0.05 };
/// What each has for itself: its texts, the object, with its version too, the row. All else is shared.
const TOGETHER: Figure = Figure { what: "allocations an event of a burst", is: 20.7, within: 0.02 };
const TOGETHER_BYTES: Figure =
    Figure { what: "bytes allocated an event of a burst", is: 9_764.0, within: 0.05 };

/// The allocations of an edge that receives the messages of this course.
fn allocated(course: Course) -> AllocationInfo {
    let Cost { messages: sent, before, .. } = cost(course, EVENTS);
    let before: Vec<Bytes> = before.down.into_iter().filter(opens).collect();
    let sent = sent.down;
    let (at_once, messages) = match course {
        Course::OneByOne => (1, 1),
        Course::Burst => (EVENTS, sent.len()),
    };
    let turns = sent.chunks(messages).len() as u64;
    assert_eq!(turns * at_once, EVENTS, "an event a message, where they come alone");
    let runtime = runtime();
    let (mut edge, play) = runtime.block_on(async {
        let (play, played) = mpsc::channel::<Bytes>(sent.len().max(1));
        let mut edge = WatchedEdge::start(to_player(played)).await;
        for message in before {
            play.send(message).await.expect("the edge receives");
        }
        edge.is_complete().await;
        rest().await;
        (edge, play)
    });
    allocation_counter::measure(|| {
        runtime.block_on(async {
            for chunk in sent.chunks(messages) {
                for message in chunk {
                    play.send(message.clone()).await.expect("the edge receives");
                }
                edge.shows(at_once).await;
                rest().await;
            }
        });
    })
}

/// Whether an edge needs this message to have the state so far. Answers to reports belong to the other
/// edge.
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
