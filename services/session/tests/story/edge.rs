//! The edge's end of a session.

use headwater_event::{
    Applied, Assignment, Change, EntryKey, Identity, Incarnation, LogId, RemovalRuns, Seq, StreamId,
};
use headwater_session::message::{
    Compare, EdgeMessage, HubHeartbeat, HubMessage, PROTOCOL, Push, PushMode, ReplicaPosition,
    Request, RequestError, RequestVerb, Welcome,
};
use headwater_session::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeSettings, EdgeState, PushFault,
};
use uuid::Uuid;

use crate::{at, hash, identity, log_id, pod, private};

fn push(mode: PushMode, from: u64, to: u64) -> Push {
    let change = Change::Applied(pod("p", "{}"));
    Push {
        stream: private(),
        mode,
        from: Seq(from),
        to: at(to),
        gone: RemovalRuns::default(),
        changes: vec![change.into()],
        hash: hash(1),
        part: 0,
        last_part: true,
    }
}

/// An edge at seq 5 that a hub has welcomed.
pub(crate) fn open_edge() -> EdgeSession {
    let (mut edge, _) = greeting_edge();
    let outputs = edge.step(welcome(None));
    assert!(outputs.contains(&EdgeOutput::Welcomed { log_id: log_id() }));
    edge
}

pub(crate) fn greeting_edge() -> (EdgeSession, Vec<EdgeOutput>) {
    let position = ReplicaPosition { stream: private(), checkpoint: at(5), hash: hash(9) };
    let state = EdgeState { identity: identity(3), positions: vec![position], assignment: None };
    let mut edge = EdgeSession::new(EdgeSettings::default(), state);
    let outputs = edge.step(EdgeInput::Connected);
    (edge, outputs)
}

pub(crate) fn welcome(known: Option<Identity>) -> EdgeInput {
    let streams = vec![private()];
    EdgeInput::Received(HubMessage::Welcome(Welcome {
        protocol: PROTOCOL,
        log_id: log_id(),
        streams,
        known,
        verbs: RequestVerb::ALL.to_vec(),
        takes_events: true,
    }))
}

fn pushed(push: Push) -> EdgeInput {
    EdgeInput::Received(HubMessage::Push(push))
}

#[test]
fn a_session_begins_from_what_is_durable() {
    let mut edge = open_edge();
    let outputs = edge.step(pushed(push(PushMode::Tail, 5, 6)));
    assert_eq!(outputs, [EdgeOutput::Apply(push(PushMode::Tail, 5, 6))]);
    edge.step(EdgeInput::Disconnected);
    // The push is first in progress, then applied but not synced; the hello waits for the sync.
    assert_eq!(edge.step(EdgeInput::Connected), []);
    let applied = EdgeInput::Applied { stream: private(), checkpoint: at(6), hash: hash(1) };
    assert_eq!(edge.step(applied), [EdgeOutput::Sync]);
    let outputs = edge.step(EdgeInput::Durable { stream: private(), checkpoint: at(6) });
    let [EdgeOutput::Send(EdgeMessage::Hello(hello))] = &outputs[..] else {
        panic!("no hello: {outputs:?}")
    };
    assert_eq!(hello.positions[0].checkpoint, at(6));
    assert_eq!(hello.positions[0].hash, hash(1));
}

#[test]
fn a_gap_ends_the_session_and_nothing_is_applied() {
    let mut edge = open_edge();
    let outputs = edge.step(pushed(push(PushMode::Tail, 6, 7)));
    let fault = PushFault::Gap { from: Seq(6), applied: Seq(5) };
    assert_eq!(outputs, [EdgeOutput::Close(EdgeCloseReason::Push { stream: private(), fault })]);
}

#[test]
fn a_snapshot_that_goes_back_is_refused() {
    let mut edge = open_edge();
    let outputs = edge.step(pushed(push(PushMode::Snapshot, 0, 4)));
    let fault = PushFault::Back { held: at(5), to: at(4) };
    assert_eq!(outputs, [EdgeOutput::Close(EdgeCloseReason::Push { stream: private(), fault })]);
}

