//! The cloud of the simulated world: a source of objects, the writer that appends them, and every
//! id and branch that the log has had.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use headwater_check::deletion::RemovedUids as Deletions;
use headwater_check::monotonic::Monotonic;
use headwater_check::{State, prefix};
use headwater_event::{
    Applied, Assignment, Change, Checkpoint, EntryKey, Envelope, Event, LogId, NodeName, Removed,
    Report, ReportId, ReportKey, Seq, StateHash, StreamId, WriterEpoch,
};
use uuid::Uuid;

/// A record of the log, with the parts that hubs read.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Claim(WriterEpoch),
    Event(Box<Envelope>),
    Reconciled,
}

/// One history of the log: its records, in order.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) log_id: LogId,
    pub(crate) records: Vec<Record>,
}

pub(crate) struct Cloud {
    pub(crate) nodes: Vec<NodeName>,
    /// Every branch so far; the last one is the log.
    pub(crate) branches: Vec<Branch>,
    /// The source's objects with their UIDs.
    desired: BTreeMap<(StreamId, EntryKey), (String, Bytes)>,
    pub(crate) deletions: BTreeMap<StreamId, Deletions>,
    epoch: WriterEpoch,
    first_seqs: BTreeMap<StreamId, Seq>,
    minted: u64,
    pub(crate) logged: BTreeMap<NodeName, BTreeSet<ReportId>>,
    counted: BTreeMap<(NodeName, ReportKey), ReportId>,
    monotonic: Monotonic,
    /// Whether history has been lost at least once.
    pub(crate) lost_history: bool,
}

impl Cloud {
    pub(crate) fn new(nodes: &[NodeName]) -> Self {
        let mut cloud = Self {
            nodes: nodes.to_vec(),
            branches: Vec::new(),
            desired: BTreeMap::new(),
            deletions: BTreeMap::new(),
            epoch: WriterEpoch::default(),
            first_seqs: BTreeMap::new(),
            minted: 0,
            logged: BTreeMap::new(),
            counted: BTreeMap::new(),
            monotonic: Monotonic::default(),
            lost_history: false,
        };
        for node in nodes {
            let assignment = Assignment::new(node, [StreamId::Cluster]);
            let key = (StreamId::node(node), EntryKey::Streams);
            cloud.desired.insert(key, (String::new(), assignment.encode()));
        }
        cloud.recreate_log();
        cloud.reconcile(usize::MAX);
        cloud
    }

    fn log(&self) -> &Branch {
        self.branches.last().expect("a log is created first")
    }

    fn log_mut(&mut self) -> &mut Branch {
        self.branches.last_mut().expect("a log is created first")
    }

    pub(crate) fn branch(&self) -> usize {
        self.branches.len() - 1
    }

    /// Replaces the log by another one, empty.
    pub(crate) fn recreate_log(&mut self) {
        self.lost_history |= !self.branches.is_empty();
        let number = self.branches.last().map_or(0, |branch| branch.log_id.number) + 1;
        let log_id = LogId { number, uuid: Uuid::from_u128(number.into()) };
        self.branches.push(Branch { log_id, records: Vec::new() });
        self.epoch = WriterEpoch::default();
        self.claim();
    }

    /// Another writer takes over.
    pub(crate) fn claim(&mut self) {
        self.epoch = self.epoch.next();
        self.first_seqs.clear();
        let claim = Record::Claim(self.epoch);
        self.log_mut().records.push(claim);
    }

    /// The last records are lost, and another writer goes on from there.
    pub(crate) fn truncate(&mut self, records: usize) {
        let mut branch = self.log().clone();
        // A claim survives the loss of its records; otherwise two branches could have one epoch.
        let keep = branch.records.len().saturating_sub(records);
        branch.records.truncate(keep);
        self.branches.push(branch);
        self.lost_history = true;
        self.claim();
    }

    /// The events of a stream in a branch.
    pub(crate) fn events(&self, branch: usize, stream: &StreamId) -> Vec<Envelope> {
        self.branches[branch]
            .records
            .iter()
            .filter_map(|record| match record {
                Record::Event(event) if event.stream == *stream => Some((**event).clone()),
                _ => None,
            })
            .collect()
    }

    /// The events of the branch in which this checkpoint lies.
    pub(crate) fn history(&self, stream: &StreamId, at: &Checkpoint) -> Option<Vec<Envelope>> {
        (0..self.branches.len()).rev().find_map(|branch| {
            let events = self.events(branch, stream);
            let Branch { log_id, records } = &self.branches[branch];
            let is_claimed = records
                .iter()
                .any(|record| matches!(record, Record::Claim(epoch) if *epoch == at.epoch));
            let is_there = at.seq == Seq::ZERO
                || events.iter().any(|event| event.seq == at.seq && event.epoch <= at.epoch);
            (*log_id == at.log_id && is_claimed && is_there).then_some(events)
        })
    }

    fn append(&mut self, stream: &StreamId, event: Event) {
        let log_id = self.log().log_id;
        let events = self.events(self.branch(), stream);
        let seq = events.last().map_or(Seq(1), |last| last.seq.next());
        let mut state = State::fold(&events, seq);
        if let Some(change) = event.change() {
            state.apply(&change);
        }
        let epoch_first_seq = *self.first_seqs.entry(stream.clone()).or_insert(seq);
        let envelope = Envelope {
            stream: stream.clone(),
            seq,
            epoch: self.epoch,
            epoch_first_seq,
            time_ms: 0,
            hash: state.hash(&log_id),
            traceparent: None,
            shared: None,
            event,
        };
        self.log_mut().records.push(Record::Event(Box::new(envelope)));
    }

