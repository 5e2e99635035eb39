//! The follower over logs in memory: whatever happens, it ends as a fresh replay would.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_check::{State, prefix};
use headwater_event::{
    Applied, EntryKey, Envelope, Event, ObjectHash, Removed, Seq, StateHash, WriterEpoch,
};
use headwater_log::acceptance::RepairKey;
use headwater_log::{
    AppendFault, Draft, MemoryLog, MemorySettings, MetadataProposal, WriterError,
    read_or_create_metadata, repair,
};
use headwater_store::{MemoryEngine, Range, Read, Survival};
use headwater_view::{Selection, StreamReader};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

mod damaged;
mod first_fold;
mod reconnect;

const WINDOW_MS: u64 = 1_000_000;
const PARTITIONS: u32 = 2;

fn stream(name: &str) -> StreamId {
    name.parse().expect("a stream")
}

fn key(n: u8) -> EntryKey {
    format!("d/configmap/c{n}").parse().expect("a key")
}

async fn log() -> MemoryLog {
    let log = MemoryLog::new(MemorySettings {
        partitions: PARTITIONS,
        replay_window_ms: WINDOW_MS,
        delete_retention_ms: 2 * WINDOW_MS,
        ..MemorySettings::default()
    });
    create_log(&log, None).await;
    log
}

async fn create_log(log: &MemoryLog, previous: Option<headwater_event::LogId>) {
    let wish = MetadataProposal { previous, uuid: Uuid::new_v4() };
    read_or_create_metadata(log, wish).await.expect("an empty log takes its metadata");
}

fn clock(log: &MemoryLog) -> WallClock {
    let log = log.clone();
    Arc::new(move || log.now_ms())
}

async fn open(log: &MemoryLog, engine: &Arc<MemoryEngine>) -> Follower<()> {
    try_open(log, engine).await.expect("the log can be followed")
}

async fn try_open(
    log: &MemoryLog,
    engine: &Arc<MemoryEngine>,
) -> Result<Follower<()>, FollowError> {
    Follower::open(log, engine.clone(), (), clock(log)).await
}

/// Follows to where the log ends.
async fn drain(follower: &mut Follower<()>, log: &MemoryLog) -> Vec<Outcome> {
    try_drain(follower, log).await.expect("the log can be folded")
}

async fn try_drain(
    follower: &mut Follower<()>,
    log: &MemoryLog,
) -> Result<Vec<Outcome>, FollowError> {
    let mut outcomes = Vec::new();
    loop {
        let mut behind = false;
        for cursor in follower.acceptance().cursors() {
            behind |= cursor.next < log.bounds(cursor.partition).await.expect("there").high;
        }
        if !behind {
            return Ok(outcomes);
        }
        outcomes.extend(follower.next().await?.outcomes);
    }
}

/// Follows to where the log ends, folding anew as the parts do where compaction may have passed
/// the follower by: a stream whose first events an append lost looks just so behind a gap.
async fn drain_or_rebuild(
    follower: &mut Follower<()>,
    log: &MemoryLog,
    engine: &Arc<MemoryEngine>,
) {
    match try_drain(follower, log).await {
        Err(FollowError::CompactedAway { .. }) => {
            let rebuilt = Follower::rebuild(log, engine.clone(), (), clock(log)).await;
            *follower = rebuilt.expect("it can be folded");
            drain(follower, log).await;
        }
        drained => drop(drained.expect("the log can be folded")),
    }
}

/// What the engine behind a follower holds.
type FoldedStreams = BTreeMap<StreamId, (Seq, StateHash, State)>;

fn held(follower: &Follower<()>) -> FoldedStreams {
    let reader = StreamReader::new(&**follower.state().engine());
    let mut held = FoldedStreams::new();
    for position in reader.streams().expect("readable") {
        let mut state = State::default();
        let entries = reader.entries(&position.stream, Selection::All, None, 10_000);
        for (key, entry) in entries.expect("readable") {
            let applied = Applied {
                key,
                uid: entry.uid,
                resource_version: entry.resource_version,
                object: entry.object,
            };
            state.apply(&headwater_event::Change::Applied(applied));
        }
        held.insert(position.stream, (position.checkpoint.seq, position.hash, state));
    }
    held
}

/// A writer with the fold that it goes by, and every event that ever counted.
struct Owner {
    log: MemoryLog,
    follower: Follower<()>,
    writer: Option<Writer>,
    events: Vec<Envelope>,
}

