//! What is said in short is heard whole, whatever is said; and what nobody would say is refused.

use std::convert::Infallible;

use headwater_event::report::SnapshotClosed;
use headwater_event::{Incarnation, Report, ReportBody, StateHash};
use headwater_session::message::{EdgeMessage, Reports};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::super::WireFault;
use super::*;
use crate::replication as wire;
use wire::edge_message::Message;
use wire::report::Body;

/// Both ends of one session, and the wire between them.
#[derive(Default)]
struct Session {
    encoder: EdgeMessageEncoder,
    decoder: EdgeMessageDecoder,
    kept: BTreeMap<u32, Bytes>,
    last: Option<ReportId>,
    bytes: usize,
}

impl Session {
    /// Says reports as an edge does, and gives what the hub hears.
    fn say(&mut self, reports: Vec<Report>) -> (EdgeMessage, EdgeMessage) {
        let after = self.last;
        self.last = reports.last().map(|report| report.id).or(after);
        let message = EdgeMessage::Reports(Reports { after, reports });
        let sent = self.encoder.encode(message.clone()).encode_to_vec();
        self.bytes = sent.len();
        let heard = wire::EdgeMessage::decode(sent.as_slice()).expect("own encoding");
        let heard = self.decoder.decode(heard, &mut self.kept).expect("understood");
        (message, heard)
    }

    fn hear(&mut self, reports: wire::Reports) -> Result<EdgeMessage, WireFault> {
        let message = wire::EdgeMessage { message: Some(Message::Reports(reports)) };
        self.decoder.decode(message, &mut self.kept).map_err(
            |unheard: EdgeMessageError<Infallible>| match unheard {
                EdgeMessageError::Wire(error) => error.fault,
                EdgeMessageError::Store(never) => match never {},
            },
        )
    }
}

fn id(seq: u64) -> ReportId {
    ReportId { incarnation: Incarnation(1), boot: 7, seq }
}

fn report(seq: u64, body: ReportBody) -> Report {
    Report { id: id(seq), body, traceparent: None }
}

/// A status such as a pod has that runs: a KiB.
fn status(pod: u64, restarts: u64) -> ReportBody {
    let condition = |kind: &str| {
        format!(
            "{{\"lastProbeTime\":null,\"lastTransitionTime\":\"2026-03-01T00:00:07Z\",\
             \"status\":\"True\",\"type\":\"{kind}\"}}"
        )
    };
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let (minute, second) = (restarts % 60, restarts * 7 % 60);
    let status = format!(
        "{{\"conditions\":[{}],\"containerStatuses\":[{{\"containerID\":\"containerd://{pod:064x}\",\
         \"image\":\"registry.example/shop/web:1.27\",\"lastState\":{{\"terminated\":{{\"exitCode\":1,\
         \"finishedAt\":\"2026-03-01T09:{minute:02}:{second:02}Z\",\"reason\":\"Error\"}}}},\
         \"name\":\"web\",\"ready\":true,\"restartCount\":{restarts},\"started\":true}}],\
         \"hostIP\":\"192.0.2.7\",\"phase\":\"Running\",\"podIP\":\"10.42.0.{pod}\",\
         \"qosClass\":\"Burstable\",\"startTime\":\"2026-03-01T00:00:00Z\"}}",
        conditions.join(",")
    );
    ReportBody::PodStatus {
        pod: format!("default/pod/web-{pod}").parse().expect("a key"),
        uid: format!("0b9f8a52-0000-4000-8000-{pod:012}"),
        status: status.into(),
    }
}

fn closed(hash: u8) -> ReportBody {
    let hash = StateHash::from_bytes(&[hash; 32]);
    let first = ReportId::default();
    ReportBody::SnapshotClosed(SnapshotClosed { hash, pods: 110, full: false, first })
}

