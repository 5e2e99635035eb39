//! Neither end panics or sends without bound, whatever inputs a peer or a shell gives it, in any
//! order.

use bytes::Bytes;
use headwater_event::{
    Applied, Assignment, Boot, Change, Checkpoint, DigestKey, EntryDigest, EntryKey, Envelope,
    Event, Identity, Incarnation, LogId, NodeName, ObjectHash, RemovalRuns, Removed, Report,
    ReportBody, ReportId, Seq, StateHash, StreamId, WriterEpoch,
};
use headwater_session::message::{
    Ack, Compare, DialSupport, Divergence, EdgeHeartbeat, EdgeMessage, Goodbye, Hello,
    HubHeartbeat, HubMessage, ParkNotice, Push, PushMode, PushedChange, Refusal, RefusalCode,
    RefusedReport, ReplicaPosition, Reports, ReportsAcked, Request, RequestError, RequestVerb,
    Response, StreamProgress, Summary, Welcome,
};
use headwater_session::{
    EdgeInput, EdgeSession, EdgeSettings, EdgeState, HubInput, HubOutput, HubSession, HubSettings,
    MemorySource, Readiness,
};
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

/// The bound on the outputs of one input: a window of small frames.
const OUTPUTS_MAX: usize = 10_000;

fn node() -> NodeName {
    "a".parse().expect("well-formed")
}

/// Small numbers, which often fit, and the largest.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..6u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 1)]
}

fn seq() -> impl Strategy<Value = Seq> {
    number().prop_map(Seq)
}

fn stream() -> impl Strategy<Value = StreamId> {
    prop::sample::select(vec![
        StreamId::node(&node()),
        StreamId::Cluster,
        StreamId::Node("b".parse().expect("well-formed")),
    ])
}

fn log_id() -> impl Strategy<Value = LogId> {
    (prop_oneof![4 => Just(1u64), 1 => number()], prop_oneof![4 => Just(1u128), 1 => Just(2)])
        .prop_map(|(number, uuid)| LogId { number, uuid: Uuid::from_u128(uuid) })
}

fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    (log_id(), number(), seq()).prop_map(|(log_id, epoch, seq)| Checkpoint {
        log_id,
        epoch: WriterEpoch(epoch),
        seq,
    })
}

fn hash() -> impl Strategy<Value = StateHash> {
    prop_oneof![Just(StateHash::EMPTY), Just(StateHash::from_bytes(&[7; 32]))]
}

fn position() -> impl Strategy<Value = ReplicaPosition> {
    (stream(), checkpoint(), hash()).prop_map(|(stream, checkpoint, hash)| ReplicaPosition {
        stream,
        checkpoint,
        hash,
    })
}

fn progress() -> impl Strategy<Value = Vec<StreamProgress>> {
    vec((stream(), seq(), seq()), 0..3).prop_map(|all| {
        let of = |(stream, applied, durable)| StreamProgress { stream, applied, durable };
        all.into_iter().map(of).collect()
    })
}

fn identity() -> impl Strategy<Value = Identity> {
    (prop_oneof![5 => Just("a"), 1 => Just("b")], number(), number(), number()).prop_map(
        |(name, incarnation, number, nonce)| Identity {
            node: name.parse().expect("well-formed"),
            incarnation: Incarnation(incarnation),
            boot: Boot { number, nonce },
        },
    )
}

fn report_id() -> impl Strategy<Value = ReportId> {
    (number(), number(), number()).prop_map(|(incarnation, boot, seq)| ReportId {
        incarnation: Incarnation(incarnation),
        boot,
        seq,
    })
}

fn reports() -> impl Strategy<Value = Vec<Report>> {
    let body = || ReportBody::Node { object: Bytes::from_static(b"{}") };
    vec(report_id().prop_map(move |id| Report { id, body: body(), traceparent: None }), 0..4)
}

