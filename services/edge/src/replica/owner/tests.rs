//! Subscribers receive only what survives a power cut, and absence means something only in a complete
//! view.

mod hub;

use std::pin::pin;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{Either, select};
use headwater_event::{Applied, Change, EntryKey, HashKey, NodeName, ObjectHash, ResourceKey, Seq};
use headwater_session::message::Push;
use headwater_store::{Failure, MemoryEngine, Read, Survival};
use headwater_view::{CommitBounds, StreamReader};
use proptest::prelude::*;
use tokio::sync::oneshot;

use self::hub::{Hub, log_id};
use super::super::COMMITS_WAITING_MAX;
use super::super::watch::{Filter, Watch, WatchItem};
use super::*;
use crate::meta::routing::Group;
use crate::upstream::ViewChange;

fn node() -> NodeName {
    "gw-1".parse().expect("a node name")
}

fn private() -> StreamId {
    StreamId::node(&node())
}

fn key(text: &str) -> ResourceKey {
    text.parse().expect("a key")
}

struct Bench {
    engine: Arc<MemoryEngine>,
    replica: EdgeReplica,
    syncer: Syncer,
    session: mpsc::Receiver<ReplicaEvent>,
    /// Events that were received while the bench waited for another.
    received: Vec<ReplicaEvent>,
    upstream: mpsc::Receiver<UpstreamCommand>,
}

/// What the syncer does after a group of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Nothing: the requested sync has not begun.
    Waits,
    /// It syncs; the replica has not received the outcome.
    Syncs,
    /// It syncs until the replica requests no more.
    Rests,
}

impl Bench {
    fn new() -> Self {
        Self::over(Arc::new(MemoryEngine::new()))
    }

    fn over(engine: Arc<MemoryEngine>) -> Self {
        Self::with(engine, ReplicaSettings::default())
    }

    fn with(engine: Arc<MemoryEngine>, settings: ReplicaSettings) -> Self {
        let (session_sender, session) = mpsc::channel(10_000);
        let (upstream_sender, upstream) = mpsc::channel(10_000);
        let (mut replica, syncer) =
            EdgeReplica::open(engine.clone(), private(), settings, session_sender, upstream_sender)
                .expect("opens");
        futures::executor::block_on(replica.begin()).expect("reads");
        Self { engine, replica, syncer, session, received: Vec::new(), upstream }
    }

    /// Runs commands that are queued together.
    fn group(
        &mut self,
        commands: impl IntoIterator<Item = ReplicaCommand>,
    ) -> Result<(), ReplicaError> {
        self.group_then(commands, Then::Rests)
    }

    /// The same. The syncer works as far as the replica waits for it, and then as `then` says.
    fn group_then(
        &mut self,
        commands: impl IntoIterator<Item = ReplicaCommand>,
        then: Then,
    ) -> Result<(), ReplicaError> {
        let Self { replica, syncer, .. } = self;
        let work = async {
            let mut queue = commands.into_iter();
            while let Some(first) = queue.next() {
                replica.run_group(first, || queue.next()).await?;
            }
            while then == Then::Rests && replica.sync.is_running() {
                replica.await_sync().await?;
            }
            Ok(())
        };
        let syncs = async {
            while syncer.sync_once().await {}
            std::future::pending().await
        };
        let ended = futures::executor::block_on(async {
            match select(pin!(work), pin!(syncs)).await {
                Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
            }
        });
        if then == Then::Syncs {
            let _ = syncer.sync_once().now_or_never();
        }
        ended
    }

    fn push(&mut self, pushes: impl IntoIterator<Item = Push>) {
        self.push_then(pushes, Then::Rests);
    }

    fn push_then(&mut self, pushes: impl IntoIterator<Item = Push>, then: Then) {
        self.group_then(pushes.into_iter().map(apply), then).expect("the engine works");
    }

