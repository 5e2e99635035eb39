//! The controller over logs in memory: differences only, and nothing lost or doubled.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use headwater_check::{State, once::Once, prefix};
use headwater_event::report::{Incarnation, SnapshotClosed};
use headwater_event::upstream::encode_report;
use headwater_event::{
    Boot, Checkpoint, EntryKey, Envelope, Event, NodeProgress, NodeStreamProgress, ObjectHash,
    Partition, Report, ReportBody, ReportId, ReportKey, ResourceKey, Seq, StateHash, StreamId,
    WriterEpoch,
};
use headwater_follow::Follower;
use headwater_log::{
    Append, AppendFault, CatchUpTarget, MemoryLog, MemorySettings, Outcome, PartitionFault, Record,
    StoredRecord, start_cursors,
};
use headwater_object::Object;
use headwater_store::MemoryEngine;
use headwater_view::{NODE_PODS_MAX, PodStatusFold, PodStatusSnapshot, Selection, StreamReader};
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::picture::Filter;
use crate::publisher::GROUP_EVENTS;
use crate::sink::PodRemoval;
use crate::source::scripted::ScriptedSource;
use crate::source::{Cause, SourceContext, SourceError, SourceEvent};

mod cloud;
mod cluster_stream;
mod damage;
mod departed_nodes;
mod fold_reads;
mod handover;
mod key_repair;
mod large_objects;
mod leaving_pods;
mod log_recreation;
mod metrics;
mod partitions;
mod picture_changes;
mod power_loss;
mod registrations;
mod reports;
mod shared_objects;
mod sinks;
mod slow_log;
mod takeover_time;
mod terminations;
mod wanted;

const SOON: Duration = Duration::from_secs(10);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(1);

fn script() -> (mpsc::Sender<SourceEvent>, Box<dyn Source>) {
    let (sender, source) = ScriptedSource::new(SourceKind::OTHER);
    (sender, Box::new(source))
}

/// Logs and disks, which outlive controllers.
#[derive(Clone)]
struct World {
    downstream: MemoryLog,
    upstream: MemoryLog,
    published: Arc<MemoryEngine>,
    picture: Arc<MemoryEngine>,
    timings: WriterTimings,
    group_events: usize,
    sole_writer: bool,
    cluster_stream: ClusterStream,
}

/// The logs as one controller reaches them.
struct Logs {
    downstream: Arc<dyn Log>,
    upstream: Arc<dyn Log>,
}

struct Running {
    controller: ControllerHandle,
    /// The controller's own handle on the downstream log.
    log: MemoryLog,
    source: mpsc::Sender<SourceEvent>,
    registry: Registry,
}

impl World {
    fn new() -> Self {
        Self::with(MemorySettings { partitions: 2, ..MemorySettings::default() })
    }

    fn with(settings: MemorySettings) -> Self {
        // No heartbeat comes meanwhile: it would take a fault that is planned for another append, and count
        // among the appends in flight.
        let timings = WriterTimings { heartbeat_interval: SOON * 6, ..WriterTimings::default() };
        Self {
            downstream: MemoryLog::new(settings),
            upstream: MemoryLog::new(MemorySettings { partitions: 2, ..settings }),
            published: Arc::new(MemoryEngine::new()),
            picture: Arc::new(MemoryEngine::new()),
            timings,
            group_events: GROUP_EVENTS,
            sole_writer: false,
            cluster_stream: ClusterStream::Always,
        }
    }

    /// The same logs, other disks.
    fn elsewhere(&self) -> Self {
        let (published, picture) = (Arc::new(MemoryEngine::new()), Arc::new(MemoryEngine::new()));
        Self { published, picture, ..self.clone() }
    }

    /// The same logs, and a controller that takes itself for the only one: it takes them over.
    fn usurped(&self) -> Self {
        Self { sole_writer: true, ..self.elsewhere() }
    }

    async fn start(&self) -> Running {
        let (source, script) = script();
        self.start_with(vec![script], source).await
    }