#[test]
fn a_push_in_parts_counts_only_when_its_parts_are_all_there_in_order() {
    let part = |part, last_part| Push { part, last_part, ..push(PushMode::Snapshot, 0, 9) };
    let mut edge = open_edge();
    for (number, last) in [(0, false), (1, false), (2, true)] {
        let outputs = edge.step(pushed(part(number, last)));
        assert_eq!(outputs, [EdgeOutput::Apply(part(number, last))]);
    }
    assert_eq!(edge.streams().next().expect("one stream").received, Seq(9));

    let mut edge = open_edge();
    edge.step(pushed(part(0, false)));
    let outputs = edge.step(pushed(part(2, true)));
    let fault = PushFault::Part { expected: 1, staged: Seq(9), part: 2, to: Seq(9) };
    assert_eq!(
        outputs,
        [
            EdgeOutput::Unstage(private()),
            EdgeOutput::Close(EdgeCloseReason::Push { stream: private(), fault }),
        ]
    );
    assert_eq!(edge.streams().next().expect("one stream").received, Seq(5));
}

#[test]
fn an_acknowledgement_as_durable_follows_the_sync() {
    let mut edge = open_edge();
    edge.step(pushed(push(PushMode::Tail, 5, 6)));
    edge.step(EdgeInput::Applied { stream: private(), checkpoint: at(6), hash: hash(1) });
    let outputs = edge.step(EdgeInput::Tick(1));
    let [EdgeOutput::Send(EdgeMessage::Ack(ack))] = &outputs[..] else {
        panic!("no ack: {outputs:?}")
    };
    assert_eq!((ack.progress[0].applied, ack.progress[0].durable), (Seq(6), Seq(5)));
}

#[test]
fn syncs_in_a_row_are_acknowledged_once_an_interval() {
    let mut edge = open_edge();
    let synced = |edge: &mut EdgeSession, seq: u64| {
        edge.step(pushed(push(PushMode::Tail, seq - 1, seq)));
        edge.step(EdgeInput::Applied { stream: private(), checkpoint: at(seq), hash: hash(1) });
        edge.step(EdgeInput::Durable { stream: private(), checkpoint: at(seq) })
    };
    let acked = |outputs: &[EdgeOutput]| match outputs {
        [EdgeOutput::Send(EdgeMessage::Ack(ack)), EdgeOutput::DelayAck] => ack.progress[0].durable,
        _ => panic!("no ack with a delay: {outputs:?}"),
    };
    assert_eq!(acked(&synced(&mut edge, 6)), Seq(6), "the first one at once");
    for seq in 7..20 {
        assert_eq!(synced(&mut edge, seq), []);
    }
    assert_eq!(acked(&edge.step(EdgeInput::AckDue)), Seq(19));
    assert_eq!(edge.step(EdgeInput::AckDue), [], "nothing is new");
    assert_eq!(acked(&synced(&mut edge, 20)), Seq(20), "after a pause, at once");
    // A delay ends with its connection.
    edge.step(EdgeInput::Disconnected);
    edge.step(EdgeInput::Connected);
    edge.step(welcome(None));
    assert_eq!(acked(&synced(&mut edge, 21)), Seq(21));
}

#[test]
fn another_hash_stops_the_stream_until_a_snapshot() {
    let mut edge = open_edge();
    edge.step(pushed(push(PushMode::Tail, 5, 6)));
    let wrong = EdgeInput::Applied { stream: private(), checkpoint: at(6), hash: hash(2) };
    let outputs = edge.step(wrong);
    assert!(matches!(
        outputs[..],
        [
            EdgeOutput::Stopped(_),
            EdgeOutput::Send(EdgeMessage::Ack(_)),
            EdgeOutput::Send(EdgeMessage::Divergence(_)),
        ]
    ));
    assert_eq!(edge.step(pushed(push(PushMode::Tail, 6, 7))), [], "ignored");
    let outputs = edge.step(pushed(push(PushMode::Snapshot, 0, 7)));
    assert_eq!(outputs, [EdgeOutput::Apply(push(PushMode::Snapshot, 0, 7))]);
}

