//! Every message survives the wire, and no bytes from the wire cause a panic.

use std::time::Duration;

use bytes::Bytes;
use headwater_event::report::SnapshotClosed;
use headwater_event::{
    Applied, Boot, Change, Checkpoint, EntryDigest, EntryKey, EventHeader, Identity, Incarnation,
    LogId, NodeRequest, RemovalRuns, Removed, Report, ReportBody, ReportId, ResourceKey, Seq,
    StateHash, StreamId, WriterEpoch,
};
use headwater_session::message::{
    Ack, Compare, Dial, DialId, DialSupport, Divergence, EdgeHeartbeat, EdgeMessage, Goodbye,
    Hello, HubHeartbeat, HubMessage, ParkNotice, Push, PushMode, PushedChange, Refusal,
    RefusalCode, RefusedReport, ReplicaPosition, Reports, ReportsAcked, Request, RequestError,
    RequestVerb, Response, StreamProgress, Summary, Welcome,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use uuid::Uuid;

use super::{Ask, HubFrame, WireFault, answer_from_wire};
use crate::{cloud, log, replication as wire};

fn stream() -> impl Strategy<Value = StreamId> {
    prop_oneof![
        Just(StreamId::Cluster),
        "[a-z0-9]{1,8}".prop_map(|name| StreamId::Node(name.parse().expect("a name"))),
    ]
}

fn resource_key() -> impl Strategy<Value = ResourceKey> {
    "[a-z]{1,5}/[a-z]{1,5}/[a-z0-9.-]{1,9}".prop_map(|text| text.parse().expect("a key"))
}

fn entry_key() -> impl Strategy<Value = EntryKey> {
    prop_oneof![
        Just(EntryKey::Streams),
        Just(EntryKey::SnapshotRequest),
        resource_key().prop_map(EntryKey::from),
    ]
}

fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    (any::<u64>(), any::<u128>(), any::<u64>(), any::<u64>()).prop_map(
        |(number, uuid, epoch, seq)| Checkpoint {
            log_id: LogId { number, uuid: Uuid::from_u128(uuid) },
            epoch: WriterEpoch(epoch),
            seq: Seq(seq),
        },
    )
}

fn hash() -> impl Strategy<Value = StateHash> {
    any::<[u8; 32]>().prop_map(|bytes| StateHash::from_bytes(&bytes))
}

fn position() -> impl Strategy<Value = ReplicaPosition> {
    (stream(), checkpoint(), hash()).prop_map(|(stream, checkpoint, hash)| ReplicaPosition {
        stream,
        checkpoint,
        hash,
    })
}

fn progress() -> impl Strategy<Value = StreamProgress> {
    (stream(), any::<u64>(), any::<u64>()).prop_map(|(stream, a, b)| StreamProgress {
        stream,
        applied: Seq(a.max(b)),
        durable: Seq(a.min(b)),
    })
}

fn identity() -> impl Strategy<Value = Identity> {
    ("[a-z]{1,8}", any::<[u64; 3]>()).prop_map(|(node, [incarnation, number, nonce])| Identity {
        node: node.parse().expect("a name"),
        incarnation: Incarnation(incarnation),
        boot: Boot { number, nonce },
    })
}

fn report_id() -> impl Strategy<Value = ReportId> {
    any::<[u64; 3]>().prop_map(|[incarnation, boot, seq]| ReportId {
        incarnation: Incarnation(incarnation),
        boot,
        seq,
    })
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn traceparent() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[0-9a-f-]{1,20}")
}