    async fn start_with(
        &self,
        sources: Vec<Box<dyn Source>>,
        source: mpsc::Sender<SourceEvent>,
    ) -> Running {
        self.start_reading(self.upstream.handle(), sources, source).await
    }

    async fn start_reading(
        &self,
        upstream: MemoryLog,
        sources: Vec<Box<dyn Source>>,
        source: mpsc::Sender<SourceEvent>,
    ) -> Running {
        self.start_all(upstream, Box::new(PodRemoval), sources, source).await
    }

    async fn start_sink(
        &self,
        sink: Box<dyn Sink>,
        sources: Vec<Box<dyn Source>>,
        source: mpsc::Sender<SourceEvent>,
    ) -> Running {
        self.start_all(self.upstream.handle(), sink, sources, source).await
    }

    async fn start_all(
        &self,
        upstream: MemoryLog,
        sink: Box<dyn Sink>,
        sources: Vec<Box<dyn Source>>,
        source: mpsc::Sender<SourceEvent>,
    ) -> Running {
        let log = self.downstream.handle();
        let logs = Logs { downstream: Arc::new(log.clone()), upstream: Arc::new(upstream) };
        let published = self.published.clone();
        let (controller, registry) = self.start_over(logs, published, sink, sources).await;
        Running { controller, log, source, registry }
    }

    async fn start_over(
        &self,
        logs: Logs,
        published: Arc<dyn Engine>,
        sink: Box<dyn Sink>,
        sources: Vec<Box<dyn Source>>,
    ) -> (ControllerHandle, Registry) {
        let clock = self.downstream.clone();
        let registry = Registry::new();
        let dependencies = ControllerDependencies {
            downstream: logs.downstream,
            upstream: logs.upstream,
            published,
            picture: self.picture.clone(),
            sources,
            sink,
            nodes: Vec::new(),
            address: None,
            wall_clock: Arc::new(move || clock.now_ms()),
            timings: self.timings,
            group_events: self.group_events,
            sole_writer: self.sole_writer,
            shares_objects: true,
            cluster_stream: self.cluster_stream,
            metrics: ControllerMetrics::new(&registry).expect("a fresh registry"),
        };
        (Controller::start(dependencies).await.expect("starts"), registry)
    }

    /// Every event that counts, and the fold of all.
    async fn read(&self) -> (Vec<Envelope>, Follower<()>) {
        let clock = self.downstream.clone();
        let clock: WallClock = Arc::new(move || clock.now_ms());
        let engine = Arc::new(MemoryEngine::new());
        let mut follower =
            Follower::open(&self.downstream, engine, (), clock).await.expect("readable");
        let mut events = Vec::new();
        while !follower.is_folded() {
            for outcome in follower.next().await.expect("readable").outcomes {
                if let Outcome::Accepted(envelope) = outcome {
                    events.push(envelope);
                }
            }
        }
        assert!(follower.damaged().is_empty());
        (events, follower)
    }

    /// The events of pods and ConfigMaps in a stream, in order.
    async fn events_in(&self, stream: &str) -> Vec<String> {
        let stream: StreamId = stream.parse().expect("a stream");
        let (events, _) = self.read().await;
        events.iter().filter(|event| event.stream == stream).filter_map(event_text).collect()
    }

