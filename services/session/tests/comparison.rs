//! An edge at an invalid position sends a summary of its entries and receives the difference. The
//! tests run both ends, with faults between them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use headwater_check::State;
use headwater_event::{
    Applied, Boot, Change, Checkpoint, DigestKey, Envelope, Event, Identity, Incarnation, LogId,
    RemovalRuns, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_session::message::{
    Compare, Divergence, EdgeMessage, HubMessage, PROTOCOL, Push, PushMode, ReplicaPosition,
    Summary, Welcome,
};
use headwater_session::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeSettings, EdgeState, HubCloseReason,
    HubInput, HubOutput, HubSession, HubSettings, MemorySource, PushFault, Readiness, Violation,
};
use proptest::prelude::*;
use uuid::Uuid;

/// The versions of a stream's objects, by the objects' numbers.
type Objects = BTreeMap<u16, u16>;

fn log_id(number: u64) -> LogId {
    LogId { number, uuid: Uuid::from_u128(number.into()) }
}

fn identity() -> Identity {
    let boot = Boot { number: 3, nonce: 3 };
    Identity { node: "a".parse().expect("well-formed"), incarnation: Incarnation(1), boot }
}

fn private() -> StreamId {
    StreamId::node(&identity().node)
}

fn applied(number: u16, object: u16) -> Applied {
    let (uid, resource_version) = (format!("uid-{number}"), String::new());
    let key = format!("ns/pod/p{number:04}").parse().expect("well-formed");
    let object = format!("{{\"n\":{number},\"v\":{object},\"pad\":\"{}\"}}", "x".repeat(50));
    Applied { key, uid, resource_version, object: Bytes::from(object) }
}

/// A log with some objects, and a hub's fold of it.
struct Cloud {
    log_id: LogId,
    source: MemorySource,
    state: State,
    seq: u64,
}

impl Cloud {
    fn new(number: u64, objects: &Objects) -> Self {
        let mut source = MemorySource::new(4);
        source.begin(log_id(number));
        source.set_readiness(Readiness::Reconciled);
        let mut cloud = Self { log_id: log_id(number), source, state: State::default(), seq: 0 };
        objects.iter().for_each(|(number, object)| cloud.put(*number, *object));
        cloud
    }

    fn put(&mut self, number: u16, object: u16) {
        let applied = applied(number, object);
        self.state.apply(&Change::Applied(applied.clone()));
        self.seq += 1;
        let envelope = Envelope {
            stream: private(),
            seq: Seq(self.seq),
            epoch: WriterEpoch(1),
            epoch_first_seq: Seq(1),
            time_ms: 0,
            hash: self.state.hash(&self.log_id),
            traceparent: None,
            shared: None,
            event: Event::Applied(applied),
        };
        self.source.fold(envelope).expect("in order");
    }
}

/// An edge's replica of the stream.
#[derive(Clone, Default)]
struct Disk {
    checkpoint: Option<Checkpoint>,
    state: State,
}

impl Disk {
    /// The replica of a log with these objects.
    fn of(number: u64, objects: &Objects) -> Self {
        let Cloud { log_id, state, seq, .. } = Cloud::new(number, objects);
        let checkpoint = Checkpoint { log_id, epoch: WriterEpoch(1), seq: Seq(seq) };
        Self { checkpoint: (seq > 0).then_some(checkpoint), state }
    }
}

/// Both ends of a connection, and the edge's disk.
struct Link {
    hub: HubSession,
    edge: EdgeSession,
    disk: Disk,
    staged: (RemovalRuns, Vec<Change>),
    up: VecDeque<EdgeMessage>,
    down: VecDeque<HubMessage>,
    /// The next push leads to a wrong state.
    miscomputes: bool,
    /// The messages of both ends about the comparison.
    messages: Vec<String>,
}

impl Link {
    fn new(disk: Disk) -> Self {
        Self::with(disk, HubSettings::default(), EdgeSettings::default())
    }

