//! One writer after the other: a standby follows an orderly stop at once, and a death after a silence.

use std::path::Path;
use std::sync::{Condvar, Mutex};

use headwater_event::record::Heartbeat;
use headwater_event::{RecordKey, RequestError};
use headwater_store::position::CURSORS;
use headwater_store::{Durability, Engine, EngineError, KeyValue, Range, Read, WriteBatch};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::cloud::get;
use super::*;
use crate::source::objects::ObjectsSocket;

impl World {
    /// Two controllers of one log: the first writes, the other one started later and is a standby.
    pub(super) async fn pair(&self) -> (Running, Running) {
        let writing = self.start().await;
        writing.list([pod("p", "c")]).await;
        let standby = self.elsewhere().start().await;
        standby.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
        standby.send([SourceEvent::InitDone]).await;
        standby.stands_by().await;
        (writing, standby)
    }

    /// A standby that takes over from a writer that has stopped. Its source answers a takeover where the test says so,
    /// and is behind that of the writer: it has no pod.
    async fn successor_behind(&self) -> Running {
        let writing = self.start().await;
        writing.list([pod("p", "c")]).await;
        let (source, script) = ScriptedSource::new(SourceKind::OTHER);
        let sources: Vec<Box<dyn Source>> = vec![Box::new(script.answering())];
        let standby = self.elsewhere().start_with(sources, source).await;
        standby.send([SourceEvent::Init, SourceEvent::InitDone]).await;
        standby.stands_by().await;
        writing.controller.stop().await;
        standby
    }

    /// Waits for an event of the stream of the node.
    async fn until_event(&self, event: &str) {
        until_true(event, async || self.events_in("node/a").await.iter().any(|one| one == event))
            .await;
    }

    /// The highest epoch that was claimed.
    pub(super) async fn newest_epoch(&self) -> WriterEpoch {
        let (_, follower) = self.read().await;
        follower.acceptance().writer().map_or(WriterEpoch::default(), |claim| claim.epoch)
    }

    /// The signs of life in the log, by epoch: whether each says that it is the last.
    pub(super) async fn signs(&self) -> Vec<(WriterEpoch, bool)> {
        let mut signs = Vec::new();
        for StoredRecord { record, .. } in records_of(&self.downstream).await {
            let Ok(RecordKey::Heartbeat(epoch)) = RecordKey::decode(&record.key) else { continue };
            let value = record.value.as_deref().expect("a value");
            let sign: Heartbeat = serde_json::from_slice(value).expect("JSON");
            signs.push((epoch, sign.released));
        }
        signs
    }

    /// Whether the store has the whole log.
    async fn has_folded_all(&self) -> bool {
        for partition in [Partition(0), Partition(1)] {
            let bounds = self.downstream.bounds(partition).await.expect("readable");
            let cursor = CURSORS.get(&*self.published, &partition).expect("readable");
            if cursor.is_none_or(|cursor| cursor.next < bounds.high) {
                return false;
            }
        }
        true
    }

    /// The epochs whose writers released the log.
    async fn released(&self) -> Vec<WriterEpoch> {
        let signs = self.signs().await.into_iter();
        signs.filter_map(|(epoch, released)| released.then_some(epoch)).collect()
    }
}

impl Running {
    pub(super) async fn stands_by(&self) {
        let mut progress = self.controller.progress();
        let stands_by = progress.wait_for(|now| now.is_standby);
        timeout(SOON, stands_by).await.expect("soon").expect("it runs");
    }
}

#[tokio::test]
async fn a_controller_that_starts_beside_a_writer_claims_nothing() {
    let world = World::new();
    let (writing, mut standby) = world.pair().await;
    for _ in 0..3 {
        drop(standby);
        standby = world.elsewhere().start().await;
        standby.stands_by().await;
    }
    writing.set(config("c", 1, "x")).await;
    until_true("it writes on", async || {
        world.events_in("node/a").await.contains(&"+d/configmap/c".to_owned())
    })
    .await;
    assert_eq!(world.newest_epoch().await, WriterEpoch(1));
    writing.controller.stop().await;
}

#[tokio::test]
async fn a_standby_is_ready_once_its_sources_have_listed() {
    let world = World::new();
    let writing = world.start().await;
    writing.list([pod("p", "c")]).await;
    let standby = world.elsewhere().start().await;
    standby.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    standby.stands_by().await;
    let readiness = standby.controller.readiness();
    let unready = readiness.check().expect_err("a takeover would wait for the list");
    assert!(unready.starts_with("the sources have not all listed"), "{unready}");
    standby.send([SourceEvent::InitDone]).await;
    until_true("it is ready", async || readiness.check().is_ok()).await;
    assert!(standby.controller.progress().borrow().is_standby);
}

