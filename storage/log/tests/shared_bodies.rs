//! One object that many streams of a partition hold: what the log takes for it, and what a reader
//! makes of it.

#[path = "support/owner.rs"]
mod owner;
#[path = "support/replica.rs"]
mod replica;

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{BodyAddress, BodyId, EntryKey, Partition, StreamId};
use headwater_log::acceptance::MalformedReason;
use headwater_log::{
    AppendFault, CatchUpTarget, Draft, Log, MemoryLog, MemorySettings, MetadataProposal, Outcome,
    read_or_create_metadata, start_cursors,
};
use uuid::Uuid;

use self::owner::Owner;
use self::replica::Replica;

const WINDOW_MS: u64 = 1000;
const PARTITIONS: u32 = 4;
const NODES: usize = 1000;
const OBJECT_BYTES: usize = 100 << 10;

/// The bytes of one event that refers to a body: a key of about 45, a header of about 46 with the
/// state hash, and the number of the body.
const REFERENCE_BYTES_MAX: usize = 100;

/// Events in one append, as a controller groups them.
const GROUP: usize = 250;

struct Scene {
    log: MemoryLog,
    metadata: LogMetadata,
    owner: Owner,
}

impl Scene {
    async fn new(partitions: u32) -> Self {
        let log = MemoryLog::new(MemorySettings {
            partitions,
            replay_window_ms: WINDOW_MS,
            delete_retention_ms: 2 * WINDOW_MS,
            ..MemorySettings::default()
        });
        let wish = MetadataProposal { previous: None, uuid: Uuid::from_u128(7) };
        let metadata = read_or_create_metadata(&log, wish).await.expect("an empty log");
        let mut owner = Owner::new(&log, metadata, 0).await;
        owner.claim().await.expect("no other process claims");
        Self { log, metadata, owner }
    }

    fn drafts(&self, nodes: std::ops::Range<usize>, object: &Bytes) -> Vec<Draft> {
        nodes.map(|node| self.owner.change(&stream(node), &key(), Some(object))).collect()
    }

    /// Publishes one object to the streams of all nodes, in groups.
    async fn publish(&mut self, nodes: usize, object: &Bytes) {
        for first in (0..nodes).step_by(GROUP) {
            let drafts = self.drafts(first..nodes.min(first + GROUP), object);
            self.owner.append(drafts).await.expect("no fault is injected");
        }
        self.owner.read_to_end().await;
    }

    async fn remove(&mut self, nodes: usize) {
        let drafts = (0..nodes).map(|node| self.owner.change(&stream(node), &key(), None));
        let drafts = drafts.collect();
        self.owner.append(drafts).await.expect("no fault is injected");
        self.owner.read_to_end().await;
    }

    /// The bytes of all records, and how many of them are bodies.
    async fn stored(&self) -> (usize, usize) {
        let cursors = start_cursors(&self.log).await.expect("readable");
        let mut ends = CatchUpTarget::ahead_of(&self.log, &cursors).await.expect("readable");
        let mut reader = self.log.read(cursors).await.expect("readable");
        let (mut bytes, mut bodies) = (0, 0);
        while !ends.is_reached() {
            let batch = reader.next().await.expect("readable");
            for recorded in &batch.records {
                bytes += recorded.record.bytes();
                let is_body = recorded.record.key.starts_with(b"!body ");
                bodies += usize::from(is_body && recorded.record.value.is_some());
            }
            ends.pass(&batch.cursor);
        }
        (bytes, bodies)
    }

    /// Compacts everything that is older than the window.
    async fn compact(&mut self) {
        for _ in 0..2 {
            self.owner.read_to_end().await;
            self.log.advance_clock(4 * WINDOW_MS);
            self.log.compact();
        }
    }

    async fn fresh(&self) -> Replica {
        Replica::fold(&self.log, self.metadata).await.expect("readable")
    }
}

fn stream(node: usize) -> StreamId {
    format!("node/gateway-{node:05}").parse().expect("well-formed")
}

fn key() -> EntryKey {
    "shop/configmap/settings".parse().expect("well-formed")
}

/// An object that compression does not shrink much, so that bytes are those of the object.
fn object(seed: u64) -> Bytes {
    let mut text = String::with_capacity(OBJECT_BYTES + 64);
    text.push_str("{\"data\":\"");
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while text.len() < OBJECT_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text.push_str("\"}");
    text.into()
}

fn bodies(replica: &Replica) -> Vec<BodyAddress> {
    replica.acceptance.bodies().addresses().copied().collect()
}

#[tokio::test]
async fn a_change_of_an_object_of_many_nodes_is_appended_once_in_a_partition() {
    let mut scene = Scene::new(PARTITIONS).await;
    scene.publish(NODES, &object(1)).await;
    let (before, _) = scene.stored().await;
    let changed = object(2);
    scene.publish(NODES, &changed).await;
    let (after, stored) = scene.stored().await;
    let partitions = PARTITIONS as usize;
    assert_eq!(stored, 2 * partitions, "one body for each version and partition");
    let once = changed.len() * partitions;
    let most = once + once / 5 + NODES * REFERENCE_BYTES_MAX;
    assert!(after - before <= most, "{} bytes, at most {most}", after - before);
    let fresh = scene.fresh().await;
    fresh.check_hashes();
    assert_eq!(fresh.entries().len(), NODES);
    assert!(fresh.entries().values().all(|held| *held == changed));
}