    fn watch(&mut self, group: Group) -> Watch {
        let (reply, mut watch) = oneshot::channel();
        let filter = Filter { group, types: Vec::new(), namespace: None };
        self.group([ReplicaCommand::Watch { filter, reply }]).expect("the engine works");
        watch.try_recv().expect("answered").expect("room")
    }

    /// Asks the replica for its digests of `hub`'s stream; returns the correction.
    fn corrected_by(&mut self, hub: &Hub) -> Vec<Push> {
        let (stream, nonce) = (hub.stream.clone(), hub.seq);
        let question = ReplicaCommand::Summarize { stream, nonce, entries_max: 99 };
        self.group_then([question], Then::Waits).expect("the engine works");
        let mut digests = None;
        while let Ok(answer) = self.session.try_recv() {
            match answer {
                ReplicaEvent::Summarized { digests: sent, .. } => digests = Some(sent),
                ReplicaEvent::Applied { .. } | ReplicaEvent::Durable { .. } => {
                    self.received.push(answer)
                }
            }
        }
        hub.correction(nonce, &digests.expect("answered"))
    }

    fn answers(&mut self) -> Vec<ReplicaEvent> {
        let received = std::mem::take(&mut self.received).into_iter();
        received.chain(std::iter::from_fn(|| self.session.try_recv().ok())).collect()
    }

    fn view_changes(&mut self) -> Vec<ViewChange> {
        let mut changes = Vec::new();
        while let Ok(UpstreamCommand::View(more)) = self.upstream.try_recv() {
            changes.extend(more);
        }
        changes
    }
}

fn apply(push: Push) -> ReplicaCommand {
    ReplicaCommand::Apply { push: push.into(), room: None }
}

/// The seqs that the session received as durable.
fn durable(answers: &[ReplicaEvent]) -> Vec<u64> {
    let seq = |answer: &ReplicaEvent| match answer {
        ReplicaEvent::Durable { checkpoint, .. } => Some(checkpoint.seq.0),
        ReplicaEvent::Applied { .. } | ReplicaEvent::Summarized { .. } => None,
    };
    answers.iter().filter_map(seq).collect()
}

/// The items in the queue of a watch.
fn items_of(watch: &mut Watch) -> Vec<WatchItem> {
    std::iter::from_fn(|| watch.try_next()).collect()
}

fn applied_keys(items: &[WatchItem]) -> Vec<String> {
    items
        .iter()
        .filter_map(|item| match item {
            WatchItem::Applied { object, .. } => Some(object.key.to_string()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_watch_lists_then_sends_each_change_with_its_cause() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    hub.apply("d/pod/a", "u1", "{}");
    bench.push([hub.snapshot()]);
    let mut watch = bench.watch(Group::Edged);
    bench.push([hub.apply("d/pod/b", "u2", "{}"), hub.remove("d/pod/a")]);
    let items = items_of(&mut watch);
    let WatchItem::Listing { objects, complete: true } = &items[0] else {
        panic!("should begin with a complete listing: {:?}", items[0]);
    };
    assert_eq!(objects.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["d/pod/a"]);
    let WatchItem::Applied { object, traceparent } = &items[1] else { panic!("{:?}", items[1]) };
    assert_eq!((object.uid.as_str(), traceparent.as_deref()), ("u2", Some("trace-2")));
    let gone = WatchItem::Removed {
        key: key("d/pod/a"),
        uid: "u1".to_owned(),
        traceparent: Some("trace-3".to_owned()),
    };
    assert_eq!(items[2], gone);
}

#[test]
fn what_is_queued_shares_one_commit_and_one_sync() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    bench.push([hub.snapshot()]);
    let before = bench.engine.counts();
    let pushes: Vec<_> = (0..100).map(|n| hub.apply(&format!("d/pod/p{n}"), "u", "{}")).collect();
    bench.answers();
    bench.push(pushes);
    let after = bench.engine.counts();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (1, 1));
    let answers = bench.answers();
    assert_eq!(answers.len(), 101, "every push is answered, the durable position once");
    assert!(
        matches!(answers[100], ReplicaEvent::Durable { checkpoint, .. } if checkpoint.seq == Seq(100))
    );
}

#[test]
fn a_change_without_an_effect_is_synced_by_the_clock() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    hub.apply("d/pod/a", "u1", "{}");
    bench.push([hub.snapshot()]);
    bench.answers();
    // The same object again: only its resource version moves.
    bench.push([hub.apply("d/pod/a", "u1", "{}")]);
    assert!(matches!(bench.answers()[..], [ReplicaEvent::Applied { .. }]));
    bench.group([ReplicaCommand::Tick(999)]).expect("works");
    assert_eq!(bench.answers(), []);
    bench.group([ReplicaCommand::Tick(1_000)]).expect("works");
    assert!(matches!(bench.answers()[..], [ReplicaEvent::Durable { .. }]));
}