    fn with(disk: Disk, hub: HubSettings, edge: EdgeSettings) -> Self {
        let position = disk.checkpoint.map(|checkpoint| ReplicaPosition {
            stream: private(),
            checkpoint,
            hash: disk.state.hash(&checkpoint.log_id),
        });
        let positions = position.into_iter().collect();
        let state = EdgeState { identity: identity(), positions, assignment: None };
        let mut link = Self {
            hub: HubSession::new(hub, identity().node),
            edge: EdgeSession::new(edge, state),
            disk,
            staged: Default::default(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            miscomputes: false,
            messages: Vec::new(),
        };
        link.edge(EdgeInput::Connected);
        link
    }

    fn edge(&mut self, input: EdgeInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.edge.step(input) {
                match output {
                    EdgeOutput::Send(message) => self.up.push_back(message),
                    EdgeOutput::Apply(push) => inputs.extend(self.apply(push)),
                    EdgeOutput::Summarize { stream, nonce, entries_max } => {
                        let mut digests = self.disk.state.digests(&DigestKey::new(nonce), "");
                        if digests.len() > entries_max {
                            digests.clear();
                        }
                        inputs.push_back(EdgeInput::Summarized { stream, nonce, digests });
                    }
                    EdgeOutput::DelayAck => inputs.push_back(EdgeInput::AckDue),
                    EdgeOutput::Close(end) => panic!("the edge ended it: {end}"),
                    _ => {}
                }
            }
        }
    }

    fn apply(&mut self, push: Push) -> Vec<EdgeInput> {
        if push.part == 0 {
            self.staged = (push.gone.clone(), Vec::new());
        }
        self.staged.1.extend(push.changes.into_iter().map(|pushed| pushed.change));
        if !push.last_part {
            return Vec::new();
        }
        let mut state = self.disk.state.clone();
        match push.mode {
            PushMode::Tail | PushMode::Delta => {}
            PushMode::Snapshot => state = State::default(),
            PushMode::Correction => state.retain(&self.staged.0),
        }
        self.staged.1.iter().for_each(|change| state.apply(change));
        let (stream, checkpoint) = (push.stream, push.to);
        let mut hash = state.hash(&checkpoint.log_id);
        if std::mem::take(&mut self.miscomputes) {
            hash = StateHash::from_bytes(&[7; 32]);
        }
        let applied = EdgeInput::Applied { stream: stream.clone(), checkpoint, hash };
        if hash != push.hash {
            return vec![applied];
        }
        self.disk = Disk { checkpoint: Some(checkpoint), state };
        vec![applied, EdgeInput::Durable { stream, checkpoint }]
    }

    fn hub(&mut self, source: &MemorySource, input: HubInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for output in self.hub.step(source, input) {
                match output {
                    HubOutput::Send(message) => self.down.push_back(message),
                    HubOutput::Identify(_) => inputs.push_back(HubInput::Admitted { known: None }),
                    HubOutput::Close(end) => panic!("the hub ended it: {end}"),
                    _ => {}
                }
            }
        }
    }

    /// Delivers one message; `false`: there is none.
    fn deliver(&mut self, source: &MemorySource) -> bool {
        if let Some(message) = self.up.pop_front() {
            self.messages.extend(match &message {
                EdgeMessage::Summary(summary) => Some(format!("summary {}", summary.digests.len())),
                EdgeMessage::Divergence(_) => Some("diverged".to_owned()),
                _ => None,
            });
            self.hub(source, HubInput::Received(message));
            return true;
        }
        let Some(message) = self.down.pop_front() else { return false };
        self.messages.extend(match &message {
            HubMessage::Compare(_) => Some("compare".to_owned()),
            HubMessage::ParkNotice(_) => Some("parked".to_owned()),
            HubMessage::Push(push) => {
                let (mode, changes, gone) = (push.mode, push.changes.len(), push.gone.count());
                Some(format!("{mode:?} +{changes} -{gone}"))
            }
            _ => None,
        });
        self.edge(EdgeInput::Received(message));
        true
    }

    fn settle(&mut self, source: &MemorySource) {
        while self.deliver(source) {}
    }

    /// Asserts that the edge has the cloud's state, and that the hub knows it.
    fn check(&self, cloud: &Cloud) {
        assert_eq!(self.disk.state, cloud.state);
        let at = self.disk.checkpoint.expect("a replica");
        assert_eq!((at.log_id, at.seq), (cloud.log_id, Seq(cloud.seq)));
        let status = self.hub.streams().next().expect("one stream");
        assert_eq!((status.acked, status.resetting), (Seq(cloud.seq), false));
    }
}