#[test]
fn a_snapshot_with_another_hash_ends_the_session_unless_another_one_has_arrived() {
    let mut edge = open_edge();
    edge.step(pushed(push(PushMode::Snapshot, 0, 6)));
    edge.step(pushed(push(PushMode::Snapshot, 0, 7)));
    let applied =
        |to, of| EdgeInput::Applied { stream: private(), checkpoint: at(to), hash: hash(of) };
    assert_eq!(edge.step(applied(6, 2)), [], "the second one decides");
    assert_eq!(edge.step(applied(7, 1)), []);
    assert_eq!(edge.streams().next().and_then(|held| held.applied), Some(at(7)));
    edge.step(pushed(push(PushMode::Snapshot, 0, 8)));
    let fault = PushFault::Snapshot { expected: hash(1), found: hash(2) };
    let end = EdgeCloseReason::Push { stream: private(), fault };
    assert_eq!(edge.step(applied(8, 2)), [EdgeOutput::Close(end)]);
}

/// An open edge that has the private stream up to seq 5 and, if `has_shared`, the shared one too.
fn assigned_edge(has_shared: bool) -> EdgeSession {
    let streams = [private()].into_iter().chain(has_shared.then_some(StreamId::Cluster));
    let positions =
        streams.map(|stream| ReplicaPosition { stream, checkpoint: at(5), hash: hash(9) });
    let shared = has_shared.then_some(StreamId::Cluster);
    let assignment = Some(Assignment::new(&identity(3).node, shared));
    let state = EdgeState { identity: identity(3), positions: positions.collect(), assignment };
    let mut edge = EdgeSession::new(EdgeSettings::default(), state);
    edge.step(EdgeInput::Connected);
    edge.step(welcome(None));
    edge
}

/// The event `seq` of the private stream, which assigns or takes the shared one.
fn assigning(seq: u64, shared: Option<StreamId>) -> Push {
    let object = Assignment::new(&identity(3).node, shared).encode();
    let (uid, resource_version) = (String::new(), String::new());
    let change = Change::Applied(Applied { key: EntryKey::Streams, uid, resource_version, object });
    Push { changes: vec![change.into()], ..push(PushMode::Tail, seq - 1, seq) }
}

/// A part of a snapshot of the shared stream.
fn shared_part(to: u64, part: u32, last_part: bool) -> Push {
    Push { stream: StreamId::Cluster, part, last_part, ..push(PushMode::Snapshot, 0, to) }
}

fn applied(stream: StreamId, seq: u64) -> EdgeInput {
    EdgeInput::Applied { stream, checkpoint: at(seq), hash: hash(1) }
}

#[test]
fn a_snapshot_of_a_gained_stream_may_arrive_before_its_assignment_is_applied() {
    let mut edge = assigned_edge(false);
    edge.step(pushed(push(PushMode::Tail, 5, 6)));
    edge.step(pushed(assigning(7, Some(StreamId::Cluster))));
    edge.step(pushed(shared_part(9, 0, false)));
    assert_eq!(edge.step(applied(private(), 6)), [], "the stream stays");
    let last = shared_part(9, 1, true);
    assert_eq!(edge.step(pushed(last.clone())), [EdgeOutput::Apply(last)]);
    edge.step(applied(private(), 7));
    assert_eq!(edge.step(applied(StreamId::Cluster, 9)), []);
}

#[test]
fn an_edge_discards_a_stream_that_a_hub_behind_it_sends() {
    let mut edge = assigned_edge(false);
    assert_eq!(edge.step(pushed(shared_part(9, 0, true))), []);
    assert_eq!(edge.streams().count(), 1);
    edge.step(pushed(assigning(6, Some(StreamId::Cluster))));
    let outputs = edge.step(applied(private(), 6));
    let [_, EdgeOutput::Send(EdgeMessage::Divergence(divergence))] = &outputs[..] else {
        panic!("no request of a snapshot: {outputs:?}")
    };
    assert_eq!(divergence.stream, StreamId::Cluster);
}