    /// The fold holds exactly these pods and ConfigMaps, each event counted once (I1, I3).
    async fn check(&self, stream: &str, expected: &[&str]) {
        let stream: StreamId = stream.parse().expect("a stream");
        let (events, follower) = self.read().await;
        let mut once = Once::default();
        for event in events.iter().filter(|event| event.stream == stream) {
            let log_id = follower.acceptance().metadata().log_id;
            let to = Checkpoint { log_id, epoch: event.epoch, seq: event.seq };
            once.events(&stream, Seq(event.seq.0 - 1), to).expect("I3");
        }
        let reader = StreamReader::new(&**follower.state().engine());
        let mut state = State::default();
        for (key, entry) in reader.entries(&stream, Selection::All, None, 1000).expect("readable") {
            state.apply(&headwater_event::Change::Applied(headwater_event::Applied {
                key,
                uid: entry.uid,
                resource_version: String::new(),
                object: entry.object,
            }));
        }
        let own = events.iter().filter(|event| event.stream == stream);
        prefix::check(own, &stream, Seq(u64::MAX), &state).expect("I1");
        let keys: Vec<String> = state
            .entries
            .keys()
            .filter_map(EntryKey::resource)
            .map(ToString::to_string)
            .filter(|key| key.contains("/pod/") || key.contains("/configmap/"))
            .collect();
        let expected: BTreeSet<_> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    async fn report(&self, node: &str, seq: u64, body: ReportBody) {
        let node: NodeName = node.parse().expect("a name");
        let id = ReportId { incarnation: Incarnation(1), boot: 1, seq };
        let report = Report { id, body, traceparent: None };
        let encoded = encode_report(&node, &report).expect("well-formed");
        let record = Record {
            key: encoded.key,
            value: encoded.value,
            header: encoded.header,
            traceparent: None,
        };
        self.append_upstream(&node, record).await;
    }

    async fn append_upstream(&self, node: &NodeName, record: Record) {
        let partition = StreamId::node(node).partition(2);
        self.upstream.append(vec![Append { partition, record }]).await.expect("appended");
    }
}

/// Every record of a log.
async fn records_of(log: &MemoryLog) -> Vec<StoredRecord> {
    let cursors = start_cursors(log).await.expect("readable");
    let mut ends = CatchUpTarget::ahead_of(log, &cursors).await.expect("readable");
    let mut reader = log.read(cursors).await.expect("readable");
    let mut records = Vec::new();
    while !ends.is_reached() {
        let batch = reader.next().await.expect("readable");
        ends.pass(&batch.cursor);
        records.extend(batch.records);
    }
    records
}

fn event_text(event: &Envelope) -> Option<String> {
    let key = event.event.key()?.to_string();
    let is_listed = key.contains("/pod/") || key.contains("/configmap/") || key.contains("request");
    let sign = if matches!(event.event, Event::Removed(_)) { '-' } else { '+' };
    is_listed.then(|| format!("{sign}{key}"))
}

impl Running {
    async fn send(&self, events: impl IntoIterator<Item = SourceEvent>) {
        for event in events {
            self.source.send(event).await.expect("listened to");
        }
    }

    async fn list(&self, objects: impl IntoIterator<Item = Object>) {
        self.send([SourceEvent::Init]).await;
        self.send(objects.into_iter().map(SourceEvent::InitApply)).await;
        self.send([SourceEvent::InitDone]).await;
        self.reconciled(0).await;
    }

    /// Waits until everything is published under an epoch above `epoch`.
    async fn reconciled(&self, epoch: u64) -> WriterEpoch {
        let mut progress = self.controller.progress();
        let reached = progress.wait_for(|now| now.reconciled && now.epoch.0 > epoch);
        let reached = timeout(SOON, reached).await.expect("soon").expect("it runs");
        reached.epoch
    }

    /// Waits until the reports of `node` are in the picture.
    async fn folds(&self, node: &str) {
        let partition = StreamId::node(&node.parse().expect("a name")).partition(2);
        let lag = format!("headwater_controller_upstream_lag_records{{partition=\"{partition}\"}}");
        until_true("the fold", async || metrics::value(&self.registry, &lag) == Some(0.0)).await;
    }

    async fn set(&self, object: Object) {
        self.send([SourceEvent::Apply(object, Cause::default())]).await;
    }

    async fn delete(&self, key: &str, uid: &str) {
        let (key, uid) = (key.parse().expect("a key"), uid.to_owned());
        self.send([SourceEvent::Delete { key, uid, cause: Cause::default() }]).await;
    }
}

async fn until_true(what: &str, done: impl AsyncFn() -> bool) {
    until_true_within(SOON, what, done).await;
}

async fn until_true_within(within: Duration, what: &str, done: impl AsyncFn() -> bool) {
    let end = Instant::now() + within;
    while !done().await {
        assert!(Instant::now() < end, "{what} did not come to be");
        // Timers fire while the runtime has nothing to do.
        tokio::time::sleep(POLL).await;
    }
}

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn pod_value(name: &str, config: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": format!("u-{name}")},
        "spec": {"nodeName": "a", "containers": [
            {"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": config}}]},
        ]},
    })
}