impl Owner {
    async fn new(log: &MemoryLog) -> Self {
        let log = log.handle();
        let mut follower = open(&log, &Arc::new(MemoryEngine::new())).await;
        drain(&mut follower, &log).await;
        let mut owner = Self { log, follower, writer: None, events: Vec::new() };
        owner.claim().await;
        owner
    }

    async fn claim(&mut self) {
        let log: Arc<dyn Log> = Arc::new(self.log.clone());
        self.read().await;
        let claimant = Claimant::new(Uuid::new_v4());
        let writer = self.follower.take_over(&log, &claimant).await;
        self.writer = Some(writer.expect("nobody else claims"));
    }

    async fn read(&mut self) {
        for outcome in drain(&mut self.follower, &self.log).await {
            if let Some(writer) = &mut self.writer {
                writer.observe(&outcome);
            }
            if let Outcome::Accepted(envelope) = outcome {
                self.events.push(envelope);
            }
        }
    }

    fn draft(&self, stream: &StreamId, key: EntryKey, object: Option<&str>) -> Draft {
        let reader = StreamReader::new(&**self.follower.state().engine());
        let held = reader.entry(stream, &key).expect("readable");
        let event = match object {
            Some(object) => Event::Applied(Applied {
                key,
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                object: object.to_owned().into(),
            }),
            None => Event::Removed(Removed { key, uid: "u".to_owned() }),
        };
        let replaces = held.map(|held| ObjectHash::of(&held.object));
        Draft { stream: stream.clone(), event, replaces, traceparent: None, is_shared: false }
    }

    /// Appends; a writer that does not know what became of it is followed by the next.
    async fn append(&mut self, drafts: Vec<Draft>) {
        let writer = self.writer.as_mut().expect("claimed");
        match writer.append(drafts).await {
            Ok(_) => self.read().await,
            Err(WriterError::Suspended { .. } | WriterError::Dead { .. }) => self.claim().await,
            Err(error) => panic!("{error}"),
        }
    }

    async fn set(&mut self, stream: &StreamId, n: u8, object: Option<&str>) {
        let draft = self.draft(stream, key(n), object);
        self.append(vec![draft]).await;
    }

    async fn heads(&mut self) {
        self.writer.as_mut().expect("claimed").append_heads().await.expect("appended");
        self.read().await;
    }

    async fn repair(&mut self) {
        let writer = self.writer.as_ref().expect("claimed");
        let mut drafts = Vec::new();
        for (stream, touched) in writer.repairs(self.follower.acceptance()) {
            let reader = StreamReader::new(&**self.follower.state().engine());
            let present = match &touched {
                RepairKey::Head => None,
                RepairKey::Entry(key) => reader.entry(&stream, key).expect("readable"),
            };
            let present = present.zip(match &touched {
                RepairKey::Entry(key) => Some(key.clone()),
                RepairKey::Head => None,
            });
            let present = present.map(|(entry, key)| Applied {
                key,
                uid: entry.uid,
                resource_version: entry.resource_version,
                object: entry.object,
            });
            drafts.push(repair(stream, touched, present));
        }
        self.append(drafts).await;
    }

    /// I1: what `follower` holds is what the events that counted make of it.
    fn check_prefix(&self, follower: &Follower<()>) {
        for (stream, (at, _, state)) in held(follower) {
            let events = self.events.iter().filter(|event| event.stream == stream);
            prefix::check(events, &stream, at, &state).expect("a prefix");
        }
    }

    /// I9: a replay of the whole log gives the same.
    async fn check_replay(&self, follower: &Follower<()>) {
        let mut replay = open(&self.log, &Arc::new(MemoryEngine::new())).await;
        drain(&mut replay, &self.log).await;
        assert!(replay.is_folded() && replay.damaged().is_empty());
        assert_eq!(held(&replay), held(follower));
    }
}

#[derive(Clone, Debug)]
enum Act {
    Set { stream: usize, key: u8, object: Option<u8> },
    Lose { stream: usize, key: u8, written: Vec<bool> },
    Follow,
    Crash { seed: Option<u64> },
    Pass { ms: u64 },
    Compact,
    Heads,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => (0..3usize, 0..4u8, proptest::option::of(0..9u8))
            .prop_map(|(stream, key, object)| Act::Set { stream, key, object }),
        1 => (0..3usize, 0..4u8, proptest::collection::vec(any::<bool>(), 3))
            .prop_map(|(stream, key, written)| Act::Lose { stream, key, written }),
        3 => Just(Act::Follow),
        2 => proptest::option::of(any::<u64>()).prop_map(|seed| Act::Crash { seed }),
        2 => (0..WINDOW_MS).prop_map(|ms| Act::Pass { ms }),
        1 => Just(Act::Compact),
        1 => Just(Act::Heads),
    ];
    proptest::collection::vec(act, 1..40)
}

