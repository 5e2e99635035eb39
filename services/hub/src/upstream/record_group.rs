//! Records of one node that are appended in order.

use headwater_event::upstream::encode_report;
use headwater_event::{NodeName, Partition, Report, ReportId};
use headwater_log::{Append, Record};
use headwater_session::message::RefusedReport;
use tracing::Span;

use super::event_limiter::EventLimiter;
use super::receipt::AppendReceipt;
use super::spans;
use crate::metrics::RecordKind;

/// Bytes of the reason in a refusal: the log's own words, for people.
const REASON_BYTES_MAX: usize = 256;

/// A record for the upstream log.
pub(super) struct OutgoingRecord {
    pub(super) append: Append,
    pub(super) kind: RecordKind,
    /// The report of the record; `None`: the hub's own record.
    report: Option<ReportId>,
    /// Ends when the log has the record.
    _span: Option<Span>,
}

/// Records of one node that are appended in order.
pub(super) struct RecordGroup {
    pub(super) records: Vec<OutgoingRecord>,
    refused: Vec<RefusedReport>,
    /// `None`: nothing waits for the records.
    receipt: Option<AppendReceipt>,
}

impl RecordGroup {
    /// The reports of `node`.
    pub(super) fn of_reports(
        node: &NodeName,
        partition: Partition,
        reports: Vec<Report>,
        receipt: AppendReceipt,
        events: &EventLimiter,
    ) -> Self {
        let mut group = Self { records: Vec::new(), refused: Vec::new(), receipt: Some(receipt) };
        for report in reports {
            match events.admit(node, &report) {
                Ok(()) => group.add(node, partition, report),
                // The edge names it; a line for each of many would fill the log of the hub.
                Err(reason) => {
                    tracing::debug!(%node, id = %report.id, reason, "an Event is refused");
                    group.refused.push(refusal(report.id, &reason));
                }
            }
        }
        group
    }

    /// The bytes of the records that are left.
    pub(super) fn bytes(&self) -> usize {
        self.records.iter().map(|outgoing| outgoing.append.record.bytes()).sum()
    }

    /// Leaves a record out that the log never takes.
    pub(super) fn refuse(&mut self, index: usize, reason: &str) {
        let outgoing = self.records.remove(index);
        let key = String::from_utf8_lossy(&outgoing.append.record.key).into_owned();
        tracing::error!(%key, %reason, "the log never takes a report; the hub refuses it");
        if let Some(id) = outgoing.report {
            self.refused.push(refusal(id, reason));
        }
    }

    /// The log has all records of the group.
    pub(super) fn done(self) {
        let Self { records, refused, receipt } = self;
        drop(records);
        if let Some(receipt) = receipt {
            receipt.done(refused);
        }
    }

    /// How many reports are refused.
    pub(super) fn refusals(&self) -> usize {
        self.refused.len()
    }

    fn add(&mut self, node: &NodeName, partition: Partition, mut report: Report) {
        let encoded = match encode_report(node, &report) {
            Ok(encoded) => encoded,
            Err(error) => {
                tracing::error!(%node, id = %report.id, %error, "a report has no record key");
                self.refused.push(refusal(report.id, &error.to_string()));
                return;
            }
        };
        let _span = spans::append_report(&mut report, node, partition);
        let kind = RecordKind::Report(report.body.kind());
        let record = Record {
            key: encoded.key,
            value: encoded.value,
            header: encoded.header,
            traceparent: report.traceparent,
        };
        let (append, report) = (Append { partition, record }, Some(report.id));
        self.records.push(OutgoingRecord { append, kind, report, _span });
    }
}

fn refusal(id: ReportId, reason: &str) -> RefusedReport {
    let end = reason.floor_char_boundary(REASON_BYTES_MAX);
    RefusedReport { id, reason: reason[..end].to_owned() }
}