#[test]
fn absence_means_something_from_the_first_whole_stream_on() {
    let mut bench = Bench::new();
    let mut watch = bench.watch(Group::Edged);
    assert_eq!(items_of(&mut watch), [WatchItem::Listing { objects: Vec::new(), complete: false }]);
    let mut shared = Hub::of(StreamId::Cluster);
    shared.apply("d/service/s", "u", "{}");
    bench.push([shared.snapshot()]);
    assert_eq!(items_of(&mut watch), [], "the cluster's stream is not the node's");
    let mut hub = Hub::of(private());
    hub.apply("d/pod/a", "u1", "{}");
    bench.push([hub.snapshot()]);
    let items = items_of(&mut watch);
    assert!(
        matches!(&items[..], [WatchItem::Listing { objects, complete: true }] if objects.len() == 1),
        "{items:?}"
    );
    let mut again = Bench::over(Arc::new(bench.engine.crash(Survival::Synced)));
    let mut watch = again.watch(Group::Edged);
    assert!(matches!(items_of(&mut watch)[..], [WatchItem::Listing { complete: true, .. }]));
}

#[test]
fn an_advance_in_parts_is_listed_anew_when_it_is_whole() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    for name in ["a", "b", "c"] {
        hub.apply(&format!("d/pod/{name}"), "u", "{}");
    }
    bench.push([hub.snapshot()]);
    let mut watch = bench.watch(Group::Edged);
    items_of(&mut watch);
    bench.view_changes();
    hub.remove("d/pod/a");
    hub.apply("d/pod/d", "u", "{}");
    let mut parts = hub.snapshot_in_parts();
    let last = parts.pop().expect("three parts");
    bench.push(parts);
    assert_eq!(items_of(&mut watch), [], "nothing of it is visible before it is whole");
    bench.push([last]);
    let items = items_of(&mut watch);
    assert!(matches!(&items[0], WatchItem::Removed { key, .. } if key.as_str() == "d/pod/a"));
    assert!(
        matches!(&items[1], WatchItem::Listing { objects, complete: true } if objects.len() == 3),
        "{items:?}"
    );
    let changes = bench.view_changes();
    let [ViewChange::Listed { pods, complete: true }] = &changes[..] else {
        panic!("the outbox receives the whole view: {changes:?}");
    };
    assert_eq!(pods.len(), 3);
}

#[test]
fn a_correction_sends_what_differs_and_nothing_else() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    for name in ["a", "b", "c", "d"] {
        hub.apply(&format!("d/pod/{name}"), name, "{}");
    }
    bench.push([hub.snapshot()]);
    let mut watch = bench.watch(Group::Edged);
    items_of(&mut watch);
    bench.view_changes();
    // The log is another, with other positions: one pod went, one changed, one is another.
    let mut next = Hub { log: 2, ..Hub::of(private()) };
    for (name, uid, object) in [("a", "a", "{}"), ("b", "b", "[]"), ("c", "x", "{}")] {
        next.apply_as(&format!("d/pod/{name}"), uid, object, &hub);
    }
    let pushes = bench.corrected_by(&next);
    assert_eq!(pushes.iter().map(|push| push.changes.len()).sum::<usize>(), 2);
    for half in 0..2 {
        // In one part it is folded in place, in several aside.
        let mut bench = Bench::over(Arc::new(bench.engine.reopen()));
        let mut watch = bench.watch(Group::Edged);
        items_of(&mut watch);
        match half {
            0 => bench.push([next.whole(&pushes)]),
            _ => bench.push(pushes.clone()),
        }
        let items = items_of(&mut watch);
        let gone = |item: &&WatchItem| matches!(item, WatchItem::Removed { .. });
        assert_eq!(items.iter().filter(gone).count(), 2, "{items:?}");
        if half == 0 {
            assert_eq!(applied_keys(&items), ["d/pod/b", "d/pod/c"]);
        }
        let position = bench.replica.positions()[&private()];
        assert_eq!((position.0.log_id, position.1), (log_id(2), next.hash));
    }
}

