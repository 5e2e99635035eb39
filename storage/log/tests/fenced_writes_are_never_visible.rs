//! Writers come, freeze, lose appends and wake again; compaction runs; readers lag and restart.
//! Whatever happens, every reader sees one history without holes or doubles, no reader ever sees
//! what a fenced writer wrote, and a fold from the start agrees with following.

#[path = "support/owner.rs"]
mod owner;
#[path = "support/replica.rs"]
mod replica;

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::{EntryKey, Event, Partition, StreamId};
use headwater_log::{
    AppendFault, MemoryLog, MemorySettings, MetadataProposal, SHARED_BYTES_MIN, Writer,
    read_or_create_metadata,
};
use proptest::prelude::*;
use uuid::Uuid;

use self::owner::{Owner, Wanted};
use self::replica::Replica;

const HOUR_MS: u64 = 60 * 60 * 1000;
/// Long enough to be shared.
const ZOMBIE: &str = concat!(
    "{\"by\":\"zombie\",\"pad\":\"",
    "................................................................................",
    "................................................................................",
    "................................................................................",
    "\"}"
);

/// Objects that differ: few, so that events of one append share some.
const OBJECTS: u8 = 4;

#[derive(Clone, Debug)]
enum Step {
    /// The sources change entries: `Some` applies, `None` removes.
    Change(Vec<(u8, u8, Option<u8>)>, Option<AppendFault>),
    /// The writer freezes, and another claims; appends of the claim may fail.
    Depose(Vec<AppendFault>),
    /// Every deposed writer wakes and writes.
    Zombies(Vec<(u8, u8, bool)>),
    /// Appends of unknown outcome land after all.
    DeliverLate,
    Heads,
    Reconcile,
    /// The writer retires the bodies to which nothing refers.
    Retire(Option<AppendFault>),
    PassHours(u64),
    Compact,
    Skip(u32, u64),
    /// A follower reads on.
    Follow(bool),
}