fn report() -> impl Strategy<Value = Report> {
    let body = prop_oneof![
        (resource_key(), ".{0,8}", bytes()).prop_map(|(pod, uid, status)| ReportBody::PodStatus {
            pod,
            uid,
            status
        }),
        (resource_key(), ".{0,8}").prop_map(|(pod, uid)| ReportBody::PodStatusRemoved { pod, uid }),
        (hash(), any::<u64>(), any::<bool>(), report_id()).prop_map(|(hash, pods, full, first)| {
            ReportBody::SnapshotClosed(SnapshotClosed { hash, pods, full, first })
        }),
        bytes().prop_map(|object| ReportBody::Node { object }),
        (resource_key(), ".{0,8}").prop_map(|(pod, uid)| ReportBody::PodTerminated { pod, uid }),
        (resource_key(), bytes()).prop_map(|(key, content)| ReportBody::Message { key, content }),
        (resource_key(), bytes()).prop_map(|(key, object)| {
            ReportBody::Event { key: key.with_kind("event"), object }
        }),
    ];
    (report_id(), body, traceparent()).prop_map(|(id, body, traceparent)| Report {
        id,
        body,
        traceparent,
    })
}

fn change() -> impl Strategy<Value = PushedChange> {
    let change = prop_oneof![
        (entry_key(), ".{0,8}", ".{0,8}", bytes()).prop_map(
            |(key, uid, resource_version, object)| {
                Change::Applied(Applied { key, uid, resource_version, object })
            }
        ),
        (entry_key(), ".{0,8}").prop_map(|(key, uid)| Change::Removed(Removed { key, uid })),
    ];
    (change, any::<Option<bool>>(), traceparent(), any::<Option<i64>>()).prop_map(
        |(change, patched, traceparent, appended_ms)| {
            let is_patch =
                matches!(change, Change::Applied(_)) && change.key().resource().is_some();
            let base = patched.filter(|_| is_patch).map(|itself| match itself {
                true => change.key().clone(),
                false => "ns/pod/alike".parse().expect("a key"),
            });
            PushedChange { change, base, traceparent, appended_ms }
        },
    )
}

fn push() -> impl Strategy<Value = Push> {
    let mode = prop_oneof![
        Just(PushMode::Tail),
        Just(PushMode::Delta),
        Just(PushMode::Snapshot),
        Just(PushMode::Correction),
    ];
    let place = (stream(), mode, any::<u64>(), checkpoint());
    let gone = vec(any::<bool>(), 0..9).prop_map(RemovalRuns::of);
    (place, gone, vec(change(), 0..4), hash(), any::<u32>(), any::<bool>()).prop_map(
        |((stream, mode, from, to), gone, mut changes, hash, part, last_part)| {
            let gone = if mode == PushMode::Correction { gone } else { RemovalRuns::default() };
            if mode != PushMode::Tail {
                changes.iter_mut().for_each(|pushed| pushed.base = None);
            }
            Push { stream, mode, from: Seq(from), to, gone, changes, hash, part, last_part }
        },
    )
}

fn dial_support() -> impl Strategy<Value = DialSupport> {
    prop_oneof![Just(DialSupport::None), Just(DialSupport::Taken), Just(DialSupport::Confirmed)]
}

fn edge_message() -> impl Strategy<Value = EdgeMessage> {
    prop_oneof![
        (any::<u32>(), identity(), vec(position(), 0..3), any::<(u64, u64)>(), dial_support())
            .prop_map(|(protocol, identity, positions, (window_bytes, connection), dials)| {
                EdgeMessage::Hello(Hello {
                    protocol,
                    identity,
                    positions,
                    window_bytes,
                    connection,
                    dials,
                })
            }),
        (any::<u64>(), vec(progress(), 0..3)).prop_map(|(received_bytes, progress)| {
            EdgeMessage::Ack(Ack { received_bytes, progress })
        }),
        (stream(), any::<u64>()).prop_map(|(stream, seq)| {
            EdgeMessage::Divergence(Divergence { stream, seq: Seq(seq) })
        }),
        (prop::option::of(report_id()), vec(report(), 0..3))
            .prop_map(|(after, reports)| { EdgeMessage::Reports(Reports { after, reports }) }),
        any::<(u64, i64, i64, Option<bool>, bool)>().prop_map(
            |(outbox_depth, time_ms, meta_sync_ms, consumes_cluster, lacks_worker)| {
                EdgeMessage::Heartbeat(EdgeHeartbeat {
                    outbox_depth,
                    time_ms,
                    meta_sync_ms,
                    consumes_cluster,
                    lacks_worker,
                })
            }
        ),
        (any::<u64>(), any::<u64>(), prop::option::of(verb()), resource_key(), bytes()).prop_map(
            |(id, timeout_ms, verb, key, body)| {
                EdgeMessage::Request(Request { id, timeout_ms, verb, key, body })
            }
        ),
        Just(EdgeMessage::Unknown),
        Just(EdgeMessage::DialReceipt),
        (stream(), any::<u64>(), vec(any::<[u8; 6]>(), 0..5)).prop_map(
            |(stream, nonce, digests)| {
                let digests = digests.into_iter().map(EntryDigest::from_bytes).collect();
                EdgeMessage::Summary(Summary { stream, nonce, digests })
            }
        ),
    ]
}