async fn play(acts: Vec<Act>) {
    let streams = ["cluster", "node/a", "node/b"].map(stream);
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    let mut engine = Arc::new(MemoryEngine::new());
    let mut follower = open(&log, &engine).await;
    let mut without_heads_ms = 0;
    for act in acts {
        match act {
            Act::Set { stream, key, object } => {
                let object = object.map(|object| format!("{{\"n\":{object}}}"));
                owner.set(&streams[stream], key, object.as_deref()).await;
            }
            Act::Lose { stream, key: n, written } => {
                owner.log.inject_fault(AppendFault::UnknownSome(written));
                let drafts =
                    (0..3).map(|i| owner.draft(&streams[stream], key(n + i), Some("{\"lost\":1}")));
                let drafts = drafts.collect();
                owner.append(drafts).await;
                owner.repair().await;
            }
            Act::Follow => {
                drain_or_rebuild(&mut follower, &log, &engine).await;
                assert!(follower.is_folded() && follower.damaged().is_empty());
                owner.check_prefix(&follower);
            }
            Act::Crash { seed } => {
                let survives = seed.map_or(Survival::Synced, |seed| Survival::Some { seed });
                engine = Arc::new(engine.crash(survives));
                follower = open(&log, &engine).await;
                if follower.is_folded() {
                    owner.check_prefix(&follower);
                }
            }
            Act::Pass { ms } => {
                // A running follower is never away: only a crashed one sleeps.
                drain_or_rebuild(&mut follower, &log, &engine).await;
                engine = Arc::new(engine.crash(Survival::Everything));
                log.advance_clock(ms);
                // A writer appends heads before compaction drops a tombstone.
                without_heads_ms += ms;
                if without_heads_ms >= WINDOW_MS {
                    owner.heads().await;
                    without_heads_ms = 0;
                }
                let beats = owner.writer.as_ref().expect("claimed").heartbeats();
                beats.append(false, Duration::from_secs(10)).await.expect("appended");
                owner.read().await;
                follower = open(&log, &engine).await;
            }
            Act::Compact => log.compact(),
            Act::Heads => owner.heads().await,
        }
    }
    drain_or_rebuild(&mut follower, &log, &engine).await;
    owner.check_prefix(&follower);
    owner.check_replay(&follower).await;
}

fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// I1 and I9: whatever the log and the machine do, what is held is a prefix, and in the end
    /// what a replay of the whole log gives.
    #[test]
    fn a_follower_is_a_prefix_and_ends_as_a_replay(acts in acts()) {
        run(play(acts));
    }
}

#[tokio::test]
async fn a_follower_goes_on_where_it_stood() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    let engine = Arc::new(MemoryEngine::new());
    let s = stream("node/a");
    owner.set(&s, 1, Some("{}")).await;
    drain(&mut open(&log, &engine).await, &log).await;
    owner.set(&s, 2, Some("{}")).await;
    let mut again = open(&log, &engine).await;
    assert!(again.is_folded(), "nothing is read twice");
    let outcomes = drain(&mut again, &log).await;
    let seqs = outcomes.iter().filter_map(|outcome| match outcome {
        Outcome::Accepted(envelope) => Some(envelope.seq.0),
        _ => None,
    });
    assert_eq!(seqs.collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn an_empty_log_is_named_and_nothing_is_dropped_for_it() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    owner.set(&stream("node/a"), 1, Some("{}")).await;
    let engine = Arc::new(MemoryEngine::new());
    drain(&mut open(&log, &engine).await, &log).await;
    log.recreate(PARTITIONS);
    let unborn = try_open(&log, &engine).await.err().expect("the log is empty");
    assert!(matches!(unborn, FollowError::EmptyLog) && !unborn.needs_rebuild());
    let reader = StreamReader::new(&*engine);
    assert_eq!(reader.streams().expect("readable").len(), 1, "what is stored stays");
}