fn thousand() -> Objects {
    (0..1_000).map(|number| (number, 1)).collect()
}

/// The thousand after ten changes, ten removals and ten additions.
fn few_differ() -> Objects {
    let mut objects = thousand();
    for n in 0..10 {
        objects.insert(n * 97, 2);
        objects.remove(&(n * 97 + 1));
        objects.insert(2_000 + n, 1);
    }
    objects
}

#[test]
fn a_correction_carries_only_the_difference() {
    let cloud = Cloud::new(2, &few_differ());
    let mut link = Link::new(Disk::of(1, &thousand()));
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["compare", "summary 1000", "Correction +20 -20"]);
    link.check(&cloud);
}

#[test]
fn a_correction_without_a_difference_moves_only_the_position() {
    let cloud = Cloud::new(2, &thousand());
    let mut link = Link::new(Disk::of(1, &thousand()));
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["compare", "summary 1000", "Correction +0 -0"]);
    link.check(&cloud);
}

#[test]
fn a_correction_of_disjoint_states_carries_everything() {
    let cloud = Cloud::new(2, &(5..9).map(|number| (number, 1)).collect());
    let mut link = Link::new(Disk::of(1, &(0..3).map(|number| (number, 1)).collect()));
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["compare", "summary 3", "Correction +4 -3"]);
    link.check(&cloud);
}

#[test]
fn an_edge_without_entries_receives_a_snapshot_without_a_comparison() {
    let cloud = Cloud::new(2, &thousand());
    let mut link = Link::new(Disk::default());
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["Snapshot +1000 -0"]);
    link.check(&cloud);
}

#[test]
fn an_edge_with_too_many_entries_for_a_summary_receives_a_snapshot() {
    let cloud = Cloud::new(2, &thousand());
    let settings = EdgeSettings { summary_entries_max: 999, ..EdgeSettings::default() };
    let mut link = Link::with(Disk::of(1, &thousand()), HubSettings::default(), settings);
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["compare", "summary 0", "Snapshot +1000 -0"]);
    link.check(&cloud);
}

#[test]
fn a_correction_comes_in_parts_no_larger_than_a_frame() {
    let cloud = Cloud::new(2, &few_differ());
    let settings = HubSettings { frame_bytes_max: 1_000, ..HubSettings::default() };
    let mut link = Link::with(Disk::of(1, &thousand()), settings, EdgeSettings::default());
    link.settle(&cloud.source);
    assert!(link.messages.len() > 4, "{:?}", link.messages);
    let gone = link.messages[2..].iter().filter(|message| message.ends_with("-20")).count();
    assert_eq!(gone, 1, "only the first part has it: {:?}", link.messages);
    link.check(&cloud);
}

#[test]
fn a_correction_that_does_not_hash_is_healed_by_a_snapshot() {
    let cloud = Cloud::new(2, &few_differ());
    let mut link = Link::new(Disk::of(1, &thousand()));
    link.miscomputes = true;
    link.settle(&cloud.source);
    let correction = "Correction +20 -20";
    let messages = ["compare", "summary 1000", correction, "diverged", "Snapshot +1000 -0"];
    assert_eq!(link.messages, messages);
    link.check(&cloud);
}