#[tokio::test]
async fn a_small_object_is_in_its_events() {
    let mut scene = Scene::new(1).await;
    let small = Bytes::from(vec![b'1'; headwater_log::SHARED_BYTES_MIN - 1]);
    scene.publish(NODES, &small).await;
    assert_eq!(scene.stored().await.1, 0);
}

#[tokio::test]
async fn a_body_that_is_retired_is_compacted_and_an_object_that_comes_back_gets_another() {
    let mut scene = Scene::new(1).await;
    let (a, b) = (object(1), object(2));
    scene.publish(2, &a).await;
    let first = bodies(&scene.owner.replica);
    scene.publish(2, &b).await;
    scene.owner.retire().await.expect("appended");
    scene.publish(2, &a).await;
    scene.owner.retire().await.expect("appended");
    let back = bodies(&scene.owner.replica);
    assert!(first.len() == 1 && back.len() == 1 && first != back, "{first:?}, {back:?}");
    scene.compact().await;
    assert_eq!(scene.stored().await.1, 1, "the log has the body of the present object alone");
    let fresh = scene.fresh().await;
    fresh.check_hashes();
    fresh.check_bodies();
    assert!(fresh.entries().values().all(|held| *held == a));
}

#[tokio::test]
async fn a_body_stays_while_one_stream_refers_to_it() {
    let mut scene = Scene::new(1).await;
    let (a, b) = (object(1), object(2));
    scene.publish(3, &a).await;
    scene.publish(2, &b).await;
    scene.owner.retire().await.expect("appended");
    scene.compact().await;
    let fresh = scene.fresh().await;
    fresh.check_hashes();
    assert_eq!(bodies(&fresh).len(), 2);
    scene.remove(3).await;
    scene.owner.retire().await.expect("appended");
    assert_eq!(bodies(&scene.owner.replica), []);
}

#[tokio::test]
async fn a_new_stream_refers_to_the_body_that_is_there() {
    let mut scene = Scene::new(1).await;
    let a = object(1);
    scene.publish(2, &a).await;
    let drafts = scene.drafts(2..3, &a);
    scene.owner.append(drafts).await.expect("no fault is injected");
    assert_eq!(scene.stored().await.1, 1);
    scene.owner.read_to_end().await;
    assert_eq!(scene.owner.replica.entries().len(), 3);
}

#[tokio::test]
async fn a_next_writer_refers_to_no_body_of_a_former_one_and_retires_it() {
    let mut scene = Scene::new(1).await;
    let (a, b) = (object(1), object(2));
    scene.publish(3, &a).await;
    scene.owner.claim().await.expect("no other process claims");
    scene.publish(2, &b).await;
    scene.publish(2, &a).await;
    assert_eq!(scene.stored().await.1, 3, "a, b, and a again");
    scene.publish(3, &b).await;
    scene.owner.retire().await.expect("appended");
    scene.owner.replica.check_bodies();
    assert_eq!(bodies(&scene.owner.replica).len(), 1);
}

/// The log may take the references and lose the events that supersede them.
#[tokio::test]
async fn a_body_is_not_retired_before_its_references_were_read_back() {
    let mut scene = Scene::new(1).await;
    let (a, b) = (object(1), object(2));
    let (refer, supersede) = (scene.drafts(0..2, &a), scene.drafts(0..2, &b));
    let writer = scene.owner.writer.as_mut().expect("claimed");
    let first =
        BodyAddress { partition: Partition(0), id: BodyId { epoch: writer.epoch(), number: 1 } };
    writer.append(refer).await.expect("no fault is injected");
    writer.append(supersede).await.expect("no fault is injected");
    assert_eq!(writer.begin_retiring([first]).expect("alive"), []);
    scene.owner.read_to_end().await;
    let writer = scene.owner.writer.as_mut().expect("claimed");
    assert_eq!(writer.begin_retiring([first]).expect("alive").len(), 1);
}

/// The log takes the events of an append without the body: the streams stop, and the next writer
/// goes on with the same seqs.
#[tokio::test]
async fn a_reference_whose_body_was_lost_stops_its_stream_until_the_next_writer() {
    let mut scene = Scene::new(1).await;
    let a = object(1);
    scene.owner.log.inject_fault(AppendFault::UnknownSome(vec![false, true, true]));
    let drafts = scene.drafts(0..2, &a);
    assert!(scene.owner.append(drafts).await.is_err());
    let outcomes = scene.owner.replica.read_to_end().await.expect("readable");
    let lost = outcomes.iter().filter(|outcome| {
        matches!(outcome, Outcome::Malformed(malformed)
            if matches!(malformed.reason, MalformedReason::NoBody { .. }))
    });
    assert_eq!(lost.count(), 2);
    let wanted = (0..2).map(|node| ((stream(node), key()), a.clone())).collect();
    scene.owner.reconcile(&wanted).await;
    scene.compact().await;
    let fresh = scene.fresh().await;
    fresh.check_hashes();
    assert_eq!(fresh.entries(), wanted);
}