fn pod(name: &str, config: &str) -> Object {
    object(pod_value(name, config))
}

fn config(name: &str, version: u32, data: &str) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": name, "namespace": "d", "uid": format!("u-{name}"),
            "resourceVersion": version.to_string(),
        },
        "data": {"k": data},
    }))
}

#[tokio::test]
async fn only_differences_are_appended_and_what_a_pod_names_keeps_to_its_side_of_it() {
    let world = World::new();
    let running = world.start().await;
    running.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    running.send([SourceEvent::InitApply(config("c", 1, "x"))]).await;
    let listed = config("c", 1, "x");
    let is_there = async || running.controller.picture().object(listed.key()).is_some();
    until_true("the part that is listed", is_there).await;
    assert_eq!(world.newest_epoch().await, WriterEpoch(0), "no claim before everything is listed");
    running.send([SourceEvent::InitDone]).await;
    running.reconciled(0).await;
    assert_eq!(world.events_in("node/a").await, ["+d/configmap/c", "+d/pod/p"]);

    running.set(config("c", 2, "x")).await;
    running.set(config("c", 3, "y")).await;
    until_true("the change", async || world.events_in("node/a").await.len() == 3).await;
    assert_eq!(world.events_in("node/a").await[2], "+d/configmap/c", "and not the version alone");

    // In one group, whatever other changes arrive in between.
    running.set(config("c", 4, "z")).await;
    running.delete("d/pod/p", "u-p").await;
    until_true("the removal", async || {
        world.events_in("node/a").await.last().is_some_and(|last| last == "-d/configmap/c")
    })
    .await;
    let events = world.events_in("node/a").await;
    assert_eq!(events[events.len() - 2..], ["-d/pod/p", "-d/configmap/c"]);
    running.controller.stop().await;
    world.check("node/a", &[]).await;
}

#[tokio::test]
async fn a_restart_appends_only_what_changed_meanwhile_missed_deletes_included() {
    for loses_its_disk in [false, true] {
        let world = World::new();
        let running = world.start().await;
        running
            .list([pod("p", "c"), pod("q", "e"), config("c", 1, "x"), config("e", 1, "x")])
            .await;
        running.controller.stop().await;
        let before = world.events_in("node/a").await;
        assert_eq!(before.len(), 4);
        // Meanwhile a pod went, one came, an object changed, and another in its version alone.
        let later = if loses_its_disk { world.elsewhere() } else { world.clone() };
        let now = [pod("p", "c"), pod("r", "f"), config("c", 9, "x"), config("f", 2, "y")];
        for _ in 0..2 {
            let running = later.start().await;
            running.list(now.clone()).await;
            running.controller.stop().await;
            let events = world.events_in("node/a").await;
            let expected = ["+d/configmap/f", "+d/pod/r", "-d/pod/q", "-d/configmap/e"];
            assert_eq!(events[4..], expected, "and nothing more the second time");
        }
        world.check("node/a", &["d/pod/p", "d/pod/r", "d/configmap/c", "d/configmap/f"]).await;
    }
}

#[tokio::test]
async fn after_an_append_of_unknown_outcome_the_next_epoch_loses_and_doubles_nothing() {
    for fault in [
        AppendFault::UnknownWritten,
        AppendFault::UnknownLost,
        AppendFault::UnknownSome(vec![true, false, true]),
        AppendFault::UnknownSome(vec![false, true]),
    ] {
        let world = World::new();
        let running = world.start().await;
        running.list([config("c", 1, "x")]).await;
        running.log.inject_fault(fault.clone());
        running.set(config("c", 2, "y")).await;
        running.set(pod("p", "c")).await;
        running.set(pod("q", "c")).await;
        let epoch = running.reconciled(1).await;
        until_true("both pods", async || {
            let events = world.events_in("node/a").await;
            ["+d/pod/p", "+d/pod/q"].iter().all(|pod| events.iter().any(|one| one == pod))
        })
        .await;
        assert_eq!(epoch, WriterEpoch(2), "{fault:?}");
        running.controller.stop().await;
        world.check("node/a", &["d/pod/p", "d/pod/q", "d/configmap/c"]).await;
    }
}