#[test]
fn a_divergence_names_a_seq_of_the_new_history_when_the_old_one_was_longer() {
    let cloud = Cloud::new(2, &[(0, 1)].into());
    let mut link = Link::new(Disk::of(1, &thousand()));
    link.miscomputes = true;
    link.settle(&cloud.source);
    let messages = ["compare", "summary 1000", "Correction +0 -999", "diverged", "Snapshot +1 -0"];
    assert_eq!(link.messages, messages);
    link.check(&cloud);
}

#[test]
fn a_divergence_that_crosses_a_compare_request_voids_the_summary() {
    let cloud = Cloud::new(2, &few_differ());
    let mut link = Link::new(Disk::of(1, &thousand()));
    while link.messages != ["compare"] {
        link.deliver(&cloud.source);
    }
    let diverged = Divergence { stream: private(), seq: Seq(1_000) };
    link.up.push_front(EdgeMessage::Divergence(diverged));
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["compare", "diverged", "summary 1000", "Snapshot +1000 -0"]);
    link.check(&cloud);
}

#[test]
fn a_connection_may_be_cut_at_any_point() {
    let cloud = Cloud::new(2, &few_differ());
    let settings = HubSettings { frame_bytes_max: 1_000, ..HubSettings::default() };
    for messages in 0.. {
        let disk = Disk::of(1, &thousand());
        let mut link = Link::with(disk, settings.clone(), EdgeSettings::default());
        let is_cut = (0..messages).all(|_| link.deliver(&cloud.source));
        // The messages in flight are lost; the edge survives.
        (link.up, link.down) = Default::default();
        link.hub = HubSession::new(settings.clone(), identity().node);
        link.edge(EdgeInput::Disconnected);
        link.edge(EdgeInput::Connected);
        link.settle(&cloud.source);
        link.check(&cloud);
        if !is_cut {
            return assert!(messages > 8, "{:?}", link.messages);
        }
    }
}

#[test]
fn a_correction_leads_to_the_fold_at_the_time_of_the_summary() {
    let mut cloud = Cloud::new(2, &few_differ());
    let mut link = Link::new(Disk::of(1, &thousand()));
    while link.messages != ["compare"] {
        link.deliver(&cloud.source);
    }
    cloud.put(500, 9);
    link.hub(&cloud.source, HubInput::Advanced);
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["compare", "summary 1000", "Correction +21 -21"]);
    link.check(&cloud);

    // After a new claim, the log may be half-written (I14).
    let mut link = Link::new(Disk::of(1, &thousand()));
    while link.messages != ["compare"] {
        link.deliver(&cloud.source);
    }
    cloud.source.set_readiness(Readiness::Folded);
    link.settle(&cloud.source);
    assert_eq!(link.messages, ["compare", "summary 1000", "parked"]);
    cloud.source.set_readiness(Readiness::Reconciled);
    link.hub(&cloud.source, HubInput::Advanced);
    link.settle(&cloud.source);
    let again = ["compare", "summary 1000", "Correction +21 -21"];
    assert_eq!(link.messages[3..], again);
    link.check(&cloud);
}

#[test]
fn heartbeats_carry_a_tail_until_the_edge_has_received_it_there() {
    let mut cloud = Cloud::new(1, &thousand());
    let mut link = Link::new(Disk::of(1, &thousand()));
    link.settle(&cloud.source);
    let tails = |link: &mut Link, cloud: &Cloud, now_ms| {
        link.hub(&cloud.source, HubInput::Tick(now_ms));
        link.down.iter().rev().find_map(|message| match message {
            HubMessage::Heartbeat(heartbeat) => Some(heartbeat.tails.len()),
            _ => None,
        })
    };
    assert_eq!(tails(&mut link, &cloud, 1), None, "it is not time");
    assert_eq!(tails(&mut link, &cloud, 10_000), Some(1));
    assert_eq!(tails(&mut link, &cloud, 20_000), Some(0), "its hash was compared");
    cloud.put(500, 9);
    link.hub(&cloud.source, HubInput::Advanced);
    assert_eq!(tails(&mut link, &cloud, 30_000), Some(1), "it is not there yet");
    link.settle(&cloud.source);
    assert_eq!(
        tails(&mut link, &cloud, 40_000),
        Some(1),
        "it is there, and receives the tail once more"
    );
    assert_eq!(tails(&mut link, &cloud, 50_000), Some(0));
}