#[test]
fn a_stream_that_is_taken_before_its_snapshot_is_complete_leaves() {
    let mut edge = assigned_edge(false);
    edge.step(pushed(assigning(6, Some(StreamId::Cluster))));
    edge.step(applied(private(), 6));
    edge.step(pushed(shared_part(9, 0, false)));
    edge.step(pushed(assigning(7, None)));
    let dropped = [EdgeOutput::Unstage(StreamId::Cluster), EdgeOutput::Drop(StreamId::Cluster)];
    assert_eq!(edge.step(applied(private(), 7)), dropped);
    assert_eq!(edge.streams().count(), 1);
}

#[test]
fn an_edge_discards_what_a_hub_continues_of_a_dropped_stream() {
    let mut edge = assigned_edge(true);
    edge.step(pushed(assigning(6, None)));
    assert_eq!(edge.step(applied(private(), 6)), [EdgeOutput::Drop(StreamId::Cluster)]);
    let late = Push { stream: StreamId::Cluster, ..push(PushMode::Tail, 5, 6) };
    assert_eq!(edge.step(pushed(late.clone())), []);
    edge.step(pushed(assigning(7, Some(StreamId::Cluster))));
    let outputs = edge.step(applied(private(), 7));
    let [
        EdgeOutput::Send(EdgeMessage::Ack(ack)),
        EdgeOutput::Send(EdgeMessage::Divergence(divergence)),
    ] = &outputs[..]
    else {
        panic!("no request of a snapshot: {outputs:?}")
    };
    assert_eq!(divergence.stream, StreamId::Cluster);
    let all = [&assigning(6, None), &late, &assigning(7, Some(StreamId::Cluster))];
    assert_eq!(ack.received_bytes, all.iter().map(|push| push.bytes()).sum::<u64>());
    for mode in [PushMode::Tail, PushMode::Correction] {
        let from = if mode == PushMode::Tail { 6 } else { 0 };
        let later = Push { stream: StreamId::Cluster, ..push(mode, from, 7) };
        assert_eq!(edge.step(pushed(later)), [], "the divergence was under way");
    }
    edge.step(pushed(push(PushMode::Tail, 7, 8)));
    assert_eq!(edge.step(applied(private(), 8)), [], "one request is enough");
    // But for a hub that still waits for the stream at its next heartbeat.
    let tail = ReplicaPosition { stream: StreamId::Cluster, checkpoint: at(7), hash: hash(1) };
    let heartbeat = HubMessage::Heartbeat(HubHeartbeat { tails: vec![tail] });
    let outputs = edge.step(EdgeInput::Received(heartbeat));
    assert_eq!(
        outputs.last(),
        Some(&EdgeOutput::Send(EdgeMessage::Divergence(divergence.clone())))
    );
    let whole = shared_part(8, 0, true);
    assert_eq!(edge.step(pushed(whole.clone())), [EdgeOutput::Apply(whole)]);
}

#[test]
fn a_push_that_begins_anew_replaces_an_abandoned_one() {
    let mut edge = open_edge();
    edge.step(pushed(Push { last_part: false, ..push(PushMode::Snapshot, 0, 9) }));
    let whole = push(PushMode::Snapshot, 0, 8);
    assert_eq!(edge.step(pushed(whole.clone())), [EdgeOutput::Apply(whole)]);
    assert_eq!(edge.streams().next().expect("one stream").received, Seq(8));
    // Another push does not.
    edge.step(pushed(Push { last_part: false, ..push(PushMode::Delta, 8, 9) }));
    let outputs = edge.step(pushed(push(PushMode::Tail, 8, 9)));
    let fault = PushFault::Part { expected: 1, staged: Seq(9), part: 0, to: Seq(9) };
    let end = EdgeCloseReason::Push { stream: private(), fault };
    assert_eq!(outputs.last(), Some(&EdgeOutput::Close(end)));
}

