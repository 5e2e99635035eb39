//! An edge of the simulated world: a disk that loses unsynced writes at a power loss, and the shell
//! around its session.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use headwater_check::once::Once;
use headwater_check::removed::Removals;
use headwater_check::{State, acknowledged, durable, gap, snapshot};
use headwater_event::{
    Assignment, Boot, Change, Checkpoint, DigestKey, EntryKey, Identity, Incarnation, NodeName,
    RemovalRuns, Report, ReportBody, ReportId, Seq, StateHash, StreamId,
};
use headwater_session::message::{EdgeMessage, Push, PushMode, ReplicaPosition, report_bytes};
use headwater_session::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeSettings, EdgeState,
};

use crate::cloud::Cloud;

/// One stream on the edge's disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) hash: StateHash,
    pub(crate) state: State,
}

/// The content of the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) streams: BTreeMap<StreamId, Replica>,
    streams_entry: Option<Bytes>,
}

pub(crate) struct Edge {
    pub(crate) session: EdgeSession,
    settings: EdgeSettings,
    pub(crate) identity: Identity,
    /// The content that reads return; `synced` is the content after a power loss.
    pub(crate) disk: Disk,
    pub(crate) synced: Disk,
    /// The outbox is synced with every write.
    pub(crate) outbox: BTreeMap<ReportId, Report>,
    reported: u64,
    staged: BTreeMap<StreamId, (RemovalRuns, Vec<Change>)>,
    /// Streams in which a push led to a wrong state: only a push that begins anew applies.
    broken: BTreeSet<StreamId>,
    /// Those in which that push began anew, since the last hello.
    in_old_history: BTreeSet<StreamId>,
    /// The session's outputs that the shell has not executed yet, in order.
    pub(crate) work: VecDeque<EdgeOutput>,
    /// The next push leads to a wrong state.
    pub(crate) miscomputes: bool,
    once: Once,
    removals: Removals,
    /// The session's messages that are not on the connection yet.
    pub(crate) outgoing: Vec<EdgeMessage>,
    /// The session closes its connection, or the edge is down.
    pub(crate) hangs_up: bool,
    /// The session's reason, if it closes the connection.
    pub(crate) end: Option<EdgeCloseReason>,
}

impl Edge {
    pub(crate) fn new(node: &NodeName, settings: &EdgeSettings) -> Self {
        let boot = Boot { number: 1, nonce: 1 };
        let identity = Identity { node: node.clone(), incarnation: Incarnation(1), boot };
        let state =
            EdgeState { identity: identity.clone(), positions: Vec::new(), assignment: None };
        Self {
            session: EdgeSession::new(settings.clone(), state),
            settings: settings.clone(),
            identity,
            disk: Disk::default(),
            synced: Disk::default(),
            outbox: BTreeMap::new(),
            reported: 0,
            staged: BTreeMap::new(),
            broken: BTreeSet::new(),
            in_old_history: BTreeSet::new(),
            work: VecDeque::new(),
            miscomputes: false,
            once: Once::default(),
            removals: Removals::default(),
            outgoing: Vec::new(),
            hangs_up: false,
            end: None,
        }
    }

    /// Power is lost and comes back: unsynced writes are lost.
    pub(crate) fn crash(&mut self, is_wiped: bool) {
        if is_wiped {
            self.synced = Disk::default();
            self.outbox.clear();
            self.identity.boot.number = 0;
        }
        for stream in self.disk.streams.keys().chain(self.synced.streams.keys()) {
            let durable = self.synced.streams.get(stream).and_then(|replica| replica.checkpoint);
            self.once.fell_back(stream, durable);
            self.removals.forget(stream);
        }
        self.disk = self.synced.clone();
        self.staged.clear();
        self.broken.clear();
        self.in_old_history.clear();
        self.work.clear();
        self.outgoing.clear();
        self.hangs_up = true;
        self.miscomputes = false;
        self.identity.boot.number += 1;
        self.identity.boot.nonce += 1;
        let node = &self.identity.node;
        let positions = self.disk.streams.iter().filter_map(|(stream, replica)| {
            let (stream, hash) = (stream.clone(), replica.hash);
            Some(ReplicaPosition { stream, checkpoint: replica.checkpoint?, hash })
        });
        let assignment = self.disk.streams_entry.as_ref();
        let state = EdgeState {
            identity: self.identity.clone(),
            positions: positions.collect(),
            assignment: assignment
                .map(|object| Assignment::decode(node, object).expect("written by the cloud")),
        };
        self.session = EdgeSession::new(self.settings.clone(), state);
    }