#[tokio::test]
async fn a_controller_that_wrote_last_or_is_alone_claims_at_once() {
    assert!(SOON < WriterTimings::default().silence_max());
    let world = World::new();
    let died = world.start().await;
    died.list([pod("p", "c")]).await;
    drop(died);
    // Killed, and started again over its own database, which remembers the claim.
    let again = world.start().await;
    again.list([pod("p", "c")]).await;
    drop(again);
    let alone = world.usurped().start().await;
    alone.list([pod("p", "c")]).await;
    assert_eq!(world.released().await, [], "no writer has released the log");
    assert_eq!(world.newest_epoch().await, WriterEpoch(3));
    alone.controller.stop().await;
}

#[tokio::test]
async fn a_standby_takes_over_at_once_when_the_writer_stops_in_order() {
    let world = World::new();
    let (writing, standby) = world.pair().await;
    let epoch = writing.controller.progress().borrow().epoch;
    writing.controller.stop().await;
    // Within far less than the silence that it takes otherwise.
    assert!(SOON < world.timings.silence_max());
    standby.reconciled(epoch.0).await;
    assert_eq!(world.released().await, [epoch]);
    standby.set(config("c", 1, "x")).await;
    until_true("it publishes", async || {
        world.events_in("node/a").await.contains(&"+d/configmap/c".to_owned())
    })
    .await;
    standby.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/configmap/c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_compares_nothing_before_its_sources_have_answered() {
    let world = World::new();
    let standby = world.successor_behind().await;
    let mut progress = standby.controller.progress();
    let is_late = |now: &Progress| now.trouble.as_ref().is_some_and(|it| it.contains("caught up"));
    let late = timeout(Duration::from_mins(1), progress.wait_for(is_late));
    let epoch = late.await.expect("it is named").expect("it runs").epoch.0;
    assert!(!progress.borrow().reconciled);
    world.check("node/a", &["d/pod/p"]).await;
    // A late answer counts as an early one does.
    let caught_up =
        [SourceEvent::Apply(pod("p", "c"), Cause::default()), SourceEvent::TakenOver { epoch }];
    standby.send(caught_up).await;
    standby.reconciled(epoch - 1).await;
    assert_eq!(progress.borrow().trouble, None);
    standby.controller.stop().await;
    world.check("node/a", &["d/pod/p"]).await;
    let removals = world.events_in("node/a").await.into_iter().filter(|it| it.starts_with('-'));
    assert_eq!(removals.collect::<Vec<_>>(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_writer_whose_sources_stay_behind_gives_the_log_to_a_standby() {
    let world = World::new();
    let behind = world.successor_behind().await;
    let mut progress = behind.controller.progress();
    let claimed = progress.wait_for(|now| !now.is_standby && now.epoch.0 > 1);
    let epoch = timeout(SOON, claimed).await.expect("soon").expect("it runs").epoch;
    let standby = world.elsewhere().start().await;
    standby.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    standby.send([SourceEvent::InitDone]).await;
    standby.stands_by().await;
    let mut progress = standby.controller.progress();
    let taken = progress.wait_for(|now| now.reconciled && now.epoch > epoch);
    timeout(Duration::from_hours(1), taken).await.expect("in time").expect("it runs");
    world.check("node/a", &["d/pod/p"]).await;
    drop(behind);
    standby.controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_from_a_writer_that_died_after_its_silence() {
    let timings = WriterTimings {
        heartbeat_interval: Duration::from_millis(200),
        heartbeats_missed: 3,
        ..WriterTimings::default()
    };
    let world = World { timings, ..World::new() };
    let (writing, standby) = world.pair().await;
    let epoch = writing.controller.progress().borrow().epoch;
    until_true("a sign of life", async || world.signs().await.contains(&(epoch, false))).await;
    let died = tokio::time::Instant::now();
    drop(writing);
    standby.reconciled(epoch.0).await;
    assert!(died.elapsed() > timings.heartbeat_interval, "it waits for a silence");
    assert_eq!(world.released().await, [], "a writer that died releases nothing");
    standby.controller.stop().await;
}

/// An engine whose scans wait while it is shut.
#[derive(Debug)]
struct ShutEngine {
    engine: Arc<MemoryEngine>,
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl ShutEngine {
    /// Shuts the engine until the result is dropped.
    fn shut(&self) -> Shut<'_> {
        *self.is_shut.lock().expect("no panic") = true;
        Shut(self)
    }

    fn wait(&self) {
        let is_shut = self.is_shut.lock().expect("no panic");
        drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).expect("no panic"));
    }
}

struct Shut<'a>(&'a ShutEngine);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        *self.0.is_shut.lock().expect("no panic") = false;
        self.0.opened.notify_all();
    }
}