#[tokio::test]
async fn a_log_that_is_another_is_folded_anew() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    let s = stream("node/a");
    owner.set(&s, 1, Some("{}")).await;
    owner.set(&s, 2, Some("{}")).await;
    let engine = Arc::new(MemoryEngine::new());
    let mut follower = open(&log, &engine).await;
    drain(&mut follower, &log).await;
    let previous = follower.acceptance().metadata().log_id;
    log.recreate(PARTITIONS);
    let error = follower.next().await.expect_err("the log is another");
    assert!(error.needs_rebuild(), "{error}");
    create_log(&log, Some(previous)).await;
    let mut owner = Owner::new(&log).await;
    owner.set(&s, 3, Some("{}")).await;
    let mut follower = open(&log, &engine).await;
    drain(&mut follower, &log).await;
    assert!(follower.acceptance().metadata().log_id.follows(&previous));
    owner.check_prefix(&follower);
    owner.check_replay(&follower).await;
}

#[tokio::test]
async fn a_log_that_was_cut_is_folded_anew() {
    for restarts in [false, true] {
        let log = log().await;
        let mut owner = Owner::new(&log).await;
        let s = stream("node/a");
        let partition = s.partition(PARTITIONS);
        owner.set(&s, 1, Some("{}")).await;
        let high = log.bounds(partition).await.expect("there").high;
        owner.set(&s, 2, Some("{}")).await;
        let engine = Arc::new(MemoryEngine::new());
        let mut follower = open(&log, &engine).await;
        drain(&mut follower, &log).await;
        log.truncate(partition, high);
        let mut owner = Owner::new(&log).await;
        owner.set(&s, 3, Some("{}")).await;
        follower = if restarts {
            open(&log, &engine).await
        } else {
            let error = follower.next().await.expect_err("the log was cut");
            assert!(error.needs_rebuild(), "{error}");
            Follower::rebuild(&log, engine.clone(), (), clock(&log)).await.expect("readable")
        };
        drain(&mut follower, &log).await;
        owner.check_replay(&follower).await;
    }
}

#[tokio::test]
async fn what_retention_took_from_under_a_follower_is_folded_anew() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    // Not the partition of the log metadata.
    let names = (0..9).map(|n| stream(&format!("node/n{n}")));
    let s = names.into_iter().find(|name| name.partition(PARTITIONS) == Partition(1));
    let s = s.expect("one of nine");
    let engine = Arc::new(MemoryEngine::new());
    drain(&mut open(&log, &engine).await, &log).await;
    owner.set(&s, 1, Some("{}")).await;
    let partition = s.partition(PARTITIONS);
    let high = log.bounds(partition).await.expect("there").high;
    let was = engine.counts();
    log.expire(partition, high);
    let follower = open(&log, &engine).await;
    assert!(!follower.is_folded() && engine.counts() != was, "it begins anew");
}