    /// Something on the node changed.
    pub(crate) fn report(&mut self, key: u8) {
        self.reported += 1;
        let id = ReportId {
            incarnation: self.identity.incarnation,
            boot: self.identity.boot.number,
            seq: self.reported,
        };
        let body = ReportBody::PodStatus {
            pod: format!("ns/pod/p{}", key % 4).parse().expect("well-formed"),
            uid: "u".to_owned(),
            status: Bytes::from(vec![b' '; usize::from(key)]),
        };
        let node = &self.identity.node;
        let of = |report: &Report| report.body.key(node).expect("well-formed");
        let report = Report { id, body, traceparent: None };
        self.outbox.retain(|_, old| of(old) != of(&report));
        self.outbox.insert(id, report);
        self.step(EdgeInput::Reported);
    }

    pub(crate) fn step(&mut self, input: EdgeInput) {
        for output in self.session.step(input) {
            match output {
                EdgeOutput::Send(message) => {
                    self.check_sent(&message);
                    if matches!(message, EdgeMessage::Hello(_)) {
                        self.in_old_history.clear();
                    }
                    self.outgoing.push(message);
                }
                EdgeOutput::Close(end) => {
                    self.hangs_up = true;
                    self.end = Some(end);
                }
                work => self.work.push_back(work),
            }
        }
    }

    /// Checks I8 of a message.
    fn check_sent(&self, message: &EdgeMessage) {
        let node = &self.identity.node;
        let acknowledged: Vec<(StreamId, Seq)> = match message {
            EdgeMessage::Ack(ack) => {
                ack.progress.iter().map(|one| (one.stream.clone(), one.durable)).collect()
            }
            EdgeMessage::Hello(hello) => {
                for position in &hello.positions {
                    let synced = self.synced.streams.get(&position.stream);
                    let synced = synced.and_then(|replica| replica.checkpoint);
                    assert_eq!(synced, Some(position.checkpoint), "I8 a hello is durable");
                }
                Vec::new()
            }
            _ => Vec::new(),
        };
        for (stream, seq) in acknowledged {
            let synced = self.synced.streams.get(&stream).and_then(|replica| replica.checkpoint);
            let synced = synced.map_or(Seq::ZERO, |checkpoint| checkpoint.seq);
            durable::check(node, &stream, "acknowledged", seq, synced).expect("I8");
        }
    }

    /// Executes the next output of the session.
    pub(crate) fn work(&mut self, cloud: &Cloud) {
        let Some(work) = self.work.pop_front() else { return };
        match work {
            EdgeOutput::Apply(push) => self.apply(push, cloud),
            EdgeOutput::Unstage(stream) => {
                self.staged.remove(&stream);
            }
            EdgeOutput::Drop(stream) => {
                self.disk.streams.remove(&stream);
                self.staged.remove(&stream);
                self.broken.remove(&stream);
                self.in_old_history.remove(&stream);
                self.removals.forget(&stream);
                self.once.fell_back(&stream, None);
            }
            EdgeOutput::Summarize { stream, nonce, .. } => {
                let replica = self.disk.streams.get(&stream).cloned().unwrap_or_default();
                let digests = replica.state.digests(&DigestKey::new(nonce), "");
                self.step(EdgeInput::Summarized { stream, nonce, digests });
            }
            EdgeOutput::Sync => self.sync(),
            EdgeOutput::DelayAck => self.step(EdgeInput::AckDue),
            EdgeOutput::ReadOutbox { after, count, bytes } => {
                let behind = self.outbox.values().filter(|report| Some(report.id) > after);
                let (mut reports, mut read) = (Vec::new(), 0);
                for report in behind.clone().take(count) {
                    if read >= bytes {
                        break;
                    }
                    read += report_bytes(report);
                    reports.push(report.clone());
                }
                let is_end = behind.count() == reports.len();
                self.step(EdgeInput::Outbox { reports, is_end });
            }
            EdgeOutput::Refused(refused) => panic!("this cloud takes every report: {refused:?}"),
            EdgeOutput::Forget(through) => {
                let logged = cloud.logged.get(&self.identity.node).cloned().unwrap_or_default();
                let forgotten: BTreeSet<ReportId> =
                    self.outbox.range(..=through).map(|(id, _)| *id).collect();
                acknowledged::check(&self.identity.node, &forgotten, &logged).expect("I2");
                self.outbox.retain(|id, _| *id > through);
            }
            EdgeOutput::RaiseBoot { known } => {
                self.identity.boot.number = known.boot.number + 1;
                self.identity.boot.nonce += 1_000;
                let outbox = std::mem::take(&mut self.outbox);
                for (mut id, mut report) in outbox {
                    self.reported += 1;
                    (id.boot, id.seq) = (self.identity.boot.number, self.reported);
                    report.id = id;
                    self.outbox.insert(id, report);
                }
                self.step(EdgeInput::BootRaised(self.identity.clone()));
            }
            EdgeOutput::Send(_)
            | EdgeOutput::Close(_)
            | EdgeOutput::Answered(_)
            | EdgeOutput::Welcomed { .. }
            | EdgeOutput::Parked(_)
            | EdgeOutput::Dial(_)
            | EdgeOutput::Stopped(_) => {}
        }
    }

