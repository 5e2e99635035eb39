//! The window of reports of an edge.

use bytes::Bytes;
use headwater_event::{Incarnation, Report, ReportBody, ReportId};
use headwater_session::message::{EdgeMessage, HubMessage, ReportsAcked, report_bytes};
use headwater_session::settings::REPORT_BYTES_WINDOW;
use headwater_session::{EdgeInput, EdgeOutput, EdgeSession};

use crate::edge::{greeting_edge, welcome};

fn id(seq: u64) -> ReportId {
    ReportId { incarnation: Incarnation(1), boot: 3, seq }
}

fn report(seq: u64, bytes: usize) -> Report {
    let body = ReportBody::PodStatus {
        pod: "d/pod/p".parse().expect("a key"),
        uid: "u".to_owned(),
        status: Bytes::from(vec![b' '; bytes]),
    };
    Report { id: id(seq), body, traceparent: None }
}

/// An edge whose outbox has these reports, in their order.
struct Edge {
    session: EdgeSession,
    outbox: Vec<Report>,
    /// The reports in flight.
    sent: Vec<Report>,
}

impl Edge {
    fn open(outbox: Vec<Report>) -> Self {
        let (session, _) = greeting_edge();
        let mut edge = Self { session, outbox, sent: Vec::new() };
        edge.step(welcome(None));
        edge
    }

    fn step(&mut self, input: EdgeInput) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for output in self.session.step(input) {
                match output {
                    EdgeOutput::ReadOutbox { after, count, .. } => {
                        let behind = self.outbox.iter().filter(|report| Some(report.id) > after);
                        let reports: Vec<_> = behind.clone().take(count).cloned().collect();
                        let is_end = behind.count() == reports.len();
                        inputs.push(EdgeInput::Outbox { reports, is_end });
                    }
                    EdgeOutput::Send(EdgeMessage::Reports(reports)) => {
                        self.sent.extend(reports.reports);
                    }
                    EdgeOutput::Forget(through) => {
                        self.outbox.retain(|report| report.id > through);
                        self.sent.retain(|report| report.id > through);
                    }
                    _ => {}
                }
            }
        }
        let bytes: u64 = self.sent.iter().map(report_bytes).sum();
        assert!(bytes <= REPORT_BYTES_WINDOW || self.sent.len() == 1, "{bytes} bytes in flight");
    }

    /// The log has every report up to this one.
    fn acknowledge(&mut self, seq: u64) {
        let acked = ReportsAcked { through: id(seq), refused: Vec::new() };
        self.step(EdgeInput::Received(HubMessage::ReportsAcked(acked)));
    }

    fn in_flight(&self) -> Vec<u64> {
        self.sent.iter().map(|report| report.id.seq).collect()
    }
}

#[test]
fn reports_in_flight_have_bounded_bytes_and_a_larger_one_goes_alone() {
    let third = usize::try_from(REPORT_BYTES_WINDOW / 3).expect("small");
    let mut outbox: Vec<Report> = (1..=4).map(|seq| report(seq, third)).collect();
    outbox.push(report(5, 10 * third));
    outbox.push(report(6, 1));
    let mut edge = Edge::open(outbox);
    // Each has some bytes beside its status.
    assert_eq!(edge.in_flight(), [1, 2]);
    edge.acknowledge(1);
    assert_eq!(edge.in_flight(), [2, 3]);
    edge.acknowledge(3);
    assert_eq!(edge.in_flight(), [4], "the next one is larger than the window");
    edge.acknowledge(4);
    assert_eq!(edge.in_flight(), [5]);
    edge.acknowledge(5);
    assert_eq!(edge.in_flight(), [6]);
    edge.acknowledge(6);
    assert!(edge.outbox.is_empty());
}