#[test]
fn a_summary_is_bounded_and_one_without_a_request_is_ignored() {
    let cloud = Cloud::new(1, &thousand());
    let settings = HubSettings { summary_entries_max: 10, ..HubSettings::default() };
    let mut link = Link::with(Disk::of(1, &thousand()), settings, EdgeSettings::default());
    link.settle(&cloud.source);
    assert_eq!(link.messages, [""; 0], "it has everything");
    let digests = cloud.state.digests(&DigestKey::new(1), "");
    let summary = |count, stream: &str| {
        let stream = stream.parse().expect("a stream");
        let digests = digests[..count].to_vec();
        HubInput::Received(EdgeMessage::Summary(Summary { stream, nonce: 1, digests }))
    };
    assert_eq!(link.hub.step(&cloud.source, summary(10, "node/a")), []);
    let mut end = |input| match link.hub.step(&cloud.source, input).pop() {
        Some(HubOutput::Close(HubCloseReason::Violation(violation))) => violation,
        other => panic!("not the end: {other:?}"),
    };
    let (what, count, max) = ("digests in a summary", 11, 10);
    assert_eq!(end(summary(11, "node/a")), Violation::TooMany { what, count, max });
    link = Link::new(Disk::of(1, &thousand()));
    link.settle(&cloud.source);
    let mut end = |input| match link.hub.step(&cloud.source, input).pop() {
        Some(HubOutput::Close(HubCloseReason::Violation(violation))) => violation,
        other => panic!("not the end: {other:?}"),
    };
    let stream: StreamId = "node/b".parse().expect("a stream");
    assert_eq!(end(summary(1, "node/b")), Violation::Stream { stream });
}

/// An edge with three objects that a hub of a later log has welcomed.
fn welcomed() -> EdgeSession {
    let disk = Disk::of(1, &(0..3).map(|number| (number, 1)).collect());
    let mut edge = Link::new(disk).edge;
    let welcome = Welcome {
        protocol: PROTOCOL,
        log_id: log_id(2),
        streams: vec![private()],
        known: None,
        verbs: Vec::new(),
        takes_events: true,
    };
    edge.step(EdgeInput::Received(HubMessage::Welcome(welcome)));
    edge
}

fn compare(stream: &str) -> EdgeInput {
    let stream = stream.parse().expect("a stream");
    EdgeInput::Received(HubMessage::Compare(Compare { stream, nonce: 5 }))
}

fn summarized(count: usize) -> EdgeInput {
    let disk = Disk::of(1, &(0..3).map(|number| (number, 1)).collect());
    let digests = disk.state.digests(&DigestKey::new(5), "")[..count].to_vec();
    EdgeInput::Summarized { stream: private(), nonce: 5, digests }
}

fn push(mode: PushMode, gone: &[u32]) -> EdgeInput {
    let to = Checkpoint { log_id: log_id(2), epoch: WriterEpoch(1), seq: Seq(1) };
    EdgeInput::Received(HubMessage::Push(Push {
        stream: private(),
        mode,
        from: Seq::ZERO,
        to,
        gone: RemovalRuns::from_runs(gone.to_vec()),
        changes: Vec::new(),
        hash: StateHash::EMPTY,
        part: 0,
        last_part: true,
    }))
}