#[tokio::test]
async fn a_record_of_a_former_epoch_that_comes_late_is_mended() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    running.log.inject_fault(AppendFault::UnknownWrittenLater);
    running.set(config("c", 2, "y")).await;
    running.reconciled(1).await;
    let was = world.events_in("node/a").await.len();
    assert_eq!(running.log.deliver_late(), 1);
    until_true("the truth again", async || world.events_in("node/a").await.len() > was).await;
    running.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/configmap/c"]).await;
    // Compaction would have kept the late record, were it the last of its key.
    world.downstream.advance_clock(MemorySettings::default().replay_window_ms + 1);
    world.downstream.compact();
    let (_, follower) = world.read().await;
    assert!(follower.damaged().is_empty(), "I11");
}

#[tokio::test]
async fn a_controller_that_wakes_behind_another_claim_is_a_standby() {
    let world = World::new();
    let first = world.start().await;
    first.list([pod("p", "c"), config("c", 1, "x")]).await;
    first.log.set_frozen(true);
    first.set(config("c", 2, "frozen")).await;
    first.set(pod("frozen", "c")).await;

    let second = world.usurped().start().await;
    second.list([pod("p", "c"), config("c", 3, "second")]).await;
    first.log.set_frozen(false);
    let mut progress = first.controller.progress();
    let trouble = progress.wait_for(|now| now.trouble.is_some());
    timeout(SOON, trouble).await.expect("soon").expect("it runs");
    second.set(config("c", 4, "third")).await;
    until_true("the next", async || {
        let (events, _) = world.read().await;
        events.iter().any(|event| event.event.resource_version() == "4")
    })
    .await;
    assert_eq!(second.controller.progress().borrow().epoch, WriterEpoch(2), "one writes");
    assert!(!first.controller.progress().borrow().reconciled);
    first.controller.stop().await;
    second.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/configmap/c"]).await;
}

#[tokio::test]
async fn the_picture_of_a_standby_follows_the_reports() {
    let world = World::new();
    let first = world.start().await;
    first.list([pod("p", "c"), config("c", 1, "x")]).await;
    let second = world.usurped().start().await;
    second.list([pod("p", "c"), config("c", 1, "x")]).await;
    let mut progress = first.controller.progress();
    let trouble = progress.wait_for(|now| now.trouble.is_some());
    timeout(SOON, trouble).await.expect("soon").expect("it runs");
    for seq in 1..=600 {
        let pod = format!("d/pod/gone{seq}").parse().expect("a key");
        world.report("a", seq, ReportBody::PodTerminated { pod, uid: "u".to_owned() }).await;
    }
    world.report("a", 601, status("Running")).await;
    until_true("a status", async || phase(&first).await.as_deref() == Some("Running")).await;
    first.controller.stop().await;
    second.controller.stop().await;
}

#[tokio::test]
async fn an_object_that_no_log_takes_is_left_out_and_the_rest_goes_on() {
    let settings = MemorySettings { partitions: 2, record_bytes_max: 4000, ..Default::default() };
    let world = World::with(settings);
    let running = world.start().await;
    // Digits of hashes, so that compression does not make it small.
    let large: String =
        (0..200).map(|n: u32| blake3::hash(&n.to_le_bytes()).to_hex()[..].to_owned()).collect();
    running
        .list([pod("p", "large"), config("large", 1, &large), pod("q", "c"), config("c", 1, "x")])
        .await;
    running.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/pod/q", "d/configmap/c"]).await;
}

