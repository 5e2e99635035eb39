//! The hub's end of a session.

use bytes::Bytes;
use headwater_event::{
    Applied, Assignment, Envelope, Event, Incarnation, Report, ReportBody, ReportId, Seq, StreamId,
    WriterEpoch,
};
use headwater_session::message::{
    Ack, DialSupport, Divergence, EdgeMessage, Hello, HubMessage, PROTOCOL, Push, PushMode,
    Refusal, RefusalCode, RefusedReport, ReplicaPosition, Reports, ReportsAcked, Request,
    RequestError, RequestVerb,
};
use headwater_session::{
    HubCloseReason, HubInput, HubOutput, HubSession, HubSettings, MemorySource, Readiness,
    Violation, hub::COUNTER_MAX,
};

use crate::{at, hash, identity, log_id, pod, private};

/// A reconciled fold of `events` events in the node's private stream, of `names` different pods.
pub(crate) fn source(events: u64, names: u64) -> MemorySource {
    let mut source = MemorySource::new(100);
    source.begin(log_id());
    source.set_readiness(Readiness::Reconciled);
    extend(&mut source, 1..=events, names);
    source
}

fn extend(source: &mut MemorySource, seqs: std::ops::RangeInclusive<u64>, names: u64) {
    for seq in seqs {
        let object = vec![b' '; 100];
        let event = Event::Applied(pod(&format!("p{}", seq % names), object));
        let envelope = logged(private(), seq, event);
        source.fold(envelope).expect("in order");
    }
}

fn logged(stream: StreamId, seq: u64, event: Event) -> Envelope {
    Envelope {
        stream,
        seq: Seq(seq),
        epoch: WriterEpoch(1),
        epoch_first_seq: Seq(1),
        time_ms: 0,
        hash: hash(1),
        traceparent: None,
        shared: None,
        event,
    }
}

/// A hub session whose edge has everything up to `seq`, with the hub's first outputs.
pub(crate) fn open_hub(
    source: &MemorySource,
    seq: u64,
    window: u64,
) -> (HubSession, Vec<HubOutput>) {
    open_hub_with(source, vec![held_to(seq)], window)
}

/// The position of an edge that has the private stream up to `seq`.
fn held_to(seq: u64) -> ReplicaPosition {
    ReplicaPosition { stream: private(), checkpoint: at(seq), hash: hash(1) }
}

fn open_hub_with(
    source: &MemorySource,
    positions: Vec<ReplicaPosition>,
    window: u64,
) -> (HubSession, Vec<HubOutput>) {
    let mut hub = HubSession::new(HubSettings::default(), identity(1).node);
    let hello = Hello {
        protocol: PROTOCOL,
        identity: identity(3),
        positions,
        window_bytes: window,
        connection: 1,
        dials: DialSupport::None,
    };
    let outputs = hub.step(source, HubInput::Received(EdgeMessage::Hello(hello)));
    assert_eq!(outputs, [HubOutput::Identify(identity(3))]);
    let outputs = hub.step(source, HubInput::Admitted { known: None });
    (hub, outputs)
}

fn pushes(outputs: &[HubOutput]) -> Vec<&Push> {
    let of = |output| match output {
        &HubOutput::Send(HubMessage::Push(ref push)) => Some(push),
        _ => None,
    };
    outputs.iter().filter_map(of).collect()
}

#[test]
fn a_resume_takes_one_round_trip_and_carries_the_events_missed() {
    let source = source(10, 10);
    let (_, outputs) = open_hub(&source, 7, 1 << 20);
    let sent = pushes(&outputs);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].mode, sent[0].from, sent[0].to), (PushMode::Tail, Seq(7), at(10)));
    assert_eq!(sent[0].changes.len(), 3);
}

#[test]
fn changes_beyond_the_window_travel_as_one_delta() {
    let mut source = source(1, 2);
    let (mut hub, _) = open_hub(&source, 1, 300);
    let mut sent_bytes = 0;
    let mut sent = Seq(1);
    for seq in 2..=20 {
        extend(&mut source, seq..=seq, 2);
        for push in pushes(&hub.step(&source, HubInput::Advanced)) {
            assert_eq!(push.mode, PushMode::Tail);
            sent_bytes += push.bytes();
            sent = push.to.seq;
        }
    }
    assert!(sent < Seq(20), "the window closed");
    let ack = Ack { received_bytes: sent_bytes, progress: Vec::new() };
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Ack(ack)));
    let sent = pushes(&outputs);
    assert!(sent.iter().all(|push| push.mode == PushMode::Delta && push.to == at(20)));
    let changes: usize = sent.iter().map(|push| push.changes.len()).sum();
    assert!(changes <= 2, "18 events touched two keys, {changes} changes were sent");
}