fn bodies() -> impl Strategy<Value = ReportBody> {
    let pod = || (0..4u8).prop_map(|n| format!("d/pod/p{n}").parse().expect("a key"));
    let text = || prop_oneof![4 => "[a-d]{0,60}", 1 => "[a-d]{20000}"].prop_map(Bytes::from);
    prop_oneof![
        6 => (pod(), "[ab]", text())
            .prop_map(|(pod, uid, status)| ReportBody::PodStatus { pod, uid, status }),
        1 => (pod(), "[ab]").prop_map(|(pod, uid)| ReportBody::PodStatusRemoved { pod, uid }),
        1 => (pod(), "[ab]").prop_map(|(pod, uid)| ReportBody::PodTerminated { pod, uid }),
        1 => text().prop_map(|object| ReportBody::Node { object }),
        1 => (pod(), text()).prop_map(|(key, content)| ReportBody::Message { key, content }),
        3 => (any::<u8>(), 0..2u64, any::<bool>(), 0..2u64).prop_map(|(hash, pods, full, first)| {
            let hash = StateHash::from_bytes(&[hash; 32]);
            let first = if first == 0 { ReportId::default() } else { id(first) };
            ReportBody::SnapshotClosed(SnapshotClosed { hash, pods, full, first })
        }),
    ]
}

proptest! {
    /// Sessions end at any point, and the next begins with nothing.
    #[test]
    fn whatever_is_said_is_heard(
        messages in vec((vec((1..3u64, bodies(), any::<bool>()), 0..5), 0..6u8), 0..12),
    ) {
        let (mut session, mut seq) = (Session::default(), 0);
        for (reports, ends) in messages {
            let reports = reports.into_iter().map(|(step, body, is_traced)| {
                seq += step;
                let traceparent = is_traced.then(|| format!("00-{seq:032x}-0000000000000001-01"));
                Report { traceparent, ..report(seq, body) }
            });
            let (said, heard) = session.say(reports.collect());
            prop_assert_eq!(heard, said);
            if ends == 0 {
                session = Session::default();
            }
        }
    }

    #[test]
    fn no_bytes_panic(
        reports in vec((any::<Vec<u8>>(), 0..3u8, 0..3u32, 0..3u32, any::<bool>()), 0..6),
        before in 0..3u64, hash: Vec<u8>,
    ) {
        let mut session = Session::default();
        session.say(vec![report(1, status(1, 1)), report(2, closed(1))]);
        let reports = reports.into_iter().map(|(bytes, kind, keep, base, has_id)| {
            let body = match kind {
                0 => Body::Packed(bytes.into()),
                1 => Body::Packed(frame::pack(&bytes, None, false).expect("packs")),
                _ => Body::Patch(bytes.into()),
            };
            let id = has_id.then(|| id(3).into());
            wire::Report { id, body: Some(body), keep, base, ..wire::Report::default() }
        });
        let (reports, closed) = (reports.collect(), hash.into());
        let _ = session.hear(wire::Reports { reports, after: None, before, closed });
    }
}

#[test]
fn a_change_of_a_status_costs_little_more_than_what_changed() {
    let mut session = Session::default();
    let mut seq = 0;
    let mut change = |session: &mut Session, pod, restarts| {
        seq += 2;
        let reports = vec![report(seq - 1, status(pod, restarts)), report(seq, closed(seq as u8))];
        let (said, heard) = session.say(reports);
        assert_eq!(heard, said);
        session.bytes
    };
    let first = change(&mut session, 1, 0);
    let alike = change(&mut session, 2, 0);
    let update = change(&mut session, 1, 1);
    // A status of 800 bytes; the hash of the snapshot alone has 32.
    assert!(first < 480 && alike < 85 && update < 75, "{first}, {alike}, {update} bytes");
    let whole = wire::EdgeMessage::from(EdgeMessage::Reports(Reports {
        after: Some(id(6)),
        reports: vec![report(7, status(1, 2)), report(8, closed(8))],
    }));
    assert!(whole.encoded_len() > 10 * update, "{} bytes", whole.encoded_len());
}

#[test]
fn what_is_kept_is_bounded_and_what_was_said_last_stays() {
    let mut session = Session::default();
    let message = |n: u64| ReportBody::Message {
        key: format!("d/message/m{n}").parse().expect("a key"),
        content: Bytes::from(vec![b'x'; 100]),
    };
    let count = u64::from(BASES_MAX) + 100;
    for seq in 0..count {
        let body = if seq % 10 == 0 { status(1, seq) } else { message(seq) };
        let (said, heard) = session.say(vec![report(seq + 1, body)]);
        assert_eq!(heard, said);
    }
    assert_eq!(session.kept.len(), BASES_MAX as usize);
    session.say(vec![report(count + 1, status(1, 9_999))]);
    assert!(session.bytes < 60, "{} bytes", session.bytes);

    let object = Bytes::from(vec![b'x'; BASE_BYTES_MAX + 1]);
    let before = session.kept.clone();
    let (said, heard) = session.say(vec![report(count + 2, ReportBody::Node { object })]);
    assert_eq!(heard, said);
    assert_eq!(session.kept, before, "what is too large is not kept");
}