#[tokio::test]
async fn the_trace_of_the_last_cause_goes_with_the_event() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c")]).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let cause = Cause { traceparent: Some(trace.to_owned()), ..Cause::default() };
    running.send([SourceEvent::Apply(config("c", 1, "x"), cause)]).await;
    until_true("the event", async || world.events_in("node/a").await.len() == 2).await;
    running.controller.stop().await;
    let (events, _) = world.read().await;
    let of = events.iter().find(|event| event_text(event).is_some_and(|s| s == "+d/configmap/c"));
    assert_eq!(of.and_then(|event| event.traceparent.as_deref()), Some(trace));
}

#[tokio::test]
async fn what_one_source_lists_does_not_remove_what_another_source_sent() {
    let world = World::new();
    let (a, first) = script();
    let (b, second) = script();
    let running = world.start_with(vec![first, second], a).await;
    running.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    running.send([SourceEvent::InitDone]).await;
    for event in
        [SourceEvent::Init, SourceEvent::InitApply(config("c", 1, "x")), SourceEvent::InitDone]
    {
        b.send(event).await.expect("listened to");
    }
    running.reconciled(0).await;
    running.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/configmap/c"]).await;
}

#[tokio::test]
async fn a_log_made_again_gets_the_next_number_and_everything_anew() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let (_, follower) = world.read().await;
    let was = follower.acceptance().metadata().log_id;
    world.downstream.recreate(2);
    until_true("the pods in the new log", async || {
        world.downstream.bounds(Partition(0)).await.is_ok_and(|bounds| bounds.high.0 > 0)
            && world.events_in("node/a").await.len() == 2
    })
    .await;
    let (_, follower) = world.read().await;
    assert!(follower.acceptance().metadata().log_id.follows(&was));
    running.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/configmap/c"]).await;
}

#[tokio::test]
async fn a_log_made_again_gets_the_next_number_from_a_controller_that_never_knew_it() {
    let world = World::new();
    let running = world.start().await;
    running.list([pod("p", "c"), config("c", 1, "x")]).await;
    let (_, follower) = world.read().await;
    let was = follower.acceptance().metadata().log_id;
    running.controller.stop().await;
    let node: NodeName = "a".parse().expect("a name");
    let stream = NodeStreamProgress {
        stream: StreamId::node(&node),
        log_id: was.to_string(),
        tail: Seq(1),
        sent: Seq(1),
        applied: Seq(1),
        durable: Seq(1),
        acked: Seq(1),
    };
    world.append_upstream(&node, position(&node, vec![stream])).await;
    world.downstream.recreate(2);
    let running = world.elsewhere().start().await;
    let (_, follower) = world.read().await;
    assert!(follower.acceptance().metadata().log_id.follows(&was));
    running.controller.stop().await;
}

fn position(node: &NodeName, streams: Vec<NodeStreamProgress>) -> Record {
    position_record(node, &node_progress(streams))
}

fn node_progress(streams: Vec<NodeStreamProgress>) -> NodeProgress {
    NodeProgress {
        hub: "hub-1".to_owned(),
        connected: true,
        incarnation: Incarnation(1),
        boot: Boot::default(),
        connection: 0,
        outbox_depth: 0,
        contact_ms: 1_000,
        meta_sync_ms: 0,
        consumes_cluster: None,
        streams,
    }
}

fn position_record(node: &NodeName, progress: &NodeProgress) -> Record {
    Record {
        key: ReportKey::Position.record_key(node).into(),
        value: Some(serde_json::to_vec(progress).expect("JSON").into()),
        header: Bytes::new(),
        traceparent: None,
    }
}

fn pod_key() -> ResourceKey {
    "d/pod/p".parse().expect("a key")
}

fn status(phase: &str) -> ReportBody {
    ReportBody::PodStatus {
        pod: pod_key(),
        uid: "u-p".to_owned(),
        status: json!({ "phase": phase }).to_string().into(),
    }
}

async fn phase(running: &Running) -> Option<String> {
    let filter = Filter { kind: "pod", namespace: "d", name: "p" };
    let objects = running.controller.picture().objects(&filter, 0).expect("readable");
    objects.values().next().and_then(|pod| Some(pod["status"]["phase"].as_str()?.to_owned()))
}