#[test]
fn an_ack_of_what_was_not_sent_is_refused_with_both_numbers() {
    let source = source(10, 10);
    let (mut hub, _) = open_hub(&source, 10, 1 << 20);
    let progress = headwater_session::message::StreamProgress {
        stream: private(),
        applied: Seq(11),
        durable: Seq(10),
    };
    let ack = Ack { received_bytes: 0, progress: vec![progress] };
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Ack(ack)));
    let Some(HubOutput::Close(HubCloseReason::Violation(Violation::Position {
        lower, upper, ..
    }))) = outputs.last()
    else {
        panic!("{outputs:?}")
    };
    assert_eq!((*lower, *upper), (Seq(11), Seq(10)));
}

#[test]
fn a_node_may_request_only_objects_of_its_interest() {
    let source = source(3, 3);
    let (mut hub, _) = open_hub(&source, 3, 1 << 20);
    let request = |id, key: &str| {
        let key = key.parse().expect("well-formed");
        Request::get(id, 1000, key)
    };
    let own = request(1, "ns/pod/p1");
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Request(own.clone())));
    assert_eq!(outputs, [HubOutput::Ask(own)]);
    let foreign = request(2, "ns/secret/other");
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Request(foreign)));
    let [HubOutput::Send(HubMessage::Response(response))] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    let not_named = RequestError::Forbidden(RequestError::NOT_NAMED.to_owned());
    assert_eq!(response.outcome, Err(not_named));
    // What decides by its spec is not decided here; what the key alone forbids is.
    let attachment = request(3, "null/volumeattachment/csi-1");
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Request(attachment.clone())));
    assert_eq!(outputs, [HubOutput::Ask(attachment)]);
    let verb = |id, verb, key: &str| Request { verb: Some(verb), ..request(id, key) };
    for (asked, refusal) in [
        (request(4, "null/node/another"), "a node may get its own Node only"),
        (request(5, "ns/endpoints/e"), RequestError::NOT_NAMED),
        (verb(6, RequestVerb::Token, "ns/serviceaccount/other"), RequestError::NOT_NAMED),
    ] {
        let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Request(asked)));
        let [HubOutput::Send(HubMessage::Response(response))] = &outputs[..] else {
            panic!("{outputs:?}")
        };
        assert_eq!(response.outcome, Err(RequestError::Forbidden(refusal.to_owned())));
    }
    for asked in
        [verb(7, RequestVerb::Token, "ns/pod/p1"), verb(8, RequestVerb::Csr, "ns/secret/s")]
    {
        let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Request(asked)));
        let [HubOutput::Send(HubMessage::Response(response))] = &outputs[..] else {
            panic!("{outputs:?}")
        };
        assert!(matches!(response.outcome, Err(RequestError::Invalid(_))), "{response:?}");
    }
}

#[test]
fn a_hub_that_still_reads_the_log_forbids_nothing_that_the_log_decides() {
    let mut source = source(3, 3);
    source.set_readiness(Readiness::Folding);
    let (mut hub, _) = open_hub(&source, 0, 1 << 20);
    let mut ask = |source: &MemorySource, id, verb, key: &str| {
        let request = Request::get(id, 1000, key.parse().expect("well-formed"));
        let request = Request { verb: Some(verb), ..request };
        match &hub.step(source, HubInput::Received(EdgeMessage::Request(request)))[..] {
            [HubOutput::Send(HubMessage::Response(response))] => {
                Some(response.outcome.clone().expect_err("no answer"))
            }
            [HubOutput::Ask(_)] => None,
            outputs => panic!("{outputs:?}"),
        }
    };
    let of_the_log = [
        (RequestVerb::Get, "ns/secret/other"),
        (RequestVerb::Get, "ns/endpoints/e"),
        (RequestVerb::Token, "ns/serviceaccount/other"),
    ];
    for (id, (verb, key)) in (1..).zip(of_the_log) {
        let not_read = RequestError::Unavailable(RequestError::LOG_NOT_READ.to_owned());
        assert_eq!(ask(&source, id, verb, key), Some(not_read), "{key}");
    }
    // What the key alone decides, and what is there already.
    let foreign = ask(&source, 4, RequestVerb::Get, "null/node/another");
    assert!(matches!(foreign, Some(RequestError::Forbidden(_))), "{foreign:?}");
    assert_eq!(ask(&source, 5, RequestVerb::Csr, "null/certificatesigningrequest/c"), None);
    assert_eq!(ask(&source, 6, RequestVerb::Get, "ns/pod/p1"), None);

    source.set_readiness(Readiness::Reconciled);
    for (id, (verb, key)) in (7..).zip(of_the_log) {
        let not_named = RequestError::Forbidden(RequestError::NOT_NAMED.to_owned());
        assert_eq!(ask(&source, id, verb, key), Some(not_named), "{key}");
    }
}