#[test]
fn a_correction_without_a_summary_is_refused() {
    let fault = |inputs: Vec<EdgeInput>| {
        let mut edge = welcomed();
        let mut outputs = inputs.into_iter().flat_map(|input| edge.step(input));
        outputs.find_map(|output| match output {
            EdgeOutput::Close(EdgeCloseReason::Push { fault, .. }) => Some(fault),
            _ => None,
        })
    };
    let correct = |gone: &[u32]| push(PushMode::Correction, gone);
    let asked = || compare("node/a");
    assert_eq!(fault(vec![asked(), summarized(3), correct(&[0, 3])]), None);
    let not_compared = Some(PushFault::NotCompared);
    assert_eq!(fault(vec![correct(&[])]), not_compared);
    assert_eq!(fault(vec![asked(), correct(&[])]), not_compared, "no summary was sent");
    let twice = vec![asked(), summarized(3), correct(&[]), correct(&[])];
    assert_eq!(fault(twice), not_compared, "the first correction used the summary");
    let overtaken = vec![asked(), push(PushMode::Snapshot, &[]), summarized(3), correct(&[])];
    assert_eq!(fault(overtaken), not_compared, "the snapshot made the summary stale");
    let error = fault(vec![asked(), summarized(3), correct(&[2, 2])]);
    assert_eq!(error, Some(PushFault::Gone { corrected: 4, summarized: 3 }));
    let error = fault(vec![asked(), summarized(3), push(PushMode::Snapshot, &[2, 1])]);
    assert!(matches!(error, Some(PushFault::Mode { mode: "snapshot", .. })), "{error:?}");
    assert_eq!(fault(vec![compare("node/b")]), Some(PushFault::NotReadable));
}

#[test]
fn a_compare_request_has_one_response_on_its_own_connection() {
    let mut edge = welcomed();
    let is_summary = |outputs: &[EdgeOutput], count| match outputs {
        [EdgeOutput::Send(EdgeMessage::Summary(summary))] => summary.digests.len() == count,
        _ => false,
    };
    assert!(is_summary(&edge.step(compare("cluster")), 0), "it has no replica");
    assert!(matches!(edge.step(compare("node/a"))[..], [EdgeOutput::Summarize { nonce: 5, .. }]));
    assert!(is_summary(&edge.step(summarized(3)), 3));
    assert_eq!(edge.step(summarized(3)), [], "once");
    edge.step(compare("node/a"));
    let end = edge.step(compare("node/a"));
    assert!(matches!(end[..], [EdgeOutput::Close(EdgeCloseReason::Unexpected { .. })]), "{end:?}");
    assert_eq!(edge.step(summarized(3)), [], "the connection is gone");
}

proptest! {
    /// From any state to any state, with frames of any size.
    #[test]
    fn an_edge_ends_as_the_hub(
        held in prop::collection::btree_map(0u16..40, 0u16..3, 0..30),
        wanted in prop::collection::btree_map(0u16..40, 0u16..3, 1..30),
        frame_bytes_max in 100u64..5_000,
        miscomputes: bool,
    ) {
        let cloud = Cloud::new(2, &wanted);
        let settings = HubSettings { frame_bytes_max, ..HubSettings::default() };
        let mut link = Link::with(Disk::of(1, &held), settings, EdgeSettings::default());
        // Another snapshot cannot mend a snapshot with a wrong hash.
        link.miscomputes = miscomputes && !held.is_empty();
        link.settle(&cloud.source);
        link.check(&cloud);
        let changes: usize = held.iter().filter(|(n, o)| wanted.get(n) != Some(o)).count();
        if !held.is_empty() {
            let gone = link.messages.iter().find(|message| message.starts_with("Correction"));
            let gone = gone.expect("it was compared");
            prop_assert!(gone.ends_with(&format!("-{changes}")), "{gone}");
        }
    }
}
