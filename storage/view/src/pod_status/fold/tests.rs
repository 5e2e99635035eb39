//! The stored fold of what nodes say about their pods.

use std::sync::Arc;

use headwater_store::{Durability, Engine, MemoryEngine};
use proptest::prelude::*;

use super::*;
use crate::metasync;
use crate::pod_status::PodStatusSnapshot;
use crate::stream::{FoldBounds, StreamState};

fn node() -> NodeName {
    "gw-1".parse().expect("a node name")
}

fn pod(n: u8) -> ResourceKey {
    format!("ns/pod/p{n}").parse().expect("well-formed")
}

fn id(seq: u64) -> ReportId {
    ReportId { incarnation: Incarnation(1), boot: 1, seq }
}

/// The node's side: its statuses, its reported statuses, and the latest queued report of each key.
struct Edge {
    statuses: BTreeMap<ResourceKey, (String, Bytes)>,
    reported: PodStatusSnapshot,
    queued: BTreeMap<ReportId, ReportBody>,
    at: ReportId,
    full_since: Option<ReportId>,
}

impl Edge {
    fn new() -> Self {
        Self {
            statuses: BTreeMap::new(),
            reported: PodStatusSnapshot::new(&node()),
            queued: BTreeMap::new(),
            at: id(0),
            full_since: None,
        }
    }

    fn snapshot(&self) -> PodStatusSnapshot {
        let mut snapshot = PodStatusSnapshot::new(&node());
        for (pod, (uid, status)) in &self.statuses {
            snapshot.set(pod.clone(), StatusDigest::of(uid, status));
        }
        snapshot
    }

    fn queue(&mut self, body: ReportBody) {
        self.at.seq += 1;
        let key = body.key(&node()).expect("well-formed");
        self.queued.retain(|_, queued| queued.key(&node()).expect("well-formed") != key);
        self.queued.insert(self.at, body);
    }

    fn sync(&mut self, full: bool) {
        let current = self.snapshot();
        let difference =
            if full { metasync::full(&current) } else { metasync::diff(&self.reported, &current) };
        if full {
            self.full_since = Some(ReportId { seq: self.at.seq + 1, ..self.at });
        }
        if difference.is_empty() && !full {
            return;
        }
        for pod in difference.changed {
            let (uid, status) = self.statuses[&pod].clone();
            self.queue(ReportBody::PodStatus { pod, uid, status });
        }
        for (pod, uid) in difference.removed {
            self.queue(ReportBody::PodStatusRemoved { pod, uid });
        }
        self.queue(ReportBody::SnapshotClosed(metasync::close(&current, self.full_since)));
        self.reported = current;
    }

    /// The node comes back with an empty disk, as another incarnation.
    fn wipe(&mut self) {
        let incarnation = Incarnation(self.at.incarnation.0 + 1);
        *self = Self { at: ReportId { incarnation, boot: 1, seq: 0 }, ..Self::new() };
        self.sync(true);
    }
}

/// The cloud's side, whose engine may be opened again at any time.
struct Cloud {
    engine: Arc<MemoryEngine>,
    state: StreamState,
    fold: PodStatusFold,
}

impl Cloud {
    fn open(engine: Arc<MemoryEngine>) -> Self {
        let state = StreamState::open(engine.clone(), FoldBounds::default()).expect("opens");
        let fold = PodStatusFold::open(&*engine).expect("opens");
        Self { engine, state, fold }
    }

    fn take(&mut self, id: ReportId, body: &ReportBody) -> ReportOutcome {
        let outcome = self.fold.fold(&node(), id, body, self.state.batch());
        self.state.commit(Durability::Synced).expect("commits");
        outcome
    }