#[test]
fn a_push_that_does_not_hash_leaves_no_trace_and_a_snapshot_heals() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    hub.apply("d/pod/a", "u1", "{}");
    bench.push([hub.snapshot()]);
    bench.answers();
    let mut watch = bench.watch(Group::Edged);
    items_of(&mut watch);
    let fits = hub.clone().apply("d/pod/x", "u9", "{}");
    let mut wrong = hub.apply("d/pod/b", "u2", "{}");
    wrong.hash = StateHash::EMPTY;
    let behind = hub.apply("d/pod/c", "u3", "{}");
    bench.push([wrong.clone(), behind, fits]);
    let answers = bench.answers();
    let [ReplicaEvent::Applied { checkpoint, hash, .. }] = &answers[..] else {
        panic!("only the first is answered: {answers:?}");
    };
    assert!(*checkpoint == wrong.to && *hash != wrong.hash);
    assert_eq!(items_of(&mut watch), []);
    bench.push([hub.snapshot()]);
    assert_eq!(applied_keys(&items_of(&mut watch)), ["d/pod/b", "d/pod/c"]);
    bench.push([hub.apply("d/pod/d", "u4", "{}")]);
    assert_eq!(applied_keys(&items_of(&mut watch)), ["d/pod/d"]);
}

#[test]
fn a_stream_that_the_node_no_longer_has_leaves() {
    let mut bench = Bench::new();
    let mut shared = Hub::of(StreamId::Cluster);
    shared.apply("d/service/s", "u", "{}");
    bench.push([Hub::of(private()).snapshot(), shared.snapshot()]);
    let mut watch = bench.watch(Group::Mesh);
    items_of(&mut watch);
    bench.group([ReplicaCommand::Drop(StreamId::Cluster)]).expect("works");
    assert!(matches!(&items_of(&mut watch)[..], [WatchItem::Removed { .. }]));
    assert_eq!(bench.replica.positions().keys().collect::<Vec<_>>(), [&private()]);
}

#[test]
fn a_private_stream_without_an_assignment_assigns_itself_alone() {
    let mut bench = Bench::new();
    assert_eq!(bench.replica.assignment(&node()).expect("reads"), None, "nothing was received");
    bench.push([Hub::of(private()).snapshot()]);
    let alone = Assignment::new(&node(), []);
    assert_eq!(bench.replica.assignment(&node()).expect("reads"), Some(alone));
}

#[test]
fn the_outbox_receives_pods_and_snapshot_requests() {
    let mut bench = Bench::new();
    let empty = ViewChange::Listed { pods: BTreeMap::new(), complete: false };
    assert_eq!(bench.view_changes(), [empty]);
    let mut hub = Hub::of(private());
    bench.push([hub.snapshot()]);
    bench.view_changes();
    bench.push([hub.apply("d/pod/a", "u1", "{}"), hub.apply("d/secret/s", "u2", "{}")]);
    let pod = key("d/pod/a");
    let uid = "u1".to_owned();
    assert_eq!(bench.view_changes(), [ViewChange::Pod { pod: pod.clone(), uid: uid.clone() }]);
    let asked = Applied {
        key: EntryKey::SnapshotRequest,
        uid: String::new(),
        resource_version: String::new(),
        object: Bytes::from_static(b"3"),
    };
    let hash_key = HashKey::new(&log_id(1));
    hub.hash.add(&hash_key, &EntryKey::SnapshotRequest, &ObjectHash::of(b"3"));
    bench.push([hub.tail(Change::Applied(asked))]);
    bench.push([hub.remove("d/pod/a")]);
    assert_eq!(
        bench.view_changes(),
        [ViewChange::SnapshotRequested(3), ViewChange::PodGone { pod, uid }]
    );
    let mut again = Bench::over(Arc::new(bench.engine.crash(Survival::Synced)));
    let changes = again.view_changes();
    assert_eq!(changes[1], ViewChange::SnapshotRequested(3), "also after a start: {changes:?}");
}