#[test]
fn reports_are_acknowledged_after_their_append() {
    let source = source(1, 1);
    let (mut hub, _) = open_hub(&source, 1, 1 << 20);
    let id = |seq| ReportId { incarnation: Incarnation(1), boot: 3, seq };
    let report = |seq| {
        let body = ReportBody::Node { object: Bytes::from_static(b"{}") };
        Report { id: id(seq), body, traceparent: None }
    };
    let reports = vec![report(1), report(4)];
    let sent = Reports { after: None, reports: reports.clone() };
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Reports(sent)));
    assert_eq!(outputs, [HubOutput::AppendReports(reports)]);
    let outputs = hub.step(&source, HubInput::Appended(id(4).into()));
    assert_eq!(outputs, [HubOutput::Send(HubMessage::ReportsAcked(id(4).into()))]);
    // A report that the log never takes is named, and forgotten with the others.
    let (sent, refused) = (report(5), RefusedReport { id: id(5), reason: "too large".to_owned() });
    let sent = Reports { after: Some(id(4)), reports: vec![sent] };
    hub.step(&source, HubInput::Received(EdgeMessage::Reports(sent)));
    let acked = ReportsAcked { through: id(5), refused: vec![refused] };
    let outputs = hub.step(&source, HubInput::Appended(acked.clone()));
    assert_eq!(outputs, [HubOutput::Send(HubMessage::ReportsAcked(acked))]);
    // Reports 6 and 7 are lost.
    let later = Reports { after: Some(id(7)), reports: vec![report(8)] };
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Reports(later)));
    assert!(matches!(
        outputs.last(),
        Some(HubOutput::Close(HubCloseReason::Violation(Violation::ReportsMissing { .. })))
    ));
}

#[test]
fn a_stale_identity_receives_the_highest_one_and_is_refused() {
    let mut source = source(1, 1);
    source.set_known_identity(identity(9));
    let (_, outputs) = open_hub(&source, 1, 1 << 20);
    assert!(matches!(&outputs[0], HubOutput::Send(HubMessage::Welcome(welcome))
        if welcome.known == Some(identity(9))));
    assert!(matches!(&outputs[1], HubOutput::Send(HubMessage::Refusal(refusal))
        if refusal.code == RefusalCode::StaleIdentity));
}

#[test]
fn a_session_that_only_listens_ends_once_another_hub_has_appended_a_later_start() {
    let mut source = source(1, 1);
    let (mut hub, _) = open_hub(&source, 1, 1 << 20);
    let HubSettings { heartbeat_ms, outranked_ms_min: bound, .. } = HubSettings::default();
    let tick = |hub: &mut HubSession, source: &MemorySource, now_ms| {
        assert_eq!(hub.step(source, HubInput::Unread), []);
        hub.step(source, HubInput::Tick(now_ms))
    };
    let mut now_ms = 0;
    while now_ms + heartbeat_ms < bound {
        tick(&mut hub, &source, now_ms);
        now_ms += heartbeat_ms;
    }
    source.set_known_identity(identity(9));
    tick(&mut hub, &source, now_ms);
    assert!(hub.is_open(), "two clones must not end each other's sessions all the time");
    let outputs = tick(&mut hub, &source, bound + heartbeat_ms);
    assert!(matches!(outputs.last(), Some(HubOutput::Close(HubCloseReason::Refused(refusal)))
        if refusal.code == RefusalCode::StaleIdentity));
}

