//! Bases, their bounds, and short forms that the decoder refuses. The proto crate tests the codec
//! over the wire.

use std::collections::BTreeMap;

use headwater_event::report::SnapshotClosed;
use headwater_event::{Incarnation, Report};

use super::*;
use crate::message::Reports;

type Fault = ReportDecodeError<&'static str, Infallible>;

/// A body as its kind, then its texts, each after its length.
struct PlainBody;

impl BodyFormat for PlainBody {
    type Error = &'static str;

    fn encode(body: &ReportBody) -> Bytes {
        let (kind, texts): (u8, Vec<&[u8]>) = match body {
            ReportBody::PodStatus { pod, uid, status } => {
                (0, vec![pod.as_str().as_bytes(), uid.as_bytes(), status])
            }
            ReportBody::Message { key, content } => (1, vec![key.as_str().as_bytes(), content]),
            ReportBody::Node { object } => (2, vec![object]),
            ReportBody::Event { key, object } => (4, vec![key.as_str().as_bytes(), object]),
            ReportBody::PodStatusRemoved { .. }
            | ReportBody::PodTerminated { .. }
            | ReportBody::SnapshotClosed(_) => (3, Vec::new()),
        };
        let mut bytes = vec![kind];
        for text in texts {
            bytes.extend(u32::try_from(text.len()).expect("short").to_le_bytes());
            bytes.extend(text);
        }
        bytes.into()
    }

    fn decode(bytes: &Bytes) -> Result<ReportBody, &'static str> {
        let (kind, mut rest) = bytes.split_first().ok_or("no kind")?;
        let mut text = || {
            let (length, behind) = rest.split_first_chunk().ok_or("no length")?;
            let length = u32::from_le_bytes(*length) as usize;
            let (text, behind) = behind.split_at_checked(length).ok_or("cut short")?;
            rest = behind;
            Ok::<_, &'static str>(text)
        };
        let key = |text: &[u8]| {
            let key = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            key.ok_or("no key")
        };
        Ok(match kind {
            0 => ReportBody::PodStatus {
                pod: key(text()?)?,
                uid: String::from_utf8_lossy(text()?).into_owned(),
                status: Bytes::copy_from_slice(text()?),
            },
            1 => {
                ReportBody::Message { key: key(text()?)?, content: Bytes::copy_from_slice(text()?) }
            }
            2 => ReportBody::Node { object: Bytes::copy_from_slice(text()?) },
            4 => ReportBody::Event { key: key(text()?)?, object: Bytes::copy_from_slice(text()?) },
            _ => return Err("unknown kind"),
        })
    }
}

/// Both ends of one session.
#[derive(Default)]
struct Session {
    encoder: ReportEncoder,
    decoder: ReportDecoder,
    bases: BTreeMap<u32, Bytes>,
    last: Option<ReportId>,
}

impl Session {
    /// Encodes reports as the edge does.
    fn encode(&mut self, reports: Vec<Report>) -> EncodedReports {
        let after = self.last;
        self.last = reports.last().map(|report| report.id).or(after);
        self.encoder.encode::<PlainBody>(Reports { after, reports })
    }

    fn decode(&mut self, encoded: EncodedReports) -> Result<Reports, Fault> {
        self.decoder.decode::<PlainBody, _>(encoded, &mut self.bases)
    }

    /// Sends reports from end to end, and returns their short form.
    fn send(&mut self, reports: Vec<Report>) -> EncodedReports {
        let encoded = self.encode(reports.clone());
        let decoded = self.decode(encoded.clone()).expect("decodes");
        assert_eq!(decoded.reports, reports);
        encoded
    }
}

fn id(seq: u64) -> ReportId {
    ReportId { incarnation: Incarnation(1), boot: 7, seq }
}

fn report(seq: u64, body: ReportBody) -> Report {
    Report { id: id(seq), body, traceparent: None }
}

fn status(pod: u64, restarts: u64) -> ReportBody {
    ReportBody::PodStatus {
        pod: format!("default/pod/web-{pod}").parse().expect("a key"),
        uid: format!("0b9f8a52-0000-4000-8000-{pod:012}"),
        status: format!("{{\"restarts\":{restarts},\"phase\":\"Running\"}}").into(),
    }
}

fn node(fill: u8, bytes: usize) -> ReportBody {
    ReportBody::Node { object: vec![fill; bytes].into() }
}

fn closed(hash: u8) -> ReportBody {
    let (hash, first) = (StateHash::from_bytes(&[hash; 32]), ReportId::default());
    ReportBody::SnapshotClosed(SnapshotClosed { hash, pods: 110, full: false, first })
}

/// The only report of a message, without a predecessor.
fn one(body: EncodedBody) -> EncodedReports {
    let report = EncodedReport { id: Some(id(1)), traceparent: None, body };
    EncodedReports { after: Predecessor::Id(None), reports: vec![report], closed: None }
}