#[test]
fn a_failed_sync_ends_the_replica_and_releases_nothing() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    bench.push([hub.snapshot()]);
    let mut watch = bench.watch(Group::Edged);
    items_of(&mut watch);
    bench.answers();
    bench.engine.fail_sync(1, Failure { disk_full: true, took_effect: false });
    let push = hub.apply("d/pod/a", "u1", "{}");
    let failed = bench.group([apply(push)]).expect_err("the disk is full");
    assert!(
        matches!(failed, ReplicaError::Engine(EngineError::Write { disk_full: true, .. })),
        "{failed:?}"
    );
    assert_eq!(items_of(&mut watch), []);
    assert!(matches!(bench.answers()[..], [ReplicaEvent::Applied { .. }]), "applied, not durable");
}

#[test]
fn a_question_behind_a_push_is_answered_from_what_is_synced() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    bench.push([hub.snapshot()]);
    let find = || {
        let (reply, answer) = oneshot::channel();
        (ReplicaCommand::Find { key: key("d/pod/a"), reply }, answer)
    };
    let push = hub.apply("d/pod/a", "u1", "{}");
    let (question, mut answer) = find();
    bench.group([apply(push), question]).expect("works");
    assert_eq!(answer.try_recv().expect("answered").map(|found| found.uid), Some("u1".to_owned()));
    bench.engine.fail_sync(1, Failure { disk_full: false, took_effect: true });
    let push = hub.apply("d/pod/a", "u2", "{}");
    let (question, mut answer) = find();
    bench.group([apply(push), question]).expect_err("no sync");
    assert!(answer.try_recv().is_err(), "no answer arrives before the sync");
}

#[test]
fn commits_during_a_sync_are_released_by_the_next() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    bench.push([hub.snapshot()]);
    let mut watch = bench.watch(Group::Edged);
    items_of(&mut watch);
    bench.answers();
    let before = bench.engine.counts();
    bench.push_then([hub.apply("d/pod/a", "u1", "{}")], Then::Waits);
    bench.push_then([hub.apply("d/pod/b", "u2", "{}")], Then::Syncs);
    let after = bench.engine.counts();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (2, 1));
    let answers = bench.answers();
    assert_eq!((answers.len(), durable(&answers)), (2, vec![]), "applied, and no further answer");
    assert_eq!(items_of(&mut watch), []);
    // The sync was asked for when only the first was there: that it covers both is chance.
    bench
        .group_then([ReplicaCommand::Tick(1), ReplicaCommand::Tick(2)], Then::Waits)
        .expect("works");
    assert_eq!(durable(&bench.answers()), [1]);
    assert_eq!(applied_keys(&items_of(&mut watch)), ["d/pod/a"]);
    bench.group([ReplicaCommand::Tick(3)]).expect("works");
    assert_eq!(durable(&bench.answers()), [2]);
    assert_eq!(applied_keys(&items_of(&mut watch)), ["d/pod/b"]);
}