    /// Syncs the disk.
    pub(crate) fn sync(&mut self) {
        self.synced = self.disk.clone();
        let synced: Vec<_> = self
            .synced
            .streams
            .iter()
            .filter_map(|(stream, replica)| Some((stream.clone(), replica.checkpoint?)))
            .collect();
        for (stream, checkpoint) in synced {
            self.step(EdgeInput::Durable { stream, checkpoint });
        }
    }

    fn apply(&mut self, push: Push, cloud: &Cloud) {
        let stream = push.stream.clone();
        let begins_anew = push.mode.begins_anew();
        if push.is_beginning() {
            self.broken.remove(&stream);
        }
        if self.broken.contains(&stream) {
            return;
        }
        let staged = self.staged.entry(stream.clone()).or_default();
        if push.part == 0 {
            *staged = (push.gone.clone(), Vec::new());
        }
        staged.1.extend(push.changes.iter().map(|pushed| pushed.change.clone()));
        if !push.last_part {
            return;
        }
        let (gone, changes) = self.staged.remove(&stream).unwrap_or_default();
        let before = self.disk.streams.get(&stream).cloned().unwrap_or_default();
        let at = before.checkpoint.map(|checkpoint| checkpoint.seq);
        let mut state = before.state.clone();
        match push.mode {
            PushMode::Tail | PushMode::Delta => {}
            PushMode::Snapshot => state = State::default(),
            PushMode::Correction => state.retain(&gone),
        }
        for change in &changes {
            state.apply(change);
        }
        let mut hash = state.hash(&push.to.log_id);
        if std::mem::take(&mut self.miscomputes) {
            let key = EntryKey::SnapshotRequest;
            let object = headwater_event::ObjectHash::of(b"wrong");
            hash.add(&headwater_event::HashKey::new(&push.to.log_id), &key, &object);
        }
        if hash == push.hash {
            self.check_applied(&push, at, &before.state, &state, cloud);
            self.note_streams(&push, &changes);
            let replica = Replica { checkpoint: Some(push.to), hash, state };
            self.disk.streams.insert(stream.clone(), replica);
            self.in_old_history.remove(&stream);
        } else {
            self.broken.insert(stream.clone());
            if begins_anew {
                self.in_old_history.insert(stream.clone());
            }
        }
        self.step(EdgeInput::Applied { stream, checkpoint: push.to, hash });
    }

    fn note_streams(&mut self, push: &Push, changes: &[Change]) {
        if push.stream != StreamId::node(&self.identity.node) {
            return;
        }
        for change in changes.iter().filter(|change| *change.key() == EntryKey::Streams) {
            self.disk.streams_entry = match change {
                Change::Applied(applied) => Some(applied.object.clone()),
                Change::Removed(_) => None,
            };
        }
    }

    /// Checks I1, I3, I5, I7, I9 and I14 of an applied push.
    fn check_applied(
        &mut self,
        push: &Push,
        at: Option<Seq>,
        before: &State,
        after: &State,
        cloud: &Cloud,
    ) {
        let stream = &push.stream;
        cloud.check_prefix(stream, &push.to, after);
        if push.mode.begins_anew() {
            let history = cloud.history(stream, &push.to).expect("checked before");
            snapshot::check(&history, stream, push.to.seq, after).expect("I9");
            self.once.replaced(stream, push.to).expect("I3");
            if cloud.lost_history {
                self.removals.forget(stream);
            }
        } else {
            gap::check(stream, push.from, push.to.seq, at.unwrap_or_default()).expect("I7");
            self.once.events(stream, push.from, push.to).expect("I3");
        }
        self.removals.observe(stream, after).expect("I5");
        let deletions = cloud.deletions.get(stream).cloned().unwrap_or_default();
        deletions.check(stream, before, after).expect("I14");
    }

    /// Whether the edge is in an older history of the stream than the hub: a push that begins the
    /// stream anew waits for its application, or led to a wrong state.
    pub(crate) fn is_in_old_history(&self, stream: &StreamId) -> bool {
        let is_pending = self.work.iter().any(|work| match work {
            EdgeOutput::Apply(push) => push.stream == *stream && push.mode.begins_anew(),
            _ => false,
        });
        is_pending || self.in_old_history.contains(stream)
    }
}