#[tokio::test]
async fn a_reader_that_compaction_passed_by_folds_anew() {
    let (log, s) = (log().await, stream("node/a"));
    let mut owner = Owner::new(&log).await;
    owner.set(&s, 1, Some("{}")).await;
    let engine = Arc::new(MemoryEngine::new());
    let mut follower = open(&log, &engine).await;
    drain(&mut follower, &log).await;
    // The machine is suspended: weeks later its process reads on as if nothing had been.
    owner.set(&s, 1, Some(r#"{"n":1}"#)).await;
    owner.set(&s, 1, Some(r#"{"n":2}"#)).await;
    log.advance_clock(2 * WINDOW_MS);
    log.compact();
    let error = loop {
        match follower.next().await {
            Ok(step) => assert!(!step.outcomes.is_empty(), "it ends without a word"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FollowError::CompactedAway { .. }) && error.needs_rebuild());
    let mut follower =
        Follower::rebuild(&log, engine, (), clock(&log)).await.expect("it can be folded");
    drain(&mut follower, &log).await;
    owner.check_replay(&follower).await;
}

#[tokio::test]
async fn a_reader_whose_clock_is_behind_folds_all_or_shows_nothing() {
    let (log, s) = (log().await, stream("node/a"));
    let mut owner = Owner::new(&log).await;
    for object in [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#] {
        owner.set(&s, 1, Some(object)).await;
    }
    let appended_ms = log.now_ms();
    log.advance_clock(WINDOW_MS + 1);
    log.compact();
    let window_ms = i64::try_from(WINDOW_MS).expect("it fits");
    for (clock_ms, is_whole) in [(0, true), (appended_ms - window_ms / 4, false)] {
        let clock: WallClock = Arc::new(move || clock_ms);
        let engine = Arc::new(MemoryEngine::new());
        let opened = Follower::open(&log, engine, (), clock.clone()).await;
        let mut follower = opened.expect("the log can be followed");
        drain(&mut follower, &log).await;
        assert!(follower.is_folded());
        assert_eq!(follower.damaged().is_empty(), is_whole, "its clock shows {clock_ms}");
        if is_whole {
            owner.check_replay(&follower).await;
        }
    }
}

#[tokio::test]
async fn a_log_that_is_away_is_no_reason_to_fold_anew() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    owner.set(&stream("node/a"), 1, Some("{}")).await;
    let engine = Arc::new(MemoryEngine::new());
    let mut follower = open(&log, &engine).await;
    drain(&mut follower, &log).await;
    log.set_available(false);
    let error = follower.next().await.expect_err("away");
    assert!(!error.needs_rebuild(), "{error}");
    assert!(!try_open(&log, &engine).await.err().expect("away").needs_rebuild());
    log.set_available(true);
    assert!(open(&log, &engine).await.is_folded());
}

#[tokio::test]
async fn a_fold_that_was_broken_off_long_ago_begins_anew() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    let s = stream("node/a");
    owner.set(&s, 1, Some("{}")).await;
    // Everything is in one partition but the claim in the other: one batch is half of the fold.
    let engine = Arc::new(MemoryEngine::new());
    let mut follower = open(&log, &engine).await;
    while follower.acceptance().stream(&s).is_none() {
        follower.next().await.expect("readable");
    }
    let is_half = !follower.is_folded();
    let engine = Arc::new(engine.crash(Survival::Everything));
    owner.set(&s, 1, None).await;
    owner.writer.as_mut().expect("claimed").append_heads().await.expect("appended");
    owner.read().await;
    for _ in 0..2 {
        log.advance_clock(2 * WINDOW_MS + 1);
        log.compact();
    }
    let mut follower = open(&log, &engine).await;
    drain(&mut follower, &log).await;
    assert!(follower.damaged().is_empty(), "half folded before: {is_half}");
    owner.check_replay(&follower).await;
    let (_, _, state) = &held(&follower)[&s];
    assert!(state.entries.is_empty(), "the removal was compacted away, and is heeded");
}

#[tokio::test]
async fn a_hole_stops_a_stream_and_the_next_writer_resumes_it() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    let s = stream("node/a");
    let mut follower = open(&log, &Arc::new(MemoryEngine::new())).await;
    owner.set(&s, 1, Some("{}")).await;
    owner.log.inject_fault(AppendFault::UnknownSome(vec![true, false, true]));
    let drafts = (2..5).map(|n| owner.draft(&s, key(n), Some("{}"))).collect::<Vec<_>>();
    let outcome = owner.writer.as_mut().expect("claimed").append(drafts).await;
    assert!(matches!(outcome, Err(WriterError::Suspended { .. })));
    let outcomes = drain(&mut follower, &log).await;
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Hole(_))));
    assert_eq!(held(&follower)[&s].0, Seq(2), "I7: not one event behind the hole");
    owner.claim().await;
    owner.repair().await;
    owner.set(&s, 3, Some("{}")).await;
    drain(&mut follower, &log).await;
    owner.check_prefix(&follower);
    owner.check_replay(&follower).await;
    assert!(held(&follower)[&s].0 > Seq(3));
}

#[tokio::test]
async fn the_record_of_a_fenced_writer_is_never_folded() {
    let log = log().await;
    let s = stream("node/a");
    let mut zombie = Owner::new(&log).await;
    zombie.set(&s, 1, Some("{\"by\":\"zombie\"}")).await;
    let mut owner = Owner::new(&log).await;
    let mut follower = open(&log, &Arc::new(MemoryEngine::new())).await;
    let late = vec![zombie.draft(&s, key(1), None), zombie.draft(&s, key(2), Some("{}"))];
    zombie.writer.as_mut().expect("it does not know").append(late).await.expect("appended");
    owner.set(&s, 3, Some("{}")).await;
    let outcomes = drain(&mut follower, &log).await;
    let fenced = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Fenced(_)));
    assert_eq!(fenced.count(), 2);
    let state = &held(&follower)[&s].2;
    let keys: Vec<_> = state.entries.keys().cloned().collect();
    assert_eq!(keys, [key(1), key(3)], "I11");
    assert_eq!(follower.acceptance().writer().map(|claim| claim.epoch), Some(WriterEpoch(2)));
    // Nor after compaction has dropped what the zombie's records supersede, once repaired.
    owner.repair().await;
    drain(&mut follower, &log).await;
    log.advance_clock(WINDOW_MS + 1);
    log.compact();
    owner.check_replay(&follower).await;
}