#[test]
fn so_many_commits_wait_for_a_sync_and_no_more() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    bench.push([hub.snapshot()]);
    bench.answers();
    for n in 0..COMMITS_WAITING_MAX {
        bench.push_then([hub.apply(&format!("d/pod/p{n}"), "u", "{}")], Then::Waits);
    }
    assert_eq!(bench.replica.fold.waiting_commits(), COMMITS_WAITING_MAX);
    let unsynced = bench.engine.unsynced();
    let next = apply(hub.apply("d/pod/next", "u", "{}"));
    let mut next = pin!(bench.replica.run_group(next, || None));
    assert!(next.as_mut().now_or_never().is_none(), "it waits for the sync that is under way");
    assert_eq!(bench.engine.unsynced(), unsynced, "and is not written before");
    assert_eq!(bench.syncer.sync_once().now_or_never(), Some(true));
    next.now_or_never().expect("there is room").expect("works");
}

#[test]
fn a_failed_sync_ends_the_replica_whatever_was_committed_meanwhile() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    bench.push([hub.snapshot()]);
    let mut watch = bench.watch(Group::Edged);
    items_of(&mut watch);
    bench.answers();
    bench.engine.fail_sync(1, Failure { disk_full: false, took_effect: false });
    bench.push_then([hub.apply("d/pod/a", "u1", "{}")], Then::Waits);
    bench.push_then([hub.apply("d/pod/b", "u2", "{}")], Then::Syncs);
    let failed = bench.group([ReplicaCommand::Tick(1)]).expect_err("the sync failed");
    assert!(matches!(failed, ReplicaError::Engine(EngineError::Write { .. })), "{failed:?}");
    assert!(durable(&bench.answers()).is_empty());
    assert_eq!(items_of(&mut watch), []);
}

#[test]
fn an_advance_that_overtakes_a_sync_is_listed_once_it_is_durable_itself() {
    let mut bench = Bench::new();
    let mut hub = Hub::of(private());
    hub.apply("d/pod/a", "u1", "{}");
    bench.push([hub.snapshot()]);
    let mut watch = bench.watch(Group::Edged);
    items_of(&mut watch);
    bench.push_then([hub.apply("d/pod/b", "u2", "{}")], Then::Waits);
    hub.apply("d/pod/c", "u3", "{}");
    bench.push_then(hub.snapshot_in_parts(), Then::Waits);
    let items = items_of(&mut watch);
    assert_eq!(applied_keys(&items), ["d/pod/b"], "what the first sync covers: {items:?}");
    let Some(WatchItem::Listing { objects, .. }) = items.last() else { panic!("{items:?}") };
    assert_eq!(objects.len(), 3);
    assert_eq!(bench.engine.unsynced(), 0, "nobody saw it before");
}

/// A pod's number, its object, and whether it is removed instead, if it is there.
type NamedChange = (u8, u8, bool);

/// How the complete state comes.
#[derive(Clone, Copy, Debug)]
enum Whole {
    Snapshot,
    InParts,
    Corrected,
}

#[derive(Clone, Debug)]
enum Step {
    /// Groups of pushes that are queued together, each of one change; and what the syncer does
    /// before the next group comes.
    Push(Vec<(Vec<NamedChange>, Then)>),
    Snapshot(Whole, Then),
    Tick,
    Crash(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0_u8..6, 0_u8..3, any::<bool>());
    let then = || prop_oneof![Just(Then::Waits), Just(Then::Syncs), Just(Then::Rests)];
    let group = (proptest::collection::vec(change, 1..6), then());
    let whole = prop_oneof![Just(Whole::Snapshot), Just(Whole::InParts), Just(Whole::Corrected)];
    let step = prop_oneof![
        8 => proptest::collection::vec(group, 1..4).prop_map(Step::Push),
        3 => (whole, then()).prop_map(|(whole, then)| Step::Snapshot(whole, then)),
        2 => Just(Step::Tick),
        2 => any::<u64>().prop_map(Step::Crash),
    ];
    proptest::collection::vec(step, 0..40)
}