#[test]
fn a_session_of_the_highest_start_stays() {
    let mut source = source(1, 1);
    let (mut hub, _) = open_hub(&source, 1, 1 << 20);
    let HubSettings { heartbeat_ms, outranked_ms_min, .. } = HubSettings::default();
    let mut now_ms = 0;
    for known in [identity(2), identity(3)] {
        source.set_known_identity(known);
        let until_ms = now_ms + 2 * outranked_ms_min;
        while now_ms < until_ms {
            now_ms += heartbeat_ms;
            hub.step(&source, HubInput::Unread);
            hub.step(&source, HubInput::Tick(now_ms));
        }
        assert!(hub.is_open());
    }
}

#[test]
fn a_welcome_waits_until_the_hub_knows_its_log_but_not_for_ever() {
    let mut unread = MemorySource::new(100);
    let (mut hub, outputs) = open_hub(&unread, 0, 1 << 20);
    assert_eq!(outputs, []);
    assert_eq!(hub.step(&unread, HubInput::Advanced), []);
    assert!(!hub.is_open() && hub.identity() == Some(&identity(3)));
    unread.begin(log_id());
    let outputs = hub.step(&unread, HubInput::Advanced);
    assert!(matches!(&outputs[0], HubOutput::Send(HubMessage::Welcome(_))), "{outputs:?}");
    assert!(hub.is_open());

    let unread = MemorySource::new(100);
    let (mut hub, _) = open_hub(&unread, 0, 1 << 20);
    let bound = HubSettings::default().welcome_ms_max;
    assert_eq!(hub.step(&unread, HubInput::Tick(bound)), []);
    let outputs = hub.step(&unread, HubInput::Tick(bound + 1));
    assert!(matches!(outputs.last(), Some(HubOutput::Close(HubCloseReason::Refused(refusal)))
        if refusal.code == RefusalCode::Unavailable));
}

#[test]
fn the_edge_position_is_readable_after_the_end() {
    let source = source(10, 10);
    let (mut hub, _) = open_hub(&source, 7, 1 << 20);
    let refusal = Refusal { code: RefusalCode::Unavailable, message: String::new() };
    hub.step(&source, HubInput::Dismissed(refusal));
    let status = hub.streams().next().expect("one stream");
    assert_eq!(
        (status.acked, status.applied, status.sent, status.tail),
        (Seq(7), Seq(7), Seq(10), Seq(10))
    );
}

#[test]
fn a_hello_names_no_other_node() {
    let source = source(1, 1);
    let mut hub = HubSession::new(HubSettings::default(), "b".parse().expect("well-formed"));
    let hello = Hello {
        protocol: PROTOCOL,
        identity: identity(1),
        positions: Vec::new(),
        window_bytes: 1,
        connection: 1,
        dials: DialSupport::None,
    };
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Hello(hello)));
    let Some(HubOutput::Close(HubCloseReason::Refused(refusal))) = outputs.last() else {
        panic!("{outputs:?}")
    };
    assert_eq!(refusal.code, RefusalCode::Forbidden);
}

#[test]
fn a_boot_number_above_the_bound_is_refused_before_it_is_stored() {
    let source = source(1, 1);
    for number in [u64::MAX, COUNTER_MAX + 1] {
        let mut hub = HubSession::new(HubSettings::default(), identity(1).node);
        let identity = identity(number);
        let hello = Hello {
            protocol: PROTOCOL,
            identity,
            positions: Vec::new(),
            window_bytes: 1,
            connection: 1,
            dials: DialSupport::None,
        };
        let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Hello(hello)));
        let Some(HubOutput::Close(HubCloseReason::Violation(violation))) = outputs.last() else {
            panic!("{outputs:?}")
        };
        assert_eq!(*violation, Violation::Counter { what: "boot", found: number });
        assert!(hub.identity().is_none());
    }
}

/// The event that assigns shared streams to the node.
fn assigned(seq: u64, shared: Vec<StreamId>) -> Envelope {
    let object = Assignment::new(&identity(1).node, shared).encode();
    let key = "!streams".parse().expect("well-formed");
    let (uid, resource_version) = (String::new(), String::new());
    logged(private(), seq, Event::Applied(Applied { key, uid, resource_version, object }))
}