#[test]
fn a_session_after_a_wrong_correction_reports_progress_again() {
    let mut edge = open_edge();
    let compare = Compare { stream: private(), nonce: 1 };
    edge.step(EdgeInput::Received(HubMessage::Compare(compare)));
    edge.step(EdgeInput::Summarized { stream: private(), nonce: 1, digests: Vec::new() });
    edge.step(pushed(push(PushMode::Correction, 0, 7)));
    let progress = |edge: &mut EdgeSession| {
        edge.step(pushed(push(PushMode::Tail, 5, 6)));
        let outputs = edge.step(EdgeInput::Tick(1));
        let [EdgeOutput::Send(EdgeMessage::Ack(ack))] = &outputs[..] else {
            panic!("no ack: {outputs:?}")
        };
        ack.progress.iter().map(|progress| progress.applied).collect::<Vec<_>>()
    };
    edge.step(EdgeInput::Applied { stream: private(), checkpoint: at(7), hash: hash(2) });
    assert_eq!(progress(&mut edge), [], "the hub is in the history of the correction");
    edge.step(EdgeInput::Disconnected);
    edge.step(EdgeInput::Connected);
    edge.step(welcome(None));
    assert_eq!(progress(&mut edge), [Seq(5)]);
}

#[test]
fn a_restored_disk_raises_its_boot_number_before_it_connects_again() {
    let (mut edge, _) = greeting_edge();
    let known = identity(7);
    let outputs = edge.step(welcome(Some(known.clone())));
    assert_eq!(
        outputs,
        [
            EdgeOutput::RaiseBoot { known: known.clone() },
            EdgeOutput::Close(EdgeCloseReason::RaisingBoot { known }),
        ]
    );
    assert_eq!(edge.step(EdgeInput::Connected), [], "not under the old number");
    let outputs = edge.step(EdgeInput::BootRaised(identity(8)));
    assert!(matches!(&outputs[..], [EdgeOutput::Send(EdgeMessage::Hello(hello))]
        if hello.identity == identity(8)));
}

#[test]
fn an_edge_whose_identity_was_issued_anew_is_fenced() {
    let (mut edge, _) = greeting_edge();
    let known = Identity { incarnation: Incarnation(2), ..identity(1) };
    let outputs = edge.step(welcome(Some(known.clone())));
    let end = EdgeCloseReason::Fenced { known };
    assert!(end.is_final());
    assert_eq!(outputs, [EdgeOutput::Close(end)]);
}

#[test]
fn another_log_of_the_same_number_is_refused() {
    let (mut edge, _) = greeting_edge();
    let offered = LogId { number: 1, uuid: Uuid::from_u128(2) };
    let welcome = Welcome {
        protocol: PROTOCOL,
        log_id: offered,
        streams: Vec::new(),
        known: None,
        verbs: Vec::new(),
        takes_events: true,
    };
    let outputs = edge.step(EdgeInput::Received(HubMessage::Welcome(welcome)));
    let end = EdgeCloseReason::ForeignLog { stream: private(), held: log_id(), offered };
    assert_eq!(outputs, [EdgeOutput::Close(end)]);
}

#[test]
fn a_request_without_a_response_times_out() {
    let mut edge = open_edge();
    let key = "ns/secret/s".parse().expect("well-formed");
    let request = Request::get(1, 50, key);
    let sent = edge.step(EdgeInput::Asked(request.clone()));
    assert_eq!(sent, [EdgeOutput::Send(EdgeMessage::Request(request))]);
    assert_eq!(edge.step(EdgeInput::Tick(49)), []);
    let outputs = edge.step(EdgeInput::Tick(50));
    let [EdgeOutput::Answered(response)] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(matches!(response.outcome, Err(RequestError::Unavailable(_))));
}