fn change() -> impl Strategy<Value = PushedChange> {
    let key = prop::sample::select(vec!["ns/pod/a", "ns/pod/b", "!streams", "!snapshot-request"]);
    let object = prop::sample::select(vec![r#"["cluster"]"#, "[]", "not JSON"]);
    (key, prop::option::of(object)).prop_map(|(key, object)| {
        let key: EntryKey = key.parse().expect("well-formed");
        let (uid, resource_version) = (String::new(), String::new());
        let change = match object {
            None => Change::Removed(Removed { key, uid }),
            Some(object) => {
                let object = Bytes::from_static(object.as_bytes());
                Change::Applied(Applied { key, uid, resource_version, object })
            }
        };
        change.into()
    })
}

fn push() -> impl Strategy<Value = Push> {
    let mode = prop::sample::select(vec![
        PushMode::Tail,
        PushMode::Delta,
        PushMode::Snapshot,
        PushMode::Correction,
    ]);
    let part = prop_oneof![3 => Just(0), 1 => 1..3u32, 1 => Just(u32::MAX)];
    let place = (stream(), mode, seq(), checkpoint());
    (place, gone(), vec(change(), 0..3), hash(), part, any::<bool>()).prop_map(
        |((stream, mode, from, to), gone, changes, hash, part, last_part)| Push {
            stream,
            mode,
            from: if mode.begins_anew() && part != 1 { Seq::ZERO } else { from },
            to,
            gone,
            changes,
            hash,
            part,
            last_part,
        },
    )
}

fn gone() -> impl Strategy<Value = RemovalRuns> {
    prop_oneof![
        4 => Just(RemovalRuns::default()),
        2 => any::<[bool; 2]>().prop_map(RemovalRuns::of),
        1 => vec(any::<u32>(), 0..4).prop_map(RemovalRuns::from_runs),
    ]
}

/// The nonce of a state with the empty hash, as the source's has, or another one.
fn nonce() -> impl Strategy<Value = u64> {
    prop_oneof![5 => Just(0), 1 => any::<u64>()]
}

/// Digests of an entry that the source has, and of others.
fn digests() -> impl Strategy<Value = Vec<EntryDigest>> {
    let key: EntryKey = "ns/pod/a".parse().expect("well-formed");
    let held = DigestKey::new(0).digest(&key, "", "", &ObjectHash::of(&[b'x'; 200]));
    let other = any::<[u8; 6]>().prop_map(EntryDigest::from_bytes);
    vec(prop_oneof![Just(held), other], 0..4)
}

fn request() -> impl Strategy<Value = Request> {
    (number(), number()).prop_map(|(id, timeout_ms)| Request {
        id,
        timeout_ms,
        verb: Some(RequestVerb::Get),
        body: Bytes::new(),
        key: "ns/pod/a".parse().expect("well-formed"),
    })
}

fn response() -> impl Strategy<Value = Response> {
    number().prop_map(|id| Response { id, outcome: Err(RequestError::NotFound) })
}

fn refusal() -> Refusal {
    Refusal { code: RefusalCode::Unavailable, message: String::new() }
}

fn edge_message() -> impl Strategy<Value = EdgeMessage> {
    prop_oneof![
        (
            prop_oneof![5 => Just(1), 1 => any::<u32>()],
            identity(),
            vec(position(), 0..3),
            number(),
            number(),
        )
            .prop_map(|(protocol, identity, positions, window_bytes, connection)| {
                EdgeMessage::Hello(Hello {
                    protocol,
                    identity,
                    positions,
                    window_bytes,
                    connection,
                    dials: DialSupport::None,
                })
            }),
        (prop_oneof![number(), 100..2_000u64], progress()).prop_map(
            |(received_bytes, progress)| { EdgeMessage::Ack(Ack { received_bytes, progress }) }
        ),
        (stream(), seq())
            .prop_map(|(stream, seq)| EdgeMessage::Divergence(Divergence { stream, seq })),
        (prop::option::of(report_id()), reports())
            .prop_map(|(after, reports)| EdgeMessage::Reports(Reports { after, reports })),
        Just(EdgeMessage::Heartbeat(EdgeHeartbeat::default())),
        Just(EdgeMessage::DialReceipt),
        request().prop_map(EdgeMessage::Request),
        (stream(), nonce(), digests()).prop_map(|(stream, nonce, digests)| {
            EdgeMessage::Summary(Summary { stream, nonce, digests })
        }),
    ]
}

fn hub_message() -> impl Strategy<Value = HubMessage> {
    prop_oneof![
        1 => (log_id(), vec(stream(), 0..3), prop::option::weighted(0.2, identity())).prop_map(
            |(log_id, streams, known)| {
                HubMessage::Welcome(Welcome {
                protocol: 1, log_id, streams, known, verbs: Vec::new(), takes_events: true,
            })
            }
        ),
        8 => push().prop_map(HubMessage::Push),
        2 => (stream(), nonce())
            .prop_map(|(stream, nonce)| HubMessage::Compare(Compare { stream, nonce })),
        1 => reports_acked().prop_map(HubMessage::ReportsAcked),
        1 => vec(position(), 0..3)
            .prop_map(|tails| HubMessage::Heartbeat(HubHeartbeat { tails })),
        1 => response().prop_map(HubMessage::Response),
        1 => stream()
            .prop_map(|stream| HubMessage::ParkNotice(ParkNotice { stream, reason: String::new() })),
        1 => Just(HubMessage::Goodbye(Goodbye { reason: String::new() })),
    ]
}

fn reports_acked() -> impl Strategy<Value = ReportsAcked> {
    (report_id(), vec(report_id(), 0..3)).prop_map(|(through, refused)| {
        let refused = refused.into_iter().map(|id| RefusedReport { id, reason: String::new() });
        ReportsAcked { through, refused: refused.collect() }
    })
}

fn edge_input() -> impl Strategy<Value = EdgeInput> {
    prop_oneof![
        2 => Just(EdgeInput::Connected),
        1 => Just(EdgeInput::Disconnected),
        20 => hub_message().prop_map(EdgeInput::Received),
        5 => (stream(), checkpoint(), hash()).prop_map(|(stream, checkpoint, hash)| {
            EdgeInput::Applied { stream, checkpoint, hash }
        }),
        3 => (stream(), checkpoint())
            .prop_map(|(stream, checkpoint)| EdgeInput::Durable { stream, checkpoint }),
        3 => (stream(), nonce(), digests()).prop_map(|(stream, nonce, digests)| {
            EdgeInput::Summarized { stream, nonce, digests }
        }),
        1 => Just(EdgeInput::Reported),
        2 => (reports(), any::<bool>())
            .prop_map(|(reports, is_end)| EdgeInput::Outbox { reports, is_end }),
        1 => identity().prop_map(EdgeInput::BootRaised),
        1 => request().prop_map(EdgeInput::Asked),
        1 => Just(EdgeInput::Heartbeat(EdgeHeartbeat::default())),
        1 => Just(EdgeInput::AckDue),
        2 => prop_oneof![0..60_000u64, number()].prop_map(EdgeInput::Tick),
    ]
}

fn hub_input() -> impl Strategy<Value = HubInput> {
    prop_oneof![
        12 => edge_message().prop_map(HubInput::Received),
        3 => Just(HubInput::Admitted { known: None }),
        1 => identity().prop_map(|known| HubInput::Admitted { known: Some(known) }),
        1 => Just(HubInput::Dismissed(refusal())),
        3 => Just(HubInput::Advanced),
        2 => reports_acked().prop_map(HubInput::Appended),
        1 => Just(HubInput::Unread),
        1 => response().prop_map(HubInput::Answered),
        1 => prop_oneof![0..60_000u64, number()].prop_map(HubInput::Tick),
    ]
}

/// A fold with a few events of both streams of node `a`.
fn source() -> MemorySource {
    let mut source = MemorySource::new(3);
    source.begin(LogId { number: 1, uuid: Uuid::from_u128(1) });
    source.set_readiness(Readiness::Reconciled);
    let streams = Assignment::new(&node(), [StreamId::Cluster]).encode();
    for stream in [StreamId::node(&node()), StreamId::Cluster] {
        for seq in 1..=5 {
            let (key, object) = match seq {
                1 => ("!streams", streams.clone()),
                _ => ("ns/pod/a", Bytes::from(vec![b'x'; 200])),
            };
            let event = Event::Applied(Applied {
                key: key.parse().expect("well-formed"),
                uid: String::new(),
                resource_version: String::new(),
                object,
            });
            let envelope = Envelope {
                stream: stream.clone(),
                seq: Seq(seq),
                epoch: WriterEpoch(1 + seq / 4),
                epoch_first_seq: Seq(if seq < 4 { 1 } else { 4 }),
                time_ms: 0,
                hash: StateHash::EMPTY,
                traceparent: None,
                shared: None,
                event,
            };
            source.fold(envelope).expect("in order");
        }
    }
    source
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn an_edge_survives_any_hub_and_any_shell(
        identity in identity(), positions in vec(position(), 0..3),
        inputs in vec(edge_input(), 0..40),
    ) {
        let state = EdgeState { identity, positions, assignment: None };
        let settings = EdgeSettings { window_bytes: 600, ..EdgeSettings::default() };
        let mut session = EdgeSession::new(settings, state);
        session.step(EdgeInput::Connected);
        let log_id = LogId { number: 1, uuid: Uuid::from_u128(1) };
        let welcome = Welcome {
            protocol: 1, log_id, streams: Vec::new(), known: None, verbs: Vec::new(), takes_events: true,
        };
        session.step(EdgeInput::Received(HubMessage::Welcome(welcome)));
        for input in inputs {
            prop_assert!(session.step(input).len() < OUTPUTS_MAX);
            for stream in session.streams() {
                prop_assert!(stream.durable <= stream.applied.map_or(Seq::ZERO, |at| at.seq));
                prop_assert!(stream.received <= stream.tail);
            }
        }
    }

    #[test]
    fn a_hub_survives_any_edge_and_sends_it_no_stream_of_another(
        settings in (0..3_000u64, 0..10u64), positions in vec(position(), 0..3),
        inputs in vec(hub_input(), 0..40),
    ) {
        let source = source();
        let (window_bytes, tail_events_max) = settings;
        let settings = HubSettings { window_bytes, tail_events_max, ..HubSettings::default() };
        let mut session = HubSession::new(settings, node());
        let boot = Boot { number: 3, nonce: 1 };
        let identity = Identity { node: node(), incarnation: Incarnation(1), boot };
        let window_bytes = u64::MAX;
        let (connection, dials) = (1, DialSupport::Confirmed);
        let hello =
            Hello { protocol: 1, identity, positions, window_bytes, connection, dials };
        let mut all = vec![
            HubInput::Received(EdgeMessage::Hello(hello)),
            HubInput::Admitted { known: None },
        ];
        all.extend(inputs);
        let mut is_closed = false;
        for input in all {
            let outputs = session.step(&source, input);
            prop_assert!(outputs.len() < OUTPUTS_MAX);
            prop_assert!(!is_closed || outputs.is_empty(), "no output after the end");
            for output in outputs {
                match output {
                    HubOutput::Close(_) => is_closed = true,
                    HubOutput::Send(HubMessage::Push(push)) => {
                        prop_assert!(push.stream.readable_by(&node()));
                    }
                    _ => {}
                }
            }
        }
    }
}