fn verb() -> impl Strategy<Value = RequestVerb> {
    prop::sample::select(RequestVerb::ALL.to_vec())
}

fn response() -> impl Strategy<Value = Response> {
    let error = prop_oneof![
        Just(RequestError::NotFound),
        ".{1,8}".prop_map(RequestError::Forbidden),
        ".{0,8}".prop_map(RequestError::Unavailable),
        ".{0,8}".prop_map(RequestError::Conflict),
        ".{0,8}".prop_map(RequestError::Invalid),
        ".{0,8}".prop_map(RequestError::TooMany),
    ];
    let outcome = prop_oneof![bytes().prop_map(|body| Ok(body.into())), error.prop_map(Err)];
    (any::<u64>(), outcome).prop_map(|(id, outcome)| Response { id, outcome })
}

fn hub_message() -> impl Strategy<Value = HubMessage> {
    let code = prop::sample::select(vec![
        RefusalCode::Clone,
        RefusalCode::StaleIdentity,
        RefusalCode::Protocol,
        RefusalCode::Violation,
        RefusalCode::Forbidden,
        RefusalCode::Superseded,
        RefusalCode::Unavailable,
    ]);
    prop_oneof![
        (
            any::<u32>(),
            checkpoint(),
            vec(stream(), 0..3),
            prop::option::of(identity()),
            vec(verb(), 0..3),
            any::<bool>()
        )
            .prop_map(|(protocol, checkpoint, streams, known, verbs, takes_events)| {
                let log_id = checkpoint.log_id;
                let welcome = Welcome { protocol, log_id, streams, known, verbs, takes_events };
                HubMessage::Welcome(welcome)
            }),
        Just(HubMessage::Unknown),
        push().prop_map(HubMessage::Push),
        (stream(), any::<u64>())
            .prop_map(|(stream, nonce)| HubMessage::Compare(Compare { stream, nonce })),
        (report_id(), vec((report_id(), ".{0,8}"), 0..3)).prop_map(|(through, refused)| {
            let refused = refused.into_iter().map(|(id, reason)| RefusedReport { id, reason });
            HubMessage::ReportsAcked(ReportsAcked { through, refused: refused.collect() })
        }),
        vec(position(), 0..3).prop_map(|tails| HubMessage::Heartbeat(HubHeartbeat { tails })),
        response().prop_map(HubMessage::Response),
        (stream(), ".{0,8}")
            .prop_map(|(stream, reason)| HubMessage::ParkNotice(ParkNotice { stream, reason })),
        any::<([u8; 16], u64)>()
            .prop_map(|(id, within_ms)| { HubMessage::Dial(Dial { id: DialId(id), within_ms }) }),
        ".{0,8}".prop_map(|reason| HubMessage::Goodbye(Goodbye { reason })),
        (code, ".{0,8}").prop_map(|(code, message)| HubMessage::Refusal(Refusal { code, message })),
    ]
}