    /// Whether the writer has logged all differences of its source.
    fn is_reconciled(&self) -> bool {
        let last = self.log().records.iter().rev();
        let mut marks = last.filter(|record| !matches!(record, Record::Event(_)));
        matches!(marks.next(), Some(Record::Reconciled))
    }

    /// Appends up to `steps` differences between the source and the log, and a mark when none is
    /// left.
    pub(crate) fn reconcile(&mut self, steps: usize) {
        if self.is_reconciled() {
            return;
        }
        for _ in 0..steps {
            let Some((stream, change)) = self.difference() else {
                self.log_mut().records.push(Record::Reconciled);
                return;
            };
            self.append(&stream, change.into());
        }
    }

    fn difference(&self) -> Option<(StreamId, Change)> {
        let mut streams: BTreeSet<_> = self.nodes.iter().map(StreamId::node).collect();
        streams.insert(StreamId::Cluster);
        streams.into_iter().find_map(|stream| {
            let logged = State::fold(&self.events(self.branch(), &stream), Seq(u64::MAX));
            let wanted: BTreeMap<_, _> =
                self.desired.iter().filter(|((of, _), _)| *of == stream).collect();
            let mut state = State::default();
            for ((_, key), (uid, object)) in &wanted {
                state.apply(&applied(key, uid, object));
            }
            let (key, mine, theirs) = state.difference(&logged)?;
            let change = match (mine, theirs) {
                (Some(_), _) => {
                    let (uid, object) = wanted[&(stream.clone(), key.clone())];
                    applied(key, uid, object)
                }
                (None, gone) => Change::Removed(Removed {
                    key: key.clone(),
                    uid: gone.map_or_else(String::new, |entry| entry.uid.clone()),
                }),
            };
            Some((stream, change))
        })
    }

    /// The source sets an object (with a new UID where there was none) or removes it.
    pub(crate) fn set(&mut self, stream: &StreamId, key: EntryKey, size: Option<u16>) {
        self.minted += 1;
        let place = (stream.clone(), key.clone());
        let before = self.desired.get(&place).cloned();
        let change = match (size, before) {
            (Some(size), before) => {
                let uid = before.map_or_else(|| format!("uid-{}", self.minted), |(uid, _)| uid);
                // The bytes name the node (I6), and no two objects are equal.
                let object = format!("{{\"of\":\"{stream}\",\"n\":{}}}", self.minted)
                    + &" ".repeat(size.into());
                let object = Bytes::from(object);
                self.desired.insert(place, (uid.clone(), object.clone()));
                applied(&key, &uid, &object)
            }
            (None, Some((uid, _))) => {
                self.desired.remove(&place);
                let deletions = self.deletions.entry(stream.clone()).or_default();
                deletions.remove(key.clone(), uid.clone());
                Change::Removed(Removed { key, uid })
            }
            (None, None) => return,
        };
        if self.is_reconciled() {
            self.append(stream, change.into());
        }
    }

    /// The node gets or loses the cluster stream.
    pub(crate) fn assign(&mut self, node: &NodeName, is_assigned: bool) {
        let assignment = Assignment::new(node, is_assigned.then_some(StreamId::Cluster));
        let stream = StreamId::node(node);
        let place = (stream.clone(), EntryKey::Streams);
        let object = assignment.encode();
        if self.desired.get(&place).is_some_and(|(_, before)| *before == object) {
            return;
        }
        self.desired.insert(place, (String::new(), object.clone()));
        if self.is_reconciled() {
            self.append(&stream, applied(&EntryKey::Streams, "", &object).into());
        }
    }

    pub(crate) fn assigned(&self, node: &NodeName) -> Assignment {
        let (_, object) = &self.desired[&(StreamId::node(node), EntryKey::Streams)];
        Assignment::decode(node, object).expect("the cloud wrote it")
    }

    /// Marks the position of a stream.
    pub(crate) fn head(&mut self, stream: &StreamId) {
        if self.is_reconciled() && !self.events(self.branch(), stream).is_empty() {
            self.append(stream, Event::Head);
        }
    }

    /// The end of a stream, with the hash there.
    pub(crate) fn end(&self, stream: &StreamId) -> (Seq, StateHash) {
        let events = self.events(self.branch(), stream);
        events.last().map_or((Seq::ZERO, StateHash::EMPTY), |last| (last.seq, last.hash))
    }

    /// Appends reports to the upstream log, and counts them as the controller's fold does (I4).
    pub(crate) fn report(&mut self, node: &NodeName, reports: &[Report]) {
        for report in reports {
            self.logged.entry(node.clone()).or_default().insert(report.id);
            let key = report.body.key(node).expect("a well-formed report");
            let place = (node.clone(), key.clone());
            let counts = self.counted.get(&place).is_none_or(|counted| *counted < report.id);
            if counts {
                self.monotonic.counted(node, &key, report.id).expect("I4");
                self.counted.insert(place, report.id);
            }
        }
    }

    /// Checks I1 of a replica at `at`.
    pub(crate) fn check_prefix(&self, stream: &StreamId, at: &Checkpoint, state: &State) {
        let history = self.history(stream, at);
        let history = history.unwrap_or_else(|| panic!("I1 {stream}: {at:?} was never logged"));
        prefix::check(&history, stream, at.seq, state).expect("I1");
    }
}

fn applied(key: &EntryKey, uid: &str, object: &Bytes) -> Change {
    Change::Applied(Applied {
        key: key.clone(),
        uid: uid.to_owned(),
        resource_version: String::new(),
        object: object.clone(),
    })
}