/// A log in which compaction kept a fenced record in place of the truth.
async fn damaged_log(s: &StreamId) -> (MemoryLog, Owner) {
    let log = log().await;
    let mut zombie = Owner::new(&log).await;
    zombie.set(s, 1, Some("{\"good\":1}")).await;
    let mut owner = Owner::new(&log).await;
    let late = vec![zombie.draft(s, key(1), Some("{\"bad\":1}"))];
    zombie.writer.as_mut().expect("it does not know").append(late).await.expect("appended");
    owner.set(s, 2, Some("{}")).await;
    owner.read().await;
    log.advance_clock(WINDOW_MS + 1);
    log.compact();
    (log, owner)
}

#[tokio::test]
async fn a_damaged_stream_is_named_stays_so_over_a_restart_and_heals_by_the_truth() {
    let s = stream("node/a");
    let (log, mut owner) = damaged_log(&s).await;
    let engine = Arc::new(MemoryEngine::new());
    let mut follower = open(&log, &engine).await;
    drain(&mut follower, &log).await;
    assert!(follower.damaged().contains(&s), "what compaction dropped is missed");
    let mut follower = open(&log, &engine).await;
    assert!(follower.is_folded() && follower.damaged().contains(&s), "a restart heals nothing");

    // The stream goes on, others too, and no fold begins anew for it.
    owner.set(&s, 3, Some("{}")).await;
    owner.set(&stream("node/b"), 3, Some("{}")).await;
    drain(&mut follower, &log).await;
    assert_eq!(follower.damaged().iter().collect::<Vec<_>>(), [&s]);
    assert_eq!(held(&follower)[&stream("node/b")].0, Seq(1));

    owner.repair().await;
    drain(&mut follower, &log).await;
    assert!(follower.damaged().is_empty(), "the truth was appended again");
    owner.check_prefix(&follower);
    owner.check_replay(&follower).await;
}

#[tokio::test]
async fn what_compaction_took_of_a_stream_s_end_is_gone_for_everyone_from_the_next_writer_on() {
    let (log, s) = (log().await, stream("node/a"));
    let mut former = Owner::new(&log).await;
    for (n, object) in [(1, Some("{}")), (2, Some("{}")), (3, Some("{}")), (1, None), (2, None)] {
        former.set(&s, n, object).await;
    }
    // A reader that saw it all, before the log's writer was away for so long that the
    // tombstones went without a head behind them.
    let engine = Arc::new(MemoryEngine::new());
    let mut seer = open(&log, &engine).await;
    drain(&mut seer, &log).await;
    for _ in 0..2 {
        log.advance_clock(2 * WINDOW_MS + 1);
        log.compact();
    }
    let mut late = open(&log, &Arc::new(MemoryEngine::new())).await;
    drain(&mut late, &log).await;
    assert!(late.damaged().contains(&s), "the removals are missing");

    let mut owner = Owner::new(&log).await;
    owner.writer.as_mut().expect("claimed").append_heads().await.expect("appended");
    owner.read().await;
    drain(&mut late, &log).await;
    assert!(late.damaged().is_empty(), "what is there is the truth now");
    owner.check_replay(&late).await;
    let keys: Vec<_> = held(&late)[&s].2.entries.keys().cloned().collect();
    assert_eq!(keys, [key(3)]);

    let error = loop {
        match seer.next().await {
            Ok(step) => assert!(!step.outcomes.is_empty(), "it ends without a word"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FollowError::SeqRegressed { .. }) && error.needs_rebuild());
    let mut seer = Follower::rebuild(&log, engine, (), clock(&log)).await.expect("foldable");
    drain(&mut seer, &log).await;
    owner.check_replay(&seer).await;
}

#[tokio::test]
async fn a_batch_of_the_log_may_be_larger_than_one_of_the_engine() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    let s = stream("node/a");
    // Compressed in the log, so that one batch of it is far more once unpacked.
    let object = format!("{{\"data\":\"{}\"}}", "x".repeat(1 << 20));
    let drafts = (0..24).map(|n| owner.draft(&s, key(n), Some(&object))).collect::<Vec<_>>();
    owner.append(drafts).await;
    let mut follower = open(&log, &Arc::new(MemoryEngine::new())).await;
    drain(&mut follower, &log).await;
    assert_eq!(held(&follower)[&s].2.entries.len(), 24);
}