#[test]
fn a_report_that_went_missing_is_noticed() {
    let mut session = Session::default();
    session.say(vec![report(1, status(1, 1))]);
    let mut say = |after, seq| {
        let reports = vec![report(seq, status(1, seq))];
        session.encoder.encode(EdgeMessage::Reports(Reports { after: Some(id(after)), reports }))
    };
    let (_lost, later) = (say(1, 2), say(2, 3));
    let Some(Message::Reports(later)) = later.message else { panic!("reports: {later:?}") };
    assert_eq!(session.hear(later), Err(WireFault::Missed { said: 2, heard: 1 }));
}

#[test]
fn what_was_not_said_cannot_be_built_on() {
    let one = |report| wire::Reports { reports: vec![report], ..wire::Reports::default() };
    let with =
        |body| wire::Report { id: Some(id(1).into()), body: Some(body), ..wire::Report::default() };
    let mut session = Session::default();
    let mut fault = |report| session.hear(one(report)).expect_err("refused").to_string();
    let text = wire::Report {
        body: Some(Body::Node(Bytes::from_static(b"{}"))),
        ..wire::Report::default()
    };
    let text = text.encode_to_vec();
    let packed = |text: &[u8]| Body::Packed(frame::pack(text, None, false).expect("packs"));

    let said = fault(wire::Report { keep: 3, ..with(Body::Patch(Bytes::from_static(b"x"))) });
    assert!(said.contains("kept under 3, and there is none"), "{said}");
    let said = fault(with(Body::Patch(Bytes::from_static(b"x"))));
    assert!(said.contains("kept under 0"), "{said}");
    let said = fault(wire::Report { keep: BASES_MAX + 1, ..with(packed(&text)) });
    assert_eq!(said, "513 is above 512");
    let said = fault(with(packed(&vec![0; BASE_BYTES_MAX + 1])));
    assert!(said.contains("at most 16384 bytes are taken"), "{said}");
    let nested =
        wire::Report { body: Some(packed(&text)), ..wire::Report::default() }.encode_to_vec();
    let said = fault(with(packed(&nested)));
    assert!(said.contains("no whole body"), "{said}");
    assert!(session.kept.is_empty(), "nothing of it is kept");

    let closed = Bytes::from(vec![0; 32]);
    let said = session.hear(wire::Reports { closed, ..wire::Reports::default() });
    let said = said.expect_err("none was closed").to_string();
    assert!(said.contains("a snapshot that was closed"), "{said}");

    let fresh = Session::default().hear(one(wire::Report { id: None, ..with(packed(&text)) }));
    assert!(fresh.expect_err("no id").to_string().contains("the report before it"));
}

#[test]
fn the_frames_of_one_message_have_one_bound() {
    let large = ReportBody::Node { object: vec![b'x'; BASE_BYTES_MAX - 100].into() };
    let Message::Reports(mut reports) = EdgeMessageEncoder::default()
        .encode(EdgeMessage::Reports(Reports { after: None, reports: vec![report(1, large)] }))
        .message
        .expect("a message")
    else {
        panic!("reports")
    };
    let one = wire::Report { id: None, ..reports.reports[0].clone() };
    reports.reports.extend(std::iter::repeat_n(one, UNPACKED_BYTES_MAX / BASE_BYTES_MAX + 2));
    let fault = Session::default().hear(reports).expect_err("too much at once");
    assert!(fault.to_string().contains("are taken"), "{fault}");
}

#[test]
fn a_patch_of_something_else_is_noticed_where_no_snapshot_covers_it() {
    let node = |n: u8| ReportBody::Node { object: vec![n; 400].into() };
    let mut session = Session::default();
    session.say(vec![report(1, node(1))]);
    let update = session.encoder.encode(EdgeMessage::Reports(Reports {
        after: Some(id(1)),
        reports: vec![report(2, node(1))],
    }));
    let other =
        wire::Report { body: Some(Body::Node(vec![2; 400].into())), ..wire::Report::default() };
    session.kept.insert(1, other.encode_to_vec().into());
    let Some(Message::Reports(update)) = update.message else { panic!("reports") };
    assert!(matches!(session.hear(update), Err(WireFault::Packed { .. })));
}