fn fault() -> impl Strategy<Value = AppendFault> {
    prop_oneof![
        Just(AppendFault::Rejected),
        Just(AppendFault::UnknownWritten),
        Just(AppendFault::UnknownLost),
        Just(AppendFault::UnknownWrittenLater),
        proptest::collection::vec(any::<bool>(), 1..6).prop_map(AppendFault::UnknownSome),
        any::<bool>().prop_map(|written| AppendFault::Fatal { written }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0u8..3, 0u8..4, proptest::option::weighted(0.7, any::<u8>()));
    let changes = proptest::collection::vec(change, 1..6);
    prop_oneof![
        8 => (changes, proptest::option::weighted(0.3, fault())).prop_map(|(c, f)| Step::Change(c, f)),
        2 => proptest::collection::vec(fault(), 0..3).prop_map(Step::Depose),
        3 => proptest::collection::vec((0u8..3, 0u8..4, any::<bool>()), 1..4).prop_map(Step::Zombies),
        2 => Just(Step::DeliverLate),
        2 => Just(Step::Heads),
        3 => Just(Step::Reconcile),
        3 => proptest::option::weighted(0.3, fault()).prop_map(Step::Retire),
        3 => (1u64..30 * 24).prop_map(Step::PassHours),
        4 => Just(Step::Compact),
        1 => (0u32..2, 1u64..5).prop_map(|(p, n)| Step::Skip(p, n)),
        4 => any::<bool>().prop_map(Step::Follow),
    ]
}

fn stream(number: u8) -> StreamId {
    format!("node/n{number}").parse().expect("well-formed")
}

fn key(number: u8) -> EntryKey {
    format!("d/pod/p{number}").parse().expect("well-formed")
}

/// An object. Some are long enough to be shared.
fn object(value: u8) -> Bytes {
    let pad = if value.is_multiple_of(2) { SHARED_BYTES_MIN } else { 0 };
    Bytes::from(format!("{{\"value\":{},\"pad\":\"{}\"}}", value % OBJECTS, ".".repeat(pad)))
}

struct World {
    log: MemoryLog,
    owner: Owner,
    /// Handles on which appends of unknown outcome may wait, and writers that were deposed.
    former: Vec<(MemoryLog, Option<Writer>)>,
    followers: Vec<Replica>,
    wanted: Wanted,
    /// What followers saw: one history for all.
    history: BTreeMap<(StreamId, u64), Event>,
}

impl World {
    async fn new() -> Self {
        let log = MemoryLog::new(MemorySettings { partitions: 2, ..MemorySettings::default() });
        let wish = MetadataProposal { previous: None, uuid: Uuid::from_u128(7) };
        let metadata =
            read_or_create_metadata(&log, wish).await.expect("an empty log takes its metadata");
        let mut followers = Vec::new();
        for _ in 0..2 {
            followers.push(Replica::fold(&log, metadata).await.expect("readable"));
        }
        let owner = Owner::new(&log, metadata, 0).await;
        let (former, wanted, history) = (Vec::new(), Wanted::new(), BTreeMap::new());
        Self { log, owner, former, followers, wanted, history }
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Change(changes, fault) => self.change(changes, fault).await,
            Step::Depose(faults) => self.depose(faults).await,
            Step::Zombies(writes) => self.wake_zombies(writes).await,
            Step::DeliverLate => {
                self.owner.log.deliver_late();
                self.former.iter().for_each(|(log, _)| {
                    log.deliver_late();
                });
            }
            Step::Heads => {
                if let Some(writer) = &mut self.owner.writer {
                    writer.append_heads().await.expect("no fault is injected");
                }
            }
            Step::Reconcile => self.owner.reconcile(&self.wanted).await,
            Step::Retire(fault) => self.retire(fault).await,
            Step::PassHours(hours) => {
                // A living owner appends heads and repairs well before a tombstone can go.
                self.settle().await;
                self.log.advance_clock(hours * HOUR_MS);
            }
            Step::Compact => self.log.compact(),
            Step::Skip(partition, count) => self.log.skip_offsets(Partition(partition), count),
            Step::Follow(first) => self.follow(usize::from(first)).await,
        }
    }

    async fn change(&mut self, changes: Vec<(u8, u8, Option<u8>)>, fault: Option<AppendFault>) {
        self.owner.read_to_end().await;
        let mut drafts = Vec::new();
        for (s, k, value) in changes {
            let (stream, key) = (stream(s), key(k));
            let object = value.map(object);
            drafts.push(self.owner.change(&stream, &key, object.as_ref()));
            match object {
                Some(object) => self.wanted.insert((stream, key), object),
                None => self.wanted.remove(&(stream, key)),
            };
        }
        if let (Some(fault), Some(_)) = (fault, &self.owner.writer) {
            let fatal = matches!(fault, AppendFault::Fatal { .. });
            self.owner.log.inject_fault(fault);
            let _ = self.owner.append(drafts).await;
            if fatal {
                self.replace_owner(None).await;
            }
            return;
        }
        self.owner.append(drafts).await.expect("no fault is injected");
    }

    async fn retire(&mut self, fault: Option<AppendFault>) {
        self.owner.read_to_end().await;
        if self.owner.writer.is_none() {
            return;
        }
        let fatal = matches!(fault, Some(AppendFault::Fatal { .. }));
        if !self.owner.replica.unreferenced().is_empty() {
            fault.into_iter().for_each(|fault| self.owner.log.inject_fault(fault));
            let _ = self.owner.retire().await;
            if fatal {
                self.replace_owner(None).await;
            }
        }
    }

    async fn depose(&mut self, faults: Vec<AppendFault>) {
        let writer = self.owner.writer.take();
        self.replace_owner(writer).await;
        let is_fatal = |fault: &AppendFault| matches!(fault, AppendFault::Fatal { .. });
        for fault in faults.into_iter().filter(|fault| !is_fatal(fault)) {
            self.owner.log.inject_fault(fault);
            // It may win all the same, or lose to a claim of its own that came late.
            let _ = self.owner.claim().await;
        }
        if self.owner.writer.is_none() {
            let _ = self.owner.claim().await;
        }
    }

    async fn replace_owner(&mut self, writer: Option<Writer>) {
        let metadata = *self.owner.replica.acceptance.metadata();
        let next = Owner::new(&self.log, metadata, self.owner.claims).await;
        let old = std::mem::replace(&mut self.owner, next);
        self.former.push((old.log, writer));
    }

    async fn wake_zombies(&mut self, writes: Vec<(u8, u8, bool)>) {
        let object = Bytes::from_static(ZOMBIE.as_bytes());
        for (_, writer) in &mut self.former {
            let Some(writer) = writer else { continue };
            let drafts = writes.iter().map(|(s, k, apply)| {
                self.owner.change(&stream(*s), &key(*k), apply.then_some(&object))
            });
            let mut drafts: Vec<_> = drafts.collect();
            drafts.extend(writes.iter().map(|(s, ..)| headwater_log::Draft {
                stream: stream(*s),
                event: Event::Head,
                replaces: None,
                traceparent: None,
                is_shared: false,
            }));
            let _ = writer.append(drafts).await;
        }
    }

    async fn follow(&mut self, index: usize) {
        let follower = &mut self.followers[index];
        follower.read_to_end().await.expect("the log can be read");
        for envelope in std::mem::take(&mut follower.folded.history) {
            let at = (envelope.stream.clone(), envelope.seq.0);
            let seen = self.history.entry(at).or_insert_with(|| envelope.event.clone());
            assert_eq!(*seen, envelope.event, "two readers saw two histories");
        }
    }

    /// Faults stop; the owner reconciles, bodies are retired, heads are written, everyone reads.
    async fn settle(&mut self) {
        self.owner.reconcile(&self.wanted).await;
        self.owner.retire().await.expect("no fault is injected");
        if let Some(writer) = &mut self.owner.writer {
            writer.append_heads().await.expect("no fault is injected");
        }
        self.owner.read_to_end().await;
        for index in 0..self.followers.len() {
            self.follow(index).await;
        }
    }

    async fn check(&mut self) {
        self.settle().await;
        let metadata = *self.owner.replica.acceptance.metadata();
        let fresh = Replica::fold(&self.log, metadata).await.expect("readable");
        for replica in self.followers.iter().chain([&self.owner.replica, &fresh]) {
            assert!(replica.acceptance.is_reconciled());
            assert_eq!(replica.entries(), self.wanted);
            replica.check_hashes();
            replica.check_bodies();
        }
        for (stream, position) in fresh.acceptance.streams() {
            let followed = self.followers[0].acceptance.stream(stream).expect("met");
            assert_eq!((position.seq, position.hash), (followed.seq, followed.hash), "{stream}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_reader_sees_one_history_and_none_sees_a_zombie(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in steps {
                world.run(step).await;
                for replica in world.followers.iter().chain([&world.owner.replica]) {
                    for object in replica.entries().values() {
                        assert_ne!(object, ZOMBIE.as_bytes(), "a fenced write is visible");
                    }
                }
            }
            world.check().await;
            world.log.compact();
            world.log.advance_clock(30 * 24 * HOUR_MS);
            world.check().await;
            world.log.compact();
            world.log.advance_clock(30 * 24 * HOUR_MS);
            world.log.compact();
            world.check().await;
        });
    }
}