proptest! {
    #[test]
    fn a_message_of_an_edge_survives_the_wire(message in edge_message()) {
        let sent = wire::EdgeMessage::from(message.clone()).encode_to_vec();
        let received = wire::EdgeMessage::decode(Bytes::from(sent)).expect("own encoding");
        prop_assert_eq!(EdgeMessage::try_from(received), Ok(message));
    }

    #[test]
    fn a_message_of_a_hub_survives_the_wire(message in hub_message()) {
        let sent = wire::HubMessage::from(message.clone()).encode_to_vec();
        let received = wire::HubMessage::decode(Bytes::from(sent)).expect("own encoding");
        prop_assert_eq!(HubMessage::try_from(received), Ok(message));
    }

    #[test]
    fn an_ask_and_its_answer_survive_the_wire(
        id in any::<u64>(),
        node in "[a-z]{1,9}",
        timeout_ms in any::<u64>(),
        verb in verb(),
        key in resource_key(),
        body in bytes(),
        answer in response(),
    ) {
        let (node, timeout) = (node.parse().expect("a name"), Duration::from_millis(timeout_ms));
        let ask = Ask { id, request: NodeRequest { node, timeout, verb, key, body } };
        let sent = cloud::HubMessage::from(ask.clone()).encode_to_vec();
        let received = cloud::HubMessage::decode(Bytes::from(sent)).expect("own encoding");
        let Some(cloud::hub_message::Message::Ask(received)) = received.message else { panic!() };
        prop_assert_eq!(Ask::try_from(received), Ok(ask));
        let sent = cloud::ControllerMessage::from(answer.clone()).encode_to_vec();
        let received = cloud::ControllerMessage::decode(Bytes::from(sent)).expect("own encoding");
        let Some(cloud::controller_message::Message::Answer(received)) = received.message else {
            panic!()
        };
        prop_assert_eq!(answer_from_wire(received), Ok(answer));
    }

    #[test]
    fn a_push_that_is_encoded_once_is_the_same_message(push in push()) {
        let encoded = HubFrame::Encoded(HubFrame::encode_push(&push));
        let message = HubFrame::from(HubMessage::Push(push));
        prop_assert_eq!(encoded.encoded_len(), message.encoded_len());
        prop_assert_eq!(encoded.into_message(), message.into_message());
    }

    /// Valid bytes with one changed byte reach more code than random bytes.
    #[test]
    fn no_bytes_panic(
        message in edge_message(), answer in hub_message(), at: prop::sample::Index, to: u8,
        noise in vec(any::<u8>(), 0..64),
    ) {
        let messages = [
            wire::EdgeMessage::from(message).encode_to_vec(),
            wire::HubMessage::from(answer).encode_to_vec(),
            noise,
        ];
        for mut bytes in messages {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            if let Ok(message) = wire::EdgeMessage::decode(bytes.as_slice()) {
                let _ = EdgeMessage::try_from(message);
            }
            if let Ok(message) = wire::HubMessage::decode(bytes.as_slice()) {
                let _ = HubMessage::try_from(message);
            }
        }
    }

    /// `storage/event` has an own encoder of the header; the .proto file describes the same bytes.
    #[test]
    fn the_header_of_an_event_matches_the_proto_file(
        seq in 1u64.., epoch in 1u64.., uid in ".{0,40}", version in ".{0,40}", hash in hash(),
    ) {
        let header = EventHeader {
            seq: Seq(seq),
            epoch: WriterEpoch(epoch),
            epoch_first_seq: Seq(seq / 2),
            uid,
            resource_version: version,
            hash,
        };
        let bytes = header.encode();
        prop_assert_eq!(bytes[0], 1);
        let read = log::EventHeader::decode(&bytes[1..]).expect("the same message");
        prop_assert_eq!(read.encode_to_vec(), &bytes[1..]);
        prop_assert_eq!((read.seq, read.writer_epoch), (seq, epoch));
        prop_assert_eq!(read.epoch_first_seq, seq / 2);
        prop_assert_eq!(read.uid, header.uid);
        prop_assert_eq!(read.resource_version, header.resource_version);
        prop_assert_eq!(read.state_hash, hash.to_bytes().to_vec());
    }
}