#[test]
fn what_follows_from_earlier_reports_is_left_out() {
    let mut session = Session::default();
    let first = session.send(vec![report(1, status(1, 1)), report(2, closed(1))]);
    assert_eq!(first.after, Predecessor::Id(None));
    assert!(matches!(first.reports[0].body, EncodedBody::Packed { keep: 1, .. }), "{first:?}");
    assert_eq!((first.reports.len(), first.closed), (2, None));

    let second = session.send(vec![report(3, status(1, 2)), report(4, closed(2))]);
    assert_eq!(second.after, Predecessor::Count(2));
    let [only] = &second.reports[..] else { panic!("{second:?}") };
    assert_eq!(only.id, None);
    assert!(matches!(only.body, EncodedBody::Patch { keep: 1, base: 0, .. }), "{only:?}");
    assert_eq!(second.closed, Some(StateHash::from_bytes(&[2; 32])));

    let similar = session.send(vec![report(9, status(2, 1))]);
    assert_eq!(similar.reports[0].id, Some(id(9)), "an id behind a gap");
    let body = &similar.reports[0].body;
    assert!(matches!(body, EncodedBody::Patch { keep: 2, base: 1, .. }), "{body:?}");
}

#[test]
fn bases_are_bounded_and_the_one_used_last_stays() {
    let mut session = Session::default();
    let message = |n: u64| ReportBody::Message {
        key: format!("d/message/m{n}").parse().expect("a key"),
        content: Bytes::from(vec![b'x'; 100]),
    };
    let count = u64::from(BASES_MAX) + 100;
    for seq in 0..count {
        let body = if seq % 10 == 0 { status(1, seq) } else { message(seq) };
        session.send(vec![report(seq + 1, body)]);
    }
    assert_eq!(session.bases.len(), BASES_MAX as usize);
    let encoded = session.send(vec![report(count + 1, status(1, 9_999))]);
    let body = &encoded.reports[0].body;
    assert!(matches!(body, EncodedBody::Patch { base: 0, .. }), "{body:?}");

    let before = session.bases.clone();
    let encoded = session.send(vec![report(count + 2, node(b'x', BASE_BYTES_MAX + 1))]);
    assert!(matches!(encoded.reports[0].body, EncodedBody::Whole(_)));
    assert_eq!(session.bases, before, "a large body becomes no base");
}

#[test]
fn a_lost_report_is_noticed() {
    let mut session = Session::default();
    session.send(vec![report(1, status(1, 1))]);
    let _lost = session.encode(vec![report(2, status(1, 2))]);
    let later = session.encode(vec![report(3, status(1, 3))]);
    let fault = ReportFault::Missing { sent: 2, received: 1 };
    assert_eq!(session.decode(later), Err(fault.into()));
}

#[test]
fn a_short_form_of_nothing_is_refused() {
    let mut session = Session::default();
    let mut fault = |encoded| session.decode(encoded).expect_err("refused");
    let frame = Bytes::from_static(b"x");
    let patch = |keep| EncodedBody::Patch { frame: frame.clone(), keep, base: 0 };
    assert_eq!(fault(one(patch(3))), ReportFault::NoBase { number: 3 }.into());
    assert_eq!(fault(one(patch(0))), ReportFault::NoBase { number: 0 }.into());

    let packed = |bytes: &[u8], keep| {
        let frame = frame::pack(bytes, None, false).expect("packs");
        EncodedBody::Packed { frame, keep }
    };
    let body = PlainBody::encode(&node(b'x', 2));
    let above = fault(one(packed(&body, BASES_MAX + 1)));
    assert_eq!(above, ReportFault::BaseNumber { number: 513 }.into());
    assert_eq!(above.to_string(), "513 is above 512");
    let large = fault(one(packed(&vec![0; BASE_BYTES_MAX + 1], 0))).to_string();
    assert!(large.contains("at most 16384 bytes are taken"), "{large}");
    assert_eq!(fault(one(packed(&[9], 1))), ReportDecodeError::Body("unknown kind"));
    assert!(session.bases.is_empty(), "a refused body becomes no base");

    let hash = Some(StateHash::EMPTY);
    let alone = EncodedReports { after: Predecessor::Id(None), reports: Vec::new(), closed: hash };
    assert_eq!(session.decode(alone), Err(ReportFault::NoPreviousSnapshot.into()));
    let mut without_id = one(packed(&body, 1));
    without_id.reports[0].id = None;
    let fault = Session::default().decode(without_id);
    assert_eq!(fault, Err(ReportFault::NoPreviousReport.into()));
}

#[test]
fn the_frames_of_one_message_have_one_bound() {
    let mut encoded = Session::default().encode(vec![report(1, node(b'x', BASE_BYTES_MAX - 100))]);
    let copy = EncodedReport { id: None, ..encoded.reports[0].clone() };
    let copies = UNPACKED_BYTES_MAX / BASE_BYTES_MAX + 2;
    encoded.reports.extend(std::iter::repeat_n(copy, copies));
    let fault = Session::default().decode(encoded).expect_err("too many bytes at once");
    assert!(fault.to_string().contains("are taken"), "{fault}");
}

#[test]
fn a_patch_of_another_base_is_noticed_where_no_snapshot_covers_it() {
    let mut session = Session::default();
    session.send(vec![report(1, node(1, 400))]);
    let update = session.encode(vec![report(2, node(1, 400))]);
    session.bases.insert(1, PlainBody::encode(&node(2, 400)));
    let fault = session.decode(update).expect_err("another base");
    let is_frame =
        matches!(fault, ReportDecodeError::Report(ReportFault::Frame { is_patch: true, .. }));
    assert!(is_frame, "{fault}");
}
