//! Power cuts at random moments under load, for many seeds. The edge still has all that it released;
//! each report is in the log or still in the outbox.
//!
//! `HEADWATER_SEEDS=N` for more seeds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headwater_check::state::{Entry, State};
use headwater_check::{acknowledged, durable};
use headwater_edge::read_outbox;
use headwater_event::{EntryKey, ObjectHash, Report, ReportBody, ReportId, Seq};
use headwater_proto::local::WatchRequest;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::watch_event::Kind;
use headwater_store::{MemoryEngine, Survival};
use headwater_view::{PodStatusSnapshot, Selection, StatusDigest, StreamReader};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::bench::{Bench, eventually, node, private};
use crate::hub::Hub;

/// Seeds that every run plays.
const SEEDS: u64 = 100;

/// Cuts of a seed.
const CUTS: usize = 4;

/// Pods that stay, and have statuses.
const STAYING: u64 = 3;

/// What comes and goes besides.
const PASSING: u64 = 6;

fn seeds() -> u64 {
    std::env::var("HEADWATER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

/// What the log holds, by seq.
type Log = BTreeMap<Seq, (EntryKey, Option<Bytes>)>;

/// What a subscriber received: an object that was added or changed, or one that was removed.
type ReceivedChanges = Arc<Mutex<Vec<(String, Option<Bytes>)>>>;

/// The totals of all seeds.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    /// Events that were applied and fell back.
    lost: u64,
    /// Batches of the state database that a cut took.
    batches: u64,
    received: u64,
    reports: u64,
}

struct World {
    hub: Hub,
    log: Log,
    rng: StdRng,
    next: u64,
    /// The phase that the edge last accepted, of each pod that stays.
    phases: BTreeMap<u64, String>,
}

impl World {
    async fn new(seed: u64) -> Self {
        let hub = Hub::start(&node()).await;
        let rng = StdRng::seed_from_u64(seed);
        let mut world = Self { hub, log: Log::new(), rng, next: 0, phases: BTreeMap::new() };
        for n in 0..STAYING {
            world.apply(&format!("d/pod/stays-{n}"));
        }
        world
    }

    fn apply(&mut self, key: &str) {
        self.next += 1;
        let object = format!(r#"{{"n":{}}}"#, self.next);
        self.hub.apply(&private(), key, "u", &object);
        let (seq, _) = self.hub.head(&private());
        self.log.insert(seq, (key.parse().expect("a key"), Some(object.into())));
    }

    fn remove(&mut self, key: &str) {
        let key: EntryKey = key.parse().expect("a key");
        let last = self.log.values().rev().find(|(of, _)| *of == key);
        if matches!(last, Some((_, Some(_)))) {
            self.hub.remove(&private(), key.as_str());
            let (seq, _) = self.hub.head(&private());
            self.log.insert(seq, (key, None));
        }
    }

    /// Something happens: mostly in the cloud, sometimes on the node.
    async fn step(&mut self, bench: &Bench) {
        match self.rng.random_range(0..10) {
            0..=5 => {
                let n = self.rng.random_range(0..PASSING);
                self.apply(&format!("d/configmap/passes-{n}"));
            }
            6 => {
                let n = self.rng.random_range(0..PASSING);
                self.remove(&format!("d/configmap/passes-{n}"));
            }
            7 => {
                let n = self.rng.random_range(0..STAYING);
                self.apply(&format!("d/pod/stays-{n}"));
            }
            _ => {
                self.next += 1;
                let (n, phase) = (self.rng.random_range(0..STAYING), format!("P{}", self.next));
                let content = format!(r#"{{"uid":"u","status":{{"phase":"{phase}"}}}}"#);
                let key = format!("d/podstatus/stays-{n}");
                // A pod that has not come yet is none of the node's.
                let outcome = bench.meta.ask("edged", Verb::Update, &key, &content).await;
                if matches!(outcome, Outcome::Done(_)) {
                    self.phases.insert(n, phase);
                }
            }
        }
    }

    /// The log's fold up to `at`.
    fn fold(&self, at: Seq) -> State {
        let mut state = State::default();
        for (key, object) in self.log.range(..=at).map(|(_, change)| change) {
            match object {
                Some(object) => {
                    let entry = Entry { uid: "u".to_owned(), object: ObjectHash::of(object) };
                    state.entries.insert(key.clone(), entry);
                }
                None => {
                    state.entries.remove(key);
                }
            }
        }
        state
    }

    /// The seq of a change that a subscriber received.
    fn seq_of(&self, key: &str, object: Option<&Bytes>) -> Option<Seq> {
        let is_it = |change: &(EntryKey, Option<Bytes>)| {
            change.0.as_str() == key && change.1.as_ref() == object
        };
        self.log.iter().find(|(_, change)| is_it(change)).map(|(seq, _)| *seq)
    }
}

/// Records what a subscriber receives, until the edge has ended.
async fn follow(bench: &Bench) -> (ReceivedChanges, tokio::task::JoinHandle<()>) {
    let received = ReceivedChanges::default();
    let mut client = bench.meta.client();
    let request = WatchRequest { subscriber: "edged".to_owned(), ..WatchRequest::default() };
    let mut events = client.watch(request).await.expect("watches").into_inner();
    let notes = Arc::clone(&received);
    let following = tokio::spawn(async move {
        while let Ok(Some(event)) = events.message().await {
            let kind = event.kind();
            let Some(object) = event.object else { continue };
            let bytes = (kind != Kind::Delete).then_some(object.object);
            notes.lock().expect("no panic").push((object.key, bytes));
        }
    });
    (received, following)
}

/// Loads the edge, cuts its power, and checks what is left; gives the engines.
async fn life(world: &mut World, bench: Bench, tally: &mut Tally) -> (MemoryEngine, MemoryEngine) {
    // With a watch everything is synced at once; without one, much can be lost.
    let watches = world.rng.random_bool(0.5);
    let (received, following) = match watches {
        true => follow(&bench).await,
        false => (ReceivedChanges::default(), tokio::spawn(async {})),
    };
    for _ in 0..world.rng.random_range(0..60) {
        world.step(&bench).await;
        for _ in 0..world.rng.random_range(0..4) {
            tokio::task::yield_now().await;
        }
    }
    if watches && world.rng.random_bool(0.3) {
        // Something at least comes through; the rest is under way.
        let (seq, _) = world.hub.head(&private());
        bench.until_durable(&private(), Seq(seq.0.saturating_sub(5))).await;
    }
    if world.rng.random_bool(0.5) {
        // The disk no longer answers, and what is written meanwhile is what a cut takes.
        bench.state.stall_syncs();
        for _ in 0..world.rng.random_range(1..10) {
            let n = world.rng.random_range(0..PASSING);
            world.apply(&format!("d/configmap/passes-{n}"));
        }
        eventually("a write", || async { (bench.state.unsynced() > 0).then_some(()) }).await;
    }
    let survives = match world.rng.random_range(0..3) {
        0 => Survival::Synced,
        _ => Survival::Some { seed: world.rng.random() },
    };
    let position = |engine: &MemoryEngine| {
        let position = StreamReader::new(engine).position(&private()).expect("reads");
        position.map_or(Seq::ZERO, |(checkpoint, _)| checkpoint.seq)
    };
    tally.batches += bench.state.unsynced() as u64;
    let applied = position(&bench.state);
    let (state, outbox) = (bench.state.crash(survives), bench.outbox.crash(survives));
    // The crashed engines fail every write, so the edge releases nothing new.
    bench.edge.stop().await;
    following.await.expect("follows to the end");

    let at = position(&state);
    tally.cuts += 1;
    tally.lost += applied.0.saturating_sub(at.0);
    check_replica(world, &state, at);
    let acked = world.hub.durable(&private());
    durable::check(&node(), &private(), "acknowledged", acked, at).expect("I8");
    for (key, object) in received.lock().expect("no panic").iter() {
        tally.received += 1;
        match object {
            Some(_) => {
                let seq = world.seq_of(key, object.as_ref()).expect("it was in the log");
                durable::check(&node(), &private(), "released to a watch", seq, at).expect("I8");
            }
            // The same key is removed more than once; one of them must be left.
            None => {
                let gone = world
                    .log
                    .range(..=at)
                    .any(|(_, (of, object))| of.as_str() == key && object.is_none());
                assert!(gone, "I8 a watch received that {key} is gone, at {at} it never was");
            }
        }
    }
    check_reports(world, &outbox, tally);
    (state, outbox)
}

/// I1: what is left is the fold of the log up to its position.
fn check_replica(world: &World, state: &MemoryEngine, at: Seq) {
    let reader = StreamReader::new(state);
    if at == Seq::ZERO {
        return;
    }
    assert!(reader.verify(&private()).expect("reads").expect("there").agrees());
    let mut found = State::default();
    let entries = reader.entries(&private(), Selection::All, None, usize::MAX).expect("reads");
    for (key, entry) in entries.into_iter().filter(|(key, _)| *key != EntryKey::Streams) {
        let object = ObjectHash::of(&entry.object);
        found.entries.insert(key, Entry { uid: entry.uid, object });
    }
    let wanted = world.fold(at);
    assert_eq!(wanted.difference(&found), None, "I1 at {at}");
}

/// I2: what the edge forgot is in the log, and what it has taken is in the log or the outbox.
fn check_reports(world: &World, outbox: &MemoryEngine, tally: &mut Tally) {
    let contents = read_outbox(outbox, &node()).expect("reads");
    let logged = world.hub.reports();
    let in_log: BTreeSet<ReportId> = logged.iter().map(|report| report.id).collect();
    let waiting: BTreeSet<ReportId> = contents.reports.iter().map(|report| report.id).collect();
    let mut all: BTreeMap<ReportId, &Report> = BTreeMap::new();
    for report in logged.iter().chain(&contents.reports) {
        let before = all.insert(report.id, report);
        assert!(before.is_none_or(|before| before.body == report.body), "one id, two reports");
    }
    tally.reports += all.len() as u64;
    let Some(reported) = contents.reported else { return };
    // What the cloud knows once it has what waits; so what does not wait must be in the log.
    let mut known = PodStatusSnapshot::new(&node());
    for report in all.values() {
        match &report.body {
            ReportBody::PodStatus { pod, uid, status } => {
                known.set(pod.clone(), StatusDigest::of(uid, status));
            }
            ReportBody::PodStatusRemoved { pod, .. } => {
                known.remove(pod);
            }
            _ => {}
        }
    }
    assert_eq!(known.hash(), reported.hash(), "I2 {known:?}\n{reported:?}");
    let first_waiting = waiting.first().copied();
    let forgotten = all.keys().filter(|id| first_waiting.is_none_or(|first| **id < first));
    acknowledged::check(&node(), forgotten, &in_log).expect("I2");
}

#[tokio::test]
async fn nothing_that_was_released_is_lost_by_a_power_cut() {
    let mut tally = Tally::default();
    for seed in 0..seeds() {
        // Shown when it fails.
        println!("seed {seed}");
        let mut world = World::new(seed).await;
        let mut bench = Bench::start(&[world.hub.address]).await;
        for cut in 0..CUTS {
            let (state, outbox) = life(&mut world, bench, &mut tally).await;
            let nonce = seed * 100 + cut as u64 + 2;
            bench = Bench::over(&[world.hub.address], state, outbox, nonce).await;
        }
        let (_received, _following) = follow(&bench).await;
        let (seq, _) = world.hub.head(&private());
        bench.until_durable(&private(), seq).await;
        // A first snapshot waits until the pod worker has had its say about every pod.
        for n in (0..STAYING).filter(|n| !world.phases.contains_key(n)) {
            let key = format!("d/podstatus/stays-{n}");
            let content = r#"{"uid":"u","status":{"phase":"Pending"}}"#;
            eventually("the pod", || async {
                let outcome = bench.meta.ask("edged", Verb::Update, &key, content).await;
                matches!(outcome, Outcome::Done(_)).then_some(())
            })
            .await;
        }
        bench.meta.ask("edged", Verb::MetaSync, "", "").await;
        bench.until("an empty outbox", |status| status.outbox_depth == 0).await;
        check_replica(&world, &bench.state, seq);
        // The newest status that was taken is the newest that the cloud has.
        for (n, phase) in &world.phases {
            let reports = world.hub.reports();
            let last = reports.iter().rev().find_map(|report| match &report.body {
                ReportBody::PodStatus { pod, status, .. } if pod.name() == format!("stays-{n}") => {
                    Some(status)
                }
                _ => None,
            });
            let wanted = format!(r#"{{"phase":"{phase}"}}"#);
            assert_eq!(last.map(Bytes::as_ref), Some(wanted.as_bytes()), "stays-{n}");
        }
        bench.edge.stop().await;
    }
    println!("{tally:?}");
    assert!(tally.batches > 0 && tally.lost > 0, "the engines forget: {tally:?}");
    assert!(tally.received > 0 && tally.reports > 0, "the edge released something: {tally:?}");
}