impl Read for ShutEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.engine.get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.wait();
        self.engine.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.engine.last(range)
    }
}

impl Engine for ShutEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        self.engine.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_writer_keeps_the_log_while_it_compares_for_longer_than_a_silence() {
    for is_of_another in [false, true] {
        keeps_the_log_while_it_compares(is_of_another).await;
    }
}

/// `is_of_another`: another controller has published what the writer compares with, so it adopts the UIDs first.
async fn keeps_the_log_while_it_compares(is_of_another: bool) {
    // On a busy machine a heartbeat may be late by seconds.
    let timings = WriterTimings {
        heartbeat_interval: Duration::from_millis(100),
        heartbeats_missed: 40,
        ..WriterTimings::default()
    };
    let world = World { timings, ..World::new() };
    let own = if is_of_another { world.elsewhere() } else { world.clone() };
    if !is_of_another {
        let before = world.start().await;
        before.list([pod("p", "c")]).await;
        drop(before);
    }

    let (is_shut, opened) = (Mutex::default(), Condvar::new());
    let engine = Arc::new(ShutEngine { engine: own.published.clone(), is_shut, opened });
    let (source, script) = script();
    let log = world.downstream.handle();
    let logs =
        Logs { downstream: Arc::new(log.clone()), upstream: Arc::new(world.upstream.handle()) };
    let (controller, registry) =
        own.start_over(logs, engine.clone(), Box::new(PodRemoval), vec![script]).await;
    let writing = Running { controller, log, source, registry };
    if is_of_another {
        let before = world.start().await;
        before.list([pod("p", "c")]).await;
        before.controller.stop().await;
        until_true("a fold of the release", async || own.has_folded_all().await).await;
    }
    // Everything is published already, so the comparison appends nothing.
    let shut = engine.shut();
    writing.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    writing.send([SourceEvent::InitDone]).await;
    let mut progress = writing.controller.progress();
    let claimed = timeout(SOON, progress.wait_for(|now| now.epoch.0 == 2)).await;
    claimed.expect("soon").expect("it runs");
    let standby = world.elsewhere().start().await;
    standby.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    standby.send([SourceEvent::InitDone]).await;
    standby.stands_by().await;
    // A reader on the worker of the heartbeats.
    let picture = writing.controller.picture().clone();
    let reader = tokio::spawn(async move {
        loop {
            let _ = picture.nodes();
            tokio::time::sleep(POLL).await;
        }
    });
    let beats = || async { world.signs().await.iter().filter(|(epoch, _)| epoch.0 == 2).count() };
    let enough = beats().await + timings.heartbeats_missed as usize + 10;
    // Each may be late.
    let is_enough = async || beats().await >= enough;
    until_true_within(6 * SOON, "heartbeats for more than a silence", is_enough).await;
    assert!(!writing.controller.progress().borrow().reconciled, "it compares");
    drop(shut);
    reader.abort();
    assert_eq!(writing.reconciled(0).await, WriterEpoch(2));
    assert_eq!(world.newest_epoch().await, WriterEpoch(2));
    writing.controller.stop().await;
}

impl World {
    /// A controller whose source follows until the test drops the sender.
    async fn start_failing(&self) -> (Running, mpsc::Sender<SourceEvent>) {
        let (sender, source) = ScriptedSource::new(SourceKind::OTHER);
        let running = self.start_with(vec![Box::new(source.failing())], sender.clone()).await;
        // The other sender is never dropped before the controller.
        let (source, _) = mpsc::channel(1);
        (Running { source, ..running }, sender)
    }
}