#[test]
fn a_wrong_field_is_named() {
    // Field 99 is of a later version.
    let unknown = [0x9a, 0x06, 0x01, 0x00].as_slice();
    let of_edge = wire::EdgeMessage::decode(unknown).expect("well-formed");
    assert_eq!(EdgeMessage::try_from(of_edge), Ok(EdgeMessage::Unknown));
    let of_hub = wire::HubMessage::decode(unknown).expect("well-formed");
    assert_eq!(HubMessage::try_from(of_hub), Ok(HubMessage::Unknown));

    let uuid = Bytes::from_static(&[1, 2, 3]);
    let short = LogId::try_from(wire::LogId { number: 1, uuid }).expect_err("3 bytes");
    assert_eq!(short.to_string(), "LogId.uuid: 3 bytes, want 16");

    let position = wire::StreamPosition {
        stream: "cluster".to_owned(),
        checkpoint: Some(wire::Checkpoint { log_id: None, epoch: 1, seq: 1 }),
        hash: Bytes::new(),
    };
    let field = ReplicaPosition::try_from(position).expect_err("no log id").field;
    assert_eq!(field, "Checkpoint.log_id");

    let progress = wire::StreamProgress { stream: "cluster".to_owned(), applied: 3, durable: 4 };
    let above = StreamProgress::try_from(progress).expect_err("durable above applied");
    assert_eq!(above.to_string(), "StreamProgress.durable: 4 is above 3");

    let refusal = wire::Refusal { code: 99, message: String::new() };
    let unknown = Refusal::try_from(refusal).expect_err("an unknown code");
    assert_eq!(unknown.to_string(), "Refusal.code: 99 is not known");

    let progress = vec![wire::StreamProgress::default(); super::STREAMS_MAX + 1];
    let many = Ack::try_from(wire::Ack { received_bytes: 0, progress }).expect_err("too many");
    assert!(matches!(many.fault, WireFault::TooMany { .. }));
}

#[test]
fn a_comparison_is_bounded() {
    use wire::push::Mode;
    let summary = |bytes| {
        let digests = Bytes::from(vec![7; bytes]);
        Summary::try_from(wire::Summary { stream: "cluster".to_owned(), nonce: 1, digests })
    };
    assert_eq!(summary(12).expect("two").digests.len(), 2);
    let uneven = summary(13).expect_err("a part of a digest").to_string();
    assert_eq!(uneven, "Summary.digests: 13 bytes, want a multiple of 6");
    let (count, max) = (super::SUMMARY_ENTRIES_MAX + 1, super::SUMMARY_ENTRIES_MAX);
    let fault = summary(6 * count).expect_err("one too many").fault;
    assert_eq!(fault, WireFault::TooMany { count, max });

    let push = |mode: Mode, gone| {
        Push::try_from(wire::Push {
            stream: "cluster".to_owned(),
            mode: mode.into(),
            to: Some(wire::Checkpoint {
                log_id: Some(wire::LogId::from(log_id())),
                epoch: 1,
                seq: 1,
            }),
            hash: Bytes::from(vec![0; 32]),
            gone,
            ..wire::Push::default()
        })
    };
    assert_eq!(push(Mode::Correction, vec![1, 2]).expect("fits").gone.count(), 2);
    let fault = push(Mode::Correction, vec![0, u32::MAX, u32::MAX]).expect_err("many").fault;
    assert!(matches!(fault, WireFault::TooMany { .. }));
    let fault = push(Mode::Correction, vec![0; count + 1]).expect_err("many").fault;
    assert!(matches!(fault, WireFault::TooMany { .. }));
    assert_eq!(
        push(Mode::Snapshot, vec![1, 2]).expect_err("not a correction").fault,
        WireFault::Gone
    );
}

fn log_id() -> LogId {
    LogId { number: 1, uuid: Uuid::from_u128(1) }
}
