//! Single behaviours of a session, one end at a time.

use bytes::Bytes;
use headwater_event::{
    Applied, Assignment, Boot, Change, Checkpoint, Envelope, Event, Identity, Incarnation, LogId,
    RemovalRuns, Report, ReportBody, ReportId, ResourceKey, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_session::message::{
    Ack, DialSupport, EdgeMessage, Hello, HubMessage, PROTOCOL, Push, PushMode, Refusal,
    RefusalCode, RefusedReport, ReplicaPosition, Reports, ReportsAcked, Request, RequestError,
    RequestVerb, Response, Welcome,
};
use headwater_session::{
    EdgeCloseReason, EdgeInput, EdgeOutput, EdgeSession, EdgeSettings, EdgeState, HubCloseReason,
    HubInput, HubOutput, HubSession, HubSettings, MemorySource, PushFault, Readiness, Violation,
    hub::COUNTER_MAX,
};
use uuid::Uuid;

fn log_id() -> LogId {
    LogId { number: 1, uuid: Uuid::from_u128(1) }
}

fn at(seq: u64) -> Checkpoint {
    Checkpoint { log_id: log_id(), epoch: WriterEpoch(1), seq: Seq(seq) }
}

fn identity(number: u64) -> Identity {
    let node = "a".parse().expect("well-formed");
    Identity { node, incarnation: Incarnation(1), boot: Boot { number, nonce: number } }
}

fn private() -> StreamId {
    StreamId::node(&identity(1).node)
}

fn hash(of: u8) -> StateHash {
    StateHash::from_bytes(&[of; 32])
}

fn pod(name: &str, object: impl Into<Bytes>) -> Applied {
    Applied {
        key: format!("ns/pod/{name}").parse().expect("well-formed"),
        uid: format!("uid-{name}"),
        resource_version: String::new(),
        object: object.into(),
    }
}

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
fn open_edge() -> EdgeSession {
    let (mut edge, _) = greeting_edge();
    let outputs = edge.step(welcome(None));
    assert!(outputs.contains(&EdgeOutput::Welcomed { log_id: log_id() }));
    edge
}

fn greeting_edge() -> (EdgeSession, Vec<EdgeOutput>) {
    let position = ReplicaPosition { stream: private(), checkpoint: at(5), hash: hash(9) };
    let state = EdgeState { identity: identity(3), positions: vec![position], assignment: None };
    let mut edge = EdgeSession::new(EdgeSettings::default(), state);
    let outputs = edge.step(EdgeInput::Connected);
    (edge, outputs)
}

fn welcome(known: Option<Identity>) -> EdgeInput {
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

/// A reconciled fold of `events` events in the node's private stream, of `names` different pods.
fn source(events: u64, names: u64) -> MemorySource {
    let mut source = MemorySource::new(100);
    source.begin(log_id());
    source.set_readiness(Readiness::Reconciled);
    extend(&mut source, 1..=events, names);
    source
}

fn extend(source: &mut MemorySource, seqs: std::ops::RangeInclusive<u64>, names: u64) {
    for seq in seqs {
        let object = vec![b' '; 100];
        let envelope = Envelope {
            stream: private(),
            seq: Seq(seq),
            epoch: WriterEpoch(1),
            epoch_first_seq: Seq(1),
            time_ms: 0,
            hash: hash(1),
            traceparent: None,
            shared: None,
            event: Event::Applied(pod(&format!("p{}", seq % names), object)),
        };
        source.fold(envelope).expect("in order");
    }
}

/// A hub session whose edge has everything up to `seq`, with the hub's first outputs.
fn open_hub(source: &MemorySource, seq: u64, window: u64) -> (HubSession, Vec<HubOutput>) {
    let mut hub = HubSession::new(HubSettings::default(), identity(1).node);
    let position = ReplicaPosition { stream: private(), checkpoint: at(seq), hash: hash(1) };
    let hello = Hello {
        protocol: PROTOCOL,
        identity: identity(3),
        positions: vec![position],
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
fn an_edge_of_an_earlier_version_gets_errors_that_it_knows() {
    let source = source(3, 3);
    let (mut hub, _) = open_hub(&source, 3, 1 << 20);
    for (id, verb) in [(1, None), (2, Some(RequestVerb::Get))] {
        let key = "ns/pod/p1".parse().expect("well-formed");
        let request = Request { verb, ..Request::get(id, 1000, key) };
        hub.step(&source, HubInput::Received(EdgeMessage::Request(request)));
        let conflict = || RequestError::Conflict("why".to_owned());
        let answer = Response { id, outcome: Err(conflict()) };
        let outputs = hub.step(&source, HubInput::Answered(answer));
        let expected = match verb {
            None => RequestError::Unavailable("conflict: why".to_owned()),
            Some(_) => conflict(),
        };
        let response = Response { id, outcome: Err(expected) };
        assert_eq!(outputs, [HubOutput::Send(HubMessage::Response(response))]);
    }
}

#[test]
fn an_edge_sends_a_hub_only_what_its_welcome_announces() {
    let (mut edge, _) = greeting_edge();
    let streams = vec![private()];
    let earlier = Welcome {
        protocol: PROTOCOL,
        log_id: log_id(),
        streams,
        known: None,
        verbs: Vec::new(),
        takes_events: false,
    };
    edge.step(EdgeInput::Received(HubMessage::Welcome(earlier)));
    assert!(edge.is_open());
    let key = "ns/secret/s".parse().expect("well-formed");
    let outputs = edge.step(EdgeInput::Asked(Request::get(1, 50, key)));
    let [EdgeOutput::Answered(response)] = &outputs[..] else { panic!("{outputs:?}") };
    let Err(RequestError::Unavailable(reason)) = &response.outcome else { panic!("{response:?}") };
    assert!(reason.contains("the hub is of an earlier version"), "{reason}");
}

#[test]
fn a_message_that_is_not_known_has_no_effect() {
    let source = source(3, 3);
    let (mut hub, _) = open_hub(&source, 3, 1 << 20);
    assert_eq!(hub.step(&source, HubInput::Received(EdgeMessage::Unknown)), []);
    assert!(hub.is_open());
    let mut edge = open_edge();
    assert_eq!(edge.step(EdgeInput::Received(HubMessage::Unknown)), []);
    assert!(edge.is_open());
    // Before the hello it is none.
    let node = "gw-1".parse().expect("a name");
    let mut hub = HubSession::new(HubSettings::default(), node);
    let outputs = hub.step(&source, HubInput::Received(EdgeMessage::Unknown));
    assert!(matches!(outputs.last(), Some(HubOutput::Close(_))), "{outputs:?}");
}

#[test]
fn a_hub_of_an_earlier_version_receives_events_as_messages() {
    let key: ResourceKey = "d/event/p.1".parse().expect("a key");
    let object = Bytes::from_static(br#"{"reason":"BackOff"}"#);
    let id = ReportId { incarnation: Incarnation(1), boot: 3, seq: 1 };
    let event = ReportBody::Event { key: key.clone(), object: object.clone() };
    let message = ReportBody::Message { key, content: object };
    for (takes_events, sent) in [(true, event.clone()), (false, message)] {
        let (mut edge, _) = greeting_edge();
        let EdgeInput::Received(HubMessage::Welcome(welcome)) = welcome(None) else {
            panic!("a welcome")
        };
        let welcome = Welcome { takes_events, ..welcome };
        edge.step(EdgeInput::Received(HubMessage::Welcome(welcome)));
        let report = Report { id, body: event.clone(), traceparent: None };
        let outputs = edge.step(EdgeInput::Outbox(vec![report]));
        let reports = outputs.iter().find_map(|output| match output {
            EdgeOutput::Send(EdgeMessage::Reports(reports)) => Some(&reports.reports),
            _ => None,
        });
        let expected = vec![Report { id, body: sent, traceparent: None }];
        assert_eq!(reports, Some(&expected), "takes events: {takes_events}");
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

#[test]
fn a_stream_given_to_a_node_is_served_at_once_and_one_taken_away_no_more() {
    let mut source = source(1, 1);
    let (mut hub, _) = open_hub(&source, 1, 1 << 20);
    let node = identity(1).node;
    let mut assign = |seq, shared: Vec<StreamId>| {
        let object = Assignment::new(&node, shared).encode();
        let key = "!streams".parse().expect("well-formed");
        let (uid, resource_version) = (String::new(), String::new());
        let envelope = Envelope {
            stream: private(),
            seq: Seq(seq),
            epoch: WriterEpoch(1),
            epoch_first_seq: Seq(1),
            time_ms: 0,
            hash: hash(1),
            traceparent: None,
            shared: None,
            event: Event::Applied(Applied { key, uid, resource_version, object }),
        };
        source.fold(envelope).expect("in order");
        let outputs = hub.step(&source, HubInput::Advanced);
        pushes(&outputs).iter().map(|push| push.stream.clone()).collect::<Vec<_>>()
    };
    assert_eq!(assign(2, vec![StreamId::Cluster]), [private(), StreamId::Cluster]);
    assert_eq!(assign(3, vec![]), [private()]);
    assert_eq!(hub.streams().count(), 1);
}
