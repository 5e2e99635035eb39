//! Any reports survive the wire in their short form, and malformed short forms are refused.

use std::collections::BTreeMap;
use std::convert::Infallible;

use headwater_event::report::SnapshotClosed;
use headwater_event::{Incarnation, Report, ReportBody, ReportId, StateHash};
use headwater_session::message::{EdgeMessage, Reports};
use headwater_session::report_codec::{BASE_BYTES_MAX, BASES_MAX};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::replication as wire;
use wire::edge_message::Message;
use wire::report::Body;

/// Both ends of one session, and the wire between them.
#[derive(Default)]
struct Session {
    encoder: EdgeMessageEncoder,
    decoder: EdgeMessageDecoder,
    bases: BTreeMap<u32, Bytes>,
    last: Option<ReportId>,
    bytes: usize,
}

impl Session {
    /// Sends reports as an edge does; returns the message sent and the one received.
    fn send(&mut self, reports: Vec<Report>) -> (EdgeMessage, EdgeMessage) {
        let after = self.last;
        self.last = reports.last().map(|report| report.id).or(after);
        let message = EdgeMessage::Reports(Reports { after, reports });
        let sent = self.encoder.encode(message.clone()).encode_to_vec();
        self.bytes = sent.len();
        let received = wire::EdgeMessage::decode(sent.as_slice()).expect("own encoding");
        let received = self.decoder.decode(received, &mut self.bases).expect("decodes");
        (message, received)
    }

    fn decode(&mut self, reports: wire::Reports) -> Result<EdgeMessage, WireError> {
        let message = wire::EdgeMessage { message: Some(Message::Reports(reports)) };
        let decoded = self.decoder.decode(message, &mut self.bases);
        decoded.map_err(|error: EdgeMessageError<Infallible>| match error {
            EdgeMessageError::Wire(error) => error,
            EdgeMessageError::Store(never) => match never {},
        })
    }
}

fn id(seq: u64) -> ReportId {
    ReportId { incarnation: Incarnation(1), boot: 7, seq }
}

fn report(seq: u64, body: ReportBody) -> Report {
    Report { id: id(seq), body, traceparent: None }
}

/// The status of a running pod: 1 KiB.
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
        1 => (pod(), text()).prop_map(|(key, object)| {
            ReportBody::Event { key: key.with_kind("event"), object }
        }),
        3 => (any::<u8>(), 0..2u64, any::<bool>(), 0..2u64).prop_map(|(hash, pods, full, first)| {
            let hash = StateHash::from_bytes(&[hash; 32]);
            let first = if first == 0 { ReportId::default() } else { id(first) };
            ReportBody::SnapshotClosed(SnapshotClosed { hash, pods, full, first })
        }),
    ]
}

proptest! {
    /// A session ends at any point, and the next one begins without bases.
    #[test]
    fn any_reports_survive_the_wire(
        messages in vec((vec((1..3u64, bodies(), any::<bool>()), 0..5), 0..6u8), 0..12),
    ) {
        let (mut session, mut seq) = (Session::default(), 0);
        for (reports, ends) in messages {
            let reports = reports.into_iter().map(|(step, body, is_traced)| {
                seq += step;
                let traceparent = is_traced.then(|| format!("00-{seq:032x}-0000000000000001-01"));
                Report { traceparent, ..report(seq, body) }
            });
            let (sent, received) = session.send(reports.collect());
            prop_assert_eq!(received, sent);
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
        session.send(vec![report(1, status(1, 1)), report(2, closed(1))]);
        let reports = reports.into_iter().map(|(bytes, kind, keep, base, has_id)| {
            let body = match kind {
                0 => Body::Packed(bytes.into()),
                1 => Body::Packed(zstd::bulk::compress(&bytes, 1).expect("packs").split_off(4).into()),
                _ => Body::Patch(bytes.into()),
            };
            let id = has_id.then(|| id(3).into());
            wire::Report { id, body: Some(body), keep, base, ..wire::Report::default() }
        });
        let (reports, closed) = (reports.collect(), hash.into());
        let _ = session.decode(wire::Reports { reports, after: None, before, closed });
    }
}

#[test]
fn a_change_of_a_status_costs_little_more_than_what_changed() {
    let mut session = Session::default();
    let mut seq = 0;
    let mut change = |session: &mut Session, pod, restarts| {
        seq += 2;
        let reports = vec![report(seq - 1, status(pod, restarts)), report(seq, closed(seq as u8))];
        let (sent, received) = session.send(reports);
        assert_eq!(received, sent);
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
fn a_fault_of_the_short_form_names_its_field() {
    let one = |report| wire::Reports { reports: vec![report], ..wire::Reports::default() };
    let with =
        |body| wire::Report { id: Some(id(1).into()), body: Some(body), ..wire::Report::default() };
    let text = wire::Report {
        body: Some(Body::Node(Bytes::from_static(b"{}"))),
        ..wire::Report::default()
    };
    let frame =
        |text: &[u8]| zstd::bulk::compress(text, 1).expect("compresses").split_off(4).into();
    let packed = |text: &wire::Report| Body::Packed(frame(&text.encode_to_vec()));

    let mut session = Session::default();
    let mut error = |reports| session.decode(reports).expect_err("refused").to_string();
    let patch = with(Body::Patch(Bytes::from_static(b"x")));
    let text_of = error(one(wire::Report { keep: 3, ..patch.clone() }));
    assert_eq!(text_of, "Report.patch: it is a patch of base 3, which this session does not have");
    let text_of = error(one(patch));
    assert_eq!(text_of, "Report.patch: it is a patch of base 0, which this session does not have");
    let text_of = error(one(wire::Report { keep: BASES_MAX + 1, ..with(packed(&text)) }));
    assert_eq!(text_of, "Report.keep: 513 is above 512");
    let large = with(Body::Packed(frame(&vec![0; BASE_BYTES_MAX + 1])));
    let text_of = error(one(large));
    assert!(text_of.starts_with("Report.packed: cannot be unpacked"), "{text_of}");
    assert!(text_of.contains("at most 16384 bytes are taken"), "{text_of}");
    let nested = wire::Report { body: Some(packed(&text)), ..wire::Report::default() };
    let text_of = error(one(with(packed(&nested))));
    assert!(text_of.contains("no whole body"), "{text_of}");
    let text_of = error(wire::Reports { before: 7, ..wire::Reports::default() });
    assert!(text_of.starts_with("Reports.before: 7 reports were sent before"), "{text_of}");
    let closed = Bytes::from(vec![0; 32]);
    let text_of = error(wire::Reports { closed, ..wire::Reports::default() });
    assert!(
        text_of.starts_with("Reports.closed: it is the hash of a closed snapshot"),
        "{text_of}"
    );
    let closed = Bytes::from(vec![0; 31]);
    let text_of = error(wire::Reports { closed, ..wire::Reports::default() });
    assert_eq!(text_of, "Reports.closed: 31 bytes, want 32");
    assert!(session.bases.is_empty(), "a refused body becomes no base");

    let fresh = one(wire::Report { id: None, ..with(packed(&text)) });
    let text_of = Session::default().decode(fresh).expect_err("no id").to_string();
    assert!(text_of.starts_with("Report.id: it has no id"), "{text_of}");
}