#[test]
fn a_stream_given_to_a_node_is_served_at_once_and_one_taken_away_no_more() {
    let mut source = source(1, 1);
    let (mut hub, _) = open_hub(&source, 1, 1 << 20);
    let mut assign = |seq, shared: Vec<StreamId>| {
        source.fold(assigned(seq, shared)).expect("in order");
        let outputs = hub.step(&source, HubInput::Advanced);
        pushes(&outputs).iter().map(|push| push.stream.clone()).collect::<Vec<_>>()
    };
    assert_eq!(assign(2, vec![StreamId::Cluster]), [private(), StreamId::Cluster]);
    assert_eq!(assign(3, vec![]), [private()]);
    assert_eq!(hub.streams().count(), 1);
}

/// The event of one object in the shared stream.
fn shared(seq: u64) -> Envelope {
    logged(StreamId::Cluster, seq, Event::Applied(pod("shared", vec![b' '; 100])))
}

/// The position of an edge that has the shared stream up to `seq`.
fn held_of_shared(seq: u64) -> ReplicaPosition {
    ReplicaPosition { stream: StreamId::Cluster, ..held_to(seq) }
}

/// The pushes of the shared stream.
fn of_shared(outputs: &[HubOutput]) -> Vec<PushMode> {
    let pushes = pushes(outputs).into_iter();
    pushes.filter(|push| push.stream == StreamId::Cluster).map(|push| push.mode).collect()
}

#[test]
fn a_divergence_is_remembered_until_the_fold_has_the_assignment_of_its_stream() {
    let mut source = source(1, 1);
    (1..=4).for_each(|seq| source.fold(shared(seq)).expect("in order"));
    let (mut hub, _) = open_hub_with(&source, vec![held_of_shared(5), held_to(1)], 1 << 20);
    let divergence = Divergence { stream: StreamId::Cluster, seq: Seq(5) };
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Divergence(divergence)));
    assert_eq!(outputs, []);
    source.fold(assigned(2, vec![StreamId::Cluster])).expect("in order");
    let outputs = hub.step(&source, HubInput::Advanced);
    assert_eq!(of_shared(&outputs), [], "the fold is behind the edge");
    (5..=6).for_each(|seq| source.fold(shared(seq)).expect("in order"));
    let outputs = hub.step(&source, HubInput::Advanced);
    assert_eq!(of_shared(&outputs), [PushMode::Snapshot]);
}

#[test]
fn a_stream_that_is_taken_and_given_again_begins_with_a_snapshot_and_does_not_go_back() {
    let mut source = source(1, 1);
    (1..=4).for_each(|seq| source.fold(shared(seq)).expect("in order"));
    source.fold(assigned(2, vec![StreamId::Cluster])).expect("in order");
    let (mut hub, outputs) = open_hub_with(&source, vec![held_of_shared(5), held_to(2)], 1 << 20);
    assert_eq!(of_shared(&outputs), [], "the fold is behind the edge");
    for (seq, streams) in [(3, vec![]), (4, vec![StreamId::Cluster])] {
        source.fold(assigned(seq, streams)).expect("in order");
        let outputs = hub.step(&source, HubInput::Advanced);
        assert_eq!(of_shared(&outputs), []);
    }
    (5..=6).for_each(|seq| source.fold(shared(seq)).expect("in order"));
    let outputs = hub.step(&source, HubInput::Advanced);
    assert_eq!(of_shared(&outputs), [PushMode::Snapshot], "the edge may have dropped it");
}

#[test]
fn a_divergence_after_the_first_part_of_a_snapshot_begins_another_one() {
    let source = source(10, 10);
    let (mut hub, outputs) = open_hub_with(&source, Vec::new(), 600);
    let mut received_bytes = 0;
    let mut receive = |outputs: &[HubOutput]| {
        let pushes = pushes(outputs);
        received_bytes += pushes.iter().map(|push| push.bytes()).sum::<u64>();
        let ack = Ack { received_bytes, progress: Vec::new() };
        let parts: Vec<_> = pushes.iter().map(|push| (push.part, push.last_part)).collect();
        (parts, HubInput::Received(EdgeMessage::Ack(ack)))
    };
    let (parts, ack) = receive(&outputs);
    assert_eq!(parts, [(0, false)]);
    let outputs = hub.step(&source, ack);
    let divergence = Divergence { stream: private(), seq: Seq::ZERO };
    hub.step(&source, HubInput::Received(EdgeMessage::Divergence(divergence)));
    let (parts, ack) = receive(&outputs);
    assert_eq!(parts, [(1, false)]);
    let outputs = hub.step(&source, ack);
    assert_eq!(receive(&outputs).0, [(0, false)]);
}