/// CommitBounds that small groups meet.
fn narrow() -> ReplicaSettings {
    let bounds = CommitBounds { inputs_max: 2, waiting_effects_max: 7, ..CommitBounds::default() };
    ReplicaSettings { commits_waiting_max: 2, bounds, ..ReplicaSettings::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// After every step, a power cut would leave at least all that was released: the session's
    /// durable positions, the watches' objects.
    #[test]
    fn only_what_survives_a_power_cut_is_released(steps in steps()) {
        let mut bench = Bench::with(Arc::new(MemoryEngine::new()), narrow());
        let mut hub = Hub::of(private());
        let mut hubs = vec![hub.clone()];
        bench.push([hub.snapshot()]);
        let mut watch = bench.watch(Group::Edged);
        let mut seen: BTreeMap<ResourceKey, Bytes> = BTreeMap::new();
        let mut reported = 0;
        let mut now_ms = 0;
        for step in steps {
            match step {
                Step::Push(groups) => {
                    for (changes, then) in groups {
                        let mut pushes = Vec::new();
                        for (name, value, removes) in changes {
                            let name = format!("d/pod/p{name}");
                            pushes.push(if removes && hub.objects.contains_key(&key(&name)) {
                                hub.remove(&name)
                            } else {
                                hub.apply(&name, "u", &value.to_string())
                            });
                            hubs.push(hub.clone());
                        }
                        bench.push_then(pushes, then);
                    }
                }
                Step::Snapshot(whole, then) => {
                    // A snapshot goes on: an equal position would be refused as stale.
                    hub.apply("d/pod/snap", "u", &hub.seq.to_string());
                    hubs.push(hub.clone());
                    let pushes = match whole {
                        Whole::Snapshot => vec![hub.snapshot()],
                        Whole::InParts => hub.snapshot_in_parts(),
                        Whole::Corrected => bench.corrected_by(&hub),
                    };
                    bench.push_then(pushes, then);
                }
                Step::Tick => {
                    now_ms += 600;
                    bench.group([ReplicaCommand::Tick(now_ms)]).expect("works");
                }
                Step::Crash(seed) => {
                    let engine = bench.engine.crash(Survival::Some { seed });
                    bench = Bench::with(Arc::new(engine), narrow());
                    let at = bench.replica.positions()[&private()].0.seq;
                    reported = at.0;
                    hubs.truncate(usize::try_from(at.0).expect("few") + 1);
                    watch = bench.watch(Group::Edged);
                    now_ms = 0;
                }
            }
            for item in items_of(&mut watch) {
                match item {
                    WatchItem::Listing { objects, .. } => {
                        seen = objects.into_iter().map(|o| (o.key, o.object)).collect();
                    }
                    WatchItem::Applied { object, .. } => {
                        seen.insert(object.key, object.object);
                    }
                    WatchItem::Removed { key, .. } => {
                        seen.remove(&key);
                    }
                    WatchItem::Operation(_) => {}
                }
            }
            let answers = bench.answers();
            reported = durable(&answers).into_iter().fold(reported, u64::max);
            let survivor = bench.engine.crash(Survival::Synced);
            let left = StreamReader::new(&survivor as &dyn Read);
            let (at, hash) = left.position(&private()).expect("reads").expect("complete").to_owned();
            prop_assert!(reported <= at.seq.0, "reported {reported}, {} would be left", at.seq);
            let model = &hubs[usize::try_from(at.seq.0).expect("few")];
            prop_assert_eq!(hash, model.hash, "a prefix of the stream");
            let model = &hubs[usize::try_from(reported).expect("few")];
            let expected: BTreeMap<_, _> =
                model.objects.iter().map(|(key, held)| (key.clone(), held.object.clone())).collect();
            prop_assert_eq!(&seen, &expected, "the watch has the reported durable state");
            // The probe ends its engine: go on over what all of it would leave.
            let complete = bench.engine.reopen();
            bench = Bench::with(Arc::new(complete), narrow());
            watch = bench.watch(Group::Edged);
            let at = bench.replica.positions()[&private()].0.seq;
            reported = at.0;
            hub = hubs[usize::try_from(at.0).expect("few")].clone();
        }
    }
}