    fn statuses(&self) -> BTreeMap<ResourceKey, (String, Bytes)> {
        let (mut all, mut after) = (BTreeMap::new(), None);
        loop {
            let chunk =
                PodStatusFold::statuses(&*self.engine, &node(), after.as_ref(), 2).expect("reads");
            after = chunk.last().map(|(pod, _)| pod.clone());
            let count = chunk.len();
            all.extend(chunk.into_iter().map(|(pod, entry)| (pod, (entry.uid, entry.status))));
            if count < 2 {
                return all;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Report {
        pod: u8,
        uid: u8,
        status: u8,
    },
    PodGone {
        pod: u8,
    },
    MetaSync,
    FullSync,
    Wipe,
    /// Sends the first reports of the outbox, and forgets the first of those.
    Deliver {
        sent: usize,
        acknowledged: usize,
    },
    /// What was sent at some time is sent again.
    Repeat {
        nth: usize,
    },
    RestartCloud,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..5, 0u8..2, 0u8..3).prop_map(|(pod, uid, status)| Step::Report { pod, uid, status }),
        2 => (0u8..5).prop_map(|pod| Step::PodGone { pod }),
        5 => Just(Step::MetaSync),
        1 => Just(Step::FullSync),
        1 => Just(Step::Wipe),
        5 => (0usize..8, 0usize..8).prop_map(|(sent, acknowledged)| Step::Deliver { sent, acknowledged }),
        3 => (0usize..40).prop_map(|nth| Step::Repeat { nth }),
        1 => Just(Step::RestartCloud),
    ]
}

proptest! {
    /// I4: duplicates, restarts and wiped disks; the cloud has the last report.
    #[test]
    fn the_cloud_comes_to_have_what_the_node_has(steps in proptest::collection::vec(step(), 1..60)) {
        let mut edge = Edge::new();
        let mut cloud = Cloud::open(Arc::new(MemoryEngine::new()));
        let mut sent: Vec<(ReportId, ReportBody)> = Vec::new();
        edge.sync(true);
        for step in steps {
            match step {
                Step::Report { pod: n, uid, status } => {
                    edge.statuses.insert(pod(n), (format!("uid-{uid}"), vec![status].into()));
                }
                Step::PodGone { pod: n } => {
                    edge.statuses.remove(&pod(n));
                }
                Step::MetaSync => edge.sync(false),
                Step::FullSync => edge.sync(true),
                Step::Wipe => edge.wipe(),
                Step::Deliver { sent: count, acknowledged } => {
                    let reports: Vec<_> =
                        edge.queued.iter().take(count).map(|(id, body)| (*id, body.clone())).collect();
                    for (id, body) in &reports {
                        if let ReportOutcome::Closed { agrees, .. } = cloud.take(*id, body) {
                            prop_assert!(agrees, "in order, every closing agrees: {id}");
                        }
                    }
                    for (id, body) in reports.iter().take(acknowledged) {
                        edge.queued.remove(id);
                        if matches!(body, ReportBody::SnapshotClosed(_)) {
                            edge.full_since = None;
                        }
                    }
                    sent.extend(reports);
                }
                Step::Repeat { nth } => {
                    if let Some((id, body)) = sent.get(nth) {
                        let before = cloud.statuses();
                        let outcome = cloud.take(*id, body);
                        let counted =
                            !matches!(outcome, ReportOutcome::NoChange | ReportOutcome::Stale);
                        prop_assert!(!counted, "counted twice: {}: {:?}", id, outcome);
                        prop_assert_eq!(cloud.statuses(), before, "older over newer: {}", id);
                    }
                }
                Step::RestartCloud => {
                    let known = cloud.fold.node(&node()).cloned();
                    cloud = Cloud::open(Arc::new(cloud.engine.reopen()));
                    prop_assert_eq!(cloud.fold.node(&node()).cloned(), known);
                }
            }
        }
        edge.sync(false);
        for (id, body) in &edge.queued {
            cloud.take(*id, body);
        }
        prop_assert_eq!(cloud.statuses(), edge.statuses.clone());
        let statuses = cloud.fold.node(&node()).expect("it has reported");
        prop_assert_eq!(statuses.snapshot(), &edge.snapshot());
        prop_assert_eq!(cloud.fold.differing().count(), 0);
    }
}

fn status(n: u8) -> ReportBody {
    ReportBody::PodStatus { pod: pod(n), uid: "u".to_owned(), status: vec![n].into() }
}

#[test]
fn a_lost_report_is_noticed_and_a_full_snapshot_heals_it() {
    let mut edge = Edge::new();
    let mut cloud = Cloud::open(Arc::new(MemoryEngine::new()));
    for n in 1..=3 {
        edge.statuses.insert(pod(n), ("u".to_owned(), vec![n].into()));
    }
    cloud.take(ReportId { boot: 0, ..id(7) }, &status(9));
    edge.sync(true);
    let lost = id(2);
    for (id, body) in edge.queued.iter().filter(|(id, _)| **id != lost) {
        if let ReportOutcome::Closed { dropped, agrees, .. } = cloud.take(*id, body) {
            assert_eq!(dropped, [pod(9)], "the full snapshot did not name it");
            assert!(!agrees, "a pod is missing");
        }
    }
    assert_eq!(cloud.fold.differing().collect::<Vec<_>>(), [&node()]);
    let known = cloud.fold.node(&node()).cloned();
    cloud = Cloud::open(Arc::new(cloud.engine.reopen()));
    assert_eq!(cloud.fold.node(&node()).cloned(), known);
    edge.queued.clear();
    edge.sync(true);
    for (id, body) in &edge.queued {
        if let ReportOutcome::Closed { agrees, .. } = cloud.take(*id, body) {
            assert!(agrees);
        }
    }
    assert_eq!(cloud.statuses(), edge.statuses);
    assert_eq!(cloud.fold.differing().count(), 0);
}

#[test]
fn a_late_status_does_not_bring_a_removed_pod_back() {
    let mut cloud = Cloud::open(Arc::new(MemoryEngine::new()));
    let removed = ReportBody::PodStatusRemoved { pod: pod(1), uid: "u".to_owned() };
    assert_eq!(cloud.take(id(2), &removed), ReportOutcome::Removed(pod(1)));
    let newest = PodStatusFold::newest(&*cloud.engine, &node(), &pod(1)).expect("reads");
    assert_eq!(newest, Some((id(2), removed.clone())), "as the node reported it");
    assert_eq!(cloud.take(id(1), &status(1)), ReportOutcome::Stale);
    assert_eq!(cloud.take(id(2), &removed), ReportOutcome::NoChange);
    let empty = metasync::close(&PodStatusSnapshot::new(&node()), None);
    let closed = ReportOutcome::Closed { dropped: vec![], forgotten: vec![pod(1)], agrees: true };
    assert_eq!(cloud.take(id(3), &ReportBody::SnapshotClosed(empty)), closed);
    assert_eq!(
        cloud.take(id(1), &status(1)),
        ReportOutcome::Stale,
        "forgotten, and still not back"
    );
    assert_eq!(cloud.take(id(2), &removed), ReportOutcome::NoChange, "as everyone knows");
    assert_eq!(cloud.take(id(1), &ReportBody::SnapshotClosed(empty)), ReportOutcome::Stale);
    assert_eq!(cloud.take(id(3), &ReportBody::SnapshotClosed(empty)), ReportOutcome::NoChange);
    assert!(cloud.statuses().is_empty());
}

#[test]
fn a_removal_under_the_id_of_a_status_takes_it_back() {
    let mut cloud = Cloud::open(Arc::new(MemoryEngine::new()));
    let removed = ReportBody::PodStatusRemoved { pod: pod(1), uid: "u".to_owned() };
    assert_eq!(cloud.take(id(1), &status(1)), ReportOutcome::StatusChanged(pod(1)));
    let newest = PodStatusFold::newest(&*cloud.engine, &node(), &pod(1)).expect("reads");
    assert_eq!(newest, Some((id(1), status(1))));
    assert_eq!(cloud.take(id(1), &removed), ReportOutcome::Removed(pod(1)));
    assert_eq!(cloud.take(id(1), &removed), ReportOutcome::NoChange);
    assert_eq!(cloud.take(id(1), &status(1)), ReportOutcome::Stale);
    assert_eq!(cloud.take(id(2), &status(1)), ReportOutcome::StatusChanged(pod(1)));
    assert_eq!(cloud.take(id(1), &removed), ReportOutcome::Stale);
}

#[test]
fn what_came_after_the_last_closing_is_no_difference() {
    let mut edge = Edge::new();
    let mut cloud = Cloud::open(Arc::new(MemoryEngine::new()));
    edge.sync(true);
    edge.statuses.insert(pod(1), ("u".to_owned(), vec![1].into()));
    edge.sync(false);
    let closing = *edge.queued.keys().next_back().expect("it has closed");
    cloud.take(
        id(1),
        &ReportBody::SnapshotClosed(metasync::close(&PodStatusSnapshot::new(&node()), None)),
    );
    for (id, body) in edge.queued.iter().filter(|(id, _)| **id != closing) {
        cloud.take(*id, body);
    }
    assert_eq!(cloud.fold.differing().count(), 0, "the closing is still on its way");
}

#[test]
fn a_node_that_is_gone_is_forgotten() {
    let mut cloud = Cloud::open(Arc::new(MemoryEngine::new()));
    cloud.take(id(1), &status(1));
    assert!(PodStatusFold::status(&*cloud.engine, &node(), &pod(1)).expect("reads").is_some());
    cloud.fold.forget(&node(), cloud.state.batch());
    cloud.state.commit(Durability::Synced).expect("commits");
    assert!(cloud.engine.snapshot().scan(&ROWS.key_range(), 9).expect("reads").is_empty());
    assert!(PodStatusFold::open(&*cloud.engine).expect("opens").node(&node()).is_none());
}