#[tokio::test]
async fn a_controller_claims_only_when_its_sources_have_listed() {
    let world = World::new();
    let writing = world.start().await;
    writing.list([pod("p", "c")]).await;
    let unlisted = world.elsewhere().start().await;
    unlisted.stands_by().await;
    writing.controller.stop().await;
    // A log that is free is left to another one that can list.
    let listed = world.elsewhere().start().await;
    listed.list([pod("p", "c"), pod("q", "c")]).await;
    assert_eq!(listed.controller.progress().borrow().epoch, WriterEpoch(2));
    listed.controller.stop().await;
    unlisted.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    unlisted.send([SourceEvent::InitDone]).await;
    assert_eq!(unlisted.reconciled(2).await, WriterEpoch(3));
    unlisted.controller.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_lost_its_sources_yields_to_a_standby_whose_sources_follow() {
    let timings = WriterTimings {
        heartbeat_interval: Duration::from_millis(50),
        heartbeats_missed: 10,
        source_loss_max: Duration::from_millis(100),
    };
    let world = World { timings, ..World::new() };
    let (lost, source) = world.start_failing().await;
    let list = [SourceEvent::Init, SourceEvent::InitApply(pod("p", "c")), SourceEvent::InitDone];
    for event in list {
        source.send(event).await.expect("listened to");
    }
    lost.reconciled(0).await;
    drop(source);
    // It writes on while no other controller can.
    let yielded = || async { world.read().await.1.acceptance().is_yielded() };
    until_true("a heartbeat that yields", yielded).await;
    let unlisted = world.elsewhere().start().await;
    unlisted.stands_by().await;
    until_true("heartbeats", async || world.signs().await.len() > 10).await;
    assert_eq!(world.newest_epoch().await, WriterEpoch(1));

    let follows = world.elsewhere().start().await;
    follows.list([pod("p", "c"), pod("q", "c")]).await;
    assert_eq!(follows.controller.progress().borrow().epoch, WriterEpoch(2));
    lost.stands_by().await;
    assert!(!yielded().await, "the new writer keeps the log");
    // A hub that has not moved yet has an answer in words from the old writer.
    let answer = lost.controller.cloud().respond(get("a", "d/pod/p")).await;
    let Err(RequestError::Unavailable(why)) = answer else { panic!("{answer:?}") };
    assert!(why.contains("is a standby"), "{why}");
    follows.controller.cloud().respond(get("a", "d/pod/p")).await.expect("the new one answers");

    // What the lost sources listed is older than what was published since: a silence changes
    // nothing for that controller.
    drop(follows);
    let next = world.elsewhere().start().await;
    next.list([pod("p", "c"), pod("q", "c")]).await;
    assert_eq!(next.controller.progress().borrow().epoch, WriterEpoch(3));
    world.check("node/a", &["d/pod/p", "d/pod/q"]).await;
    assert_eq!(world.events_in("node/a").await, ["+d/pod/p", "+d/pod/q"]);
    next.controller.stop().await;
}

#[tokio::test]
async fn a_writer_that_lost_its_sources_claims_its_own_log_again() {
    let world = World::new();
    let (lost, source) = world.start_failing().await;
    for event in [SourceEvent::Init, SourceEvent::InitApply(pod("p", "c")), SourceEvent::InitDone] {
        source.send(event).await.expect("listened to");
    }
    lost.reconciled(0).await;
    drop(source);
    until_true("the loss", async || !lost.controller.source_states().borrow().all_follow()).await;
    lost.log.inject_fault(AppendFault::UnknownLost);
    // A report that does not match asks for a snapshot, which is an append.
    let closed =
        SnapshotClosed { hash: StateHash::EMPTY, pods: 3, full: false, first: ReportId::default() };
    world.report("a", 1, ReportBody::SnapshotClosed(closed)).await;
    lost.reconciled(1).await;
    lost.controller.stop().await;
}

#[tokio::test]
async fn a_standby_stops_without_a_record() {
    let world = World::new();
    let (writing, standby) = world.pair().await;
    let epoch = writing.controller.progress().borrow().epoch;
    standby.controller.stop().await;
    assert_eq!(world.released().await, []);
    writing.set(config("c", 1, "x")).await;
    until_true("the other writes on", async || {
        world.events_in("node/a").await.contains(&"+d/configmap/c".to_owned())
    })
    .await;
    assert_eq!(writing.controller.progress().borrow().epoch, epoch);
    writing.controller.stop().await;
}

/// A pod as a controller makes it of a manifest, with a UID of its own.
fn described(name: &str, uid: &str, command: &str) -> Object {
    let mut value = pod_value(name, "c");
    value["metadata"]["uid"] = uid.into();
    value["metadata"]["annotations"] = json!({"headwater/manifest": "p.yaml"});
    value["spec"]["containers"][0]["command"] = json!([command]);
    object(value)
}

impl World {
    /// The UIDs of what came to the node and left it, in order.
    async fn uids(&self) -> Vec<String> {
        let (events, _) = self.read().await;
        let of_pod = |event: &&Envelope| {
            event.event.key().and_then(EntryKey::resource).is_some_and(|key| key.kind() == "pod")
        };
        let text = |event: &Envelope| {
            let sign = if matches!(event.event, Event::Removed(_)) { '-' } else { '+' };
            format!("{sign}{}", event.event.uid())
        };
        events.iter().filter(of_pod).map(text).collect()
    }

    /// A writer that has published the pods `p` and `q`, and a standby whose source drew other UIDs for
    /// them.
    async fn start_with_standby(&self) -> (Running, Running) {
        let writing = self.start().await;
        writing.list([described("p", "p1", "x"), described("q", "q1", "x")]).await;
        let standby = self.elsewhere().start().await;
        standby.send([SourceEvent::Init]).await;
        let same = [described("p", "p2", "x"), described("q", "q2", "x")];
        standby.send(same.into_iter().map(SourceEvent::InitApply)).await;
        standby.send([SourceEvent::InitDone]).await;
        (writing, standby)
    }
}

#[tokio::test]
async fn a_new_writer_keeps_the_uids_of_published_pods() {
    let world = World::new();
    let (writing, standby) = world.start_with_standby().await;
    standby.stands_by().await;
    writing.controller.stop().await;
    standby.reconciled(1).await;
    assert_eq!(world.uids().await, ["+p1", "+q1"], "no event is appended twice");

    // What its source says goes on under the UIDs that it drew.
    standby.delete("d/pod/p", "p2").await;
    until_true("it is gone", async || world.uids().await.len() == 3).await;
    standby.set(described("p", "p3", "y")).await;
    until_true("another pod", async || world.uids().await.len() == 4).await;
    assert_eq!(world.uids().await[2..], ["-p1", "+p3"]);

    // A third one never knew either of them, and one is described in another way by now.
    let third = world.elsewhere().start().await;
    third.send([SourceEvent::Init]).await;
    let now = [described("p", "p4", "y"), described("q", "q4", "z")];
    third.send(now.into_iter().map(SourceEvent::InitApply)).await;
    third.send([SourceEvent::InitDone]).await;
    third.stands_by().await;
    standby.controller.stop().await;
    third.reconciled(2).await;
    let uids = world.uids().await;
    assert_eq!(uids.len(), 5, "{uids:?}");
    // Not the one that the source drew: had this controller written before, it might be spent.
    let is_new = uids[4].starts_with('+') && !["+q1", "+q4"].contains(&&*uids[4]);
    assert!(is_new, "another q, with a UID that nobody had: {uids:?}");
    third.controller.stop().await;
}

#[tokio::test]
async fn a_standby_adopts_published_uids_ahead_and_a_take_over_only_what_changed_since() {
    let world = World::new();
    let (writing, standby) = world.start_with_standby().await;
    let uid = async |name: &str| {
        let key = format!("d/pod/{name}").parse().expect("a key");
        standby.controller.picture().object(&key).map(|object| object.uid().to_owned())
    };
    until_true("the published UIDs", async || {
        uid("p").await.as_deref() == Some("p1") && uid("q").await.as_deref() == Some("q1")
    })
    .await;
    assert!(standby.controller.progress().borrow().is_standby, "before it takes over");

    // Both sources describe another p, and a new pod.
    for (running, uids) in [(&writing, ["p3", "r3"]), (&standby, ["p4", "r4"])] {
        running.delete("d/pod/p", if uids[0] == "p3" { "p1" } else { "p2" }).await;
        running.set(described("p", uids[0], "y")).await;
        running.set(described("r", uids[1], "x")).await;
    }
    until_true("what the writer publishes", async || world.uids().await.len() >= 4).await;
    until_true("the last of it", async || {
        world.uids().await.last().is_some_and(|last| last == "+r3")
    })
    .await;
    until_true("what the standby lists", async || uid("r").await.is_some()).await;
    let published = world.uids().await;
    writing.controller.stop().await;
    standby.reconciled(1).await;
    assert_eq!(world.uids().await, published, "no event is appended twice");
    assert_eq!(uid("p").await.as_deref(), Some("p3"));
    standby.controller.stop().await;
}

/// Sends lines to an objects socket. Returns how many it accepted.
async fn send_lines(socket: &Path, lines: &[Value]) -> u64 {
    let mut stream = UnixStream::connect(socket).await.expect("it listens");
    for line in lines {
        stream.write_all(format!("{line}\n").as_bytes()).await.expect("taken");
    }
    stream.shutdown().await.expect("shut down");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.expect("answered");
    let last: Value = serde_json::from_str(answers.lines().last().expect("one")).expect("JSON");
    last["accepted"].as_u64().expect("a count")
}

/// The line that sends an object.
fn line(object: &Object) -> Value {
    json!({"object": object.versioned_value()})
}

#[tokio::test]
async fn a_claim_that_the_log_took_without_an_answer_is_no_other_controllers() {
    // Another controller's claim would count for a silence of this length.
    assert!(SOON < WriterTimings::default().silence_max());
    for (restarts, faults) in [
        (false, [AppendFault::UnknownWritten].as_slice()),
        (false, &[AppendFault::UnknownLost, AppendFault::UnknownWrittenLater]),
        (true, &[AppendFault::UnknownWritten]),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::new();
        let socket = folder.path().join("a.sock");
        let start = async || {
            let (source, script) = script();
            let objects = Box::new(ObjectsSocket::new(&socket));
            let running = world.start_with(vec![objects, script], source).await;
            until_true("it listens", async || UnixStream::connect(&socket).await.is_ok()).await;
            running
        };
        let mut running = start().await;
        assert_eq!(send_lines(&socket, &[line(&pod("accepted", "c"))]).await, 1);
        faults.iter().for_each(|fault| running.log.inject_fault(fault.clone()));
        running.send([SourceEvent::Init, SourceEvent::InitDone]).await;
        if restarts {
            // It is killed before it tries again.
            until_true("the claim", async || world.newest_epoch().await > WriterEpoch(0)).await;
            drop(running);
            running = start().await;
            assert_eq!(send_lines(&socket, &[line(&pod("accepted", "c"))]).await, 1);
            running.send([SourceEvent::Init, SourceEvent::InitDone]).await;
        }
        until_true("published", async || {
            running.log.deliver_late();
            world.events_in("node/a").await.contains(&"+d/pod/accepted".to_owned())
        })
        .await;
        running.reconciled(0).await;
        assert_eq!(world.events_in("node/a").await, ["+d/pod/accepted"], "{faults:?}");
        running.controller.stop().await;
    }
}

#[tokio::test]
async fn a_successor_keeps_what_came_over_the_sockets_of_its_predecessors() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::new();
    let start = async |world: &World, socket: &Path| {
        let (source, _) = script();
        let objects: Vec<Box<dyn Source>> = vec![Box::new(ObjectsSocket::new(socket))];
        world.start_with(objects, source).await
    };
    let sockets = [folder.path().join("a.sock"), folder.path().join("b.sock")];
    let writing = start(&world, &sockets[0]).await;
    writing.reconciled(0).await;
    let begin = [line(&pod("stays", "c")), line(&pod("goes", "c")), line(&config("c", 1, "x"))];
    assert_eq!(send_lines(&sockets[0], &begin).await, 3);
    world.until_event("+d/pod/goes").await;

    // It lists what is published now, and the writer's clients go on.
    let standby = start(&world.elsewhere(), &sockets[1]).await;
    standby.stands_by().await;
    let readiness = standby.controller.readiness();
    until_true("it has listed", async || readiness.check().is_ok()).await;
    assert_eq!(send_lines(&sockets[1], &[line(&pod("refused", "c"))]).await, 0);
    let later = [json!({"delete": "d/pod/goes"}), line(&pod("comes", "c"))];
    assert_eq!(send_lines(&sockets[0], &later).await, 2);
    world.until_event("+d/pod/comes").await;
    writing.controller.stop().await;

    let epoch = standby.reconciled(1).await;
    let before = world.events_in("node/a").await;
    let removed = before.iter().filter(|event| event.starts_with('-'));
    assert_eq!(removed.collect::<Vec<_>>(), ["-d/pod/goes"], "{before:?}");
    assert_eq!(send_lines(&sockets[1], &[line(&pod("last", "c"))]).await, 1);
    world.until_event("+d/pod/last").await;
    assert_eq!(epoch, WriterEpoch(2));
    standby.controller.stop().await;
    let pods = ["stays", "comes", "last"].map(|name| format!("d/pod/{name}"));
    let expected: Vec<&str> = pods.iter().map(String::as_str).chain(["d/configmap/c"]).collect();
    world.check("node/a", &expected).await;
}
