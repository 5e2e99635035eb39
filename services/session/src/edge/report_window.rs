//! The window of reports: read from the edge's outbox, sent, not yet acknowledged.
//!
//! It keeps ids only. Every connection begins at the first report of the outbox, and the outbox
//! keeps a report until the hub acknowledges it as durable in the log.

use std::collections::VecDeque;

use headwater_event::{Report, ReportBody, ReportId};

use super::io::EdgeOutput;
use crate::message::{EdgeMessage, Reports, ReportsAcked, report_bytes};

/// The reports in flight in one session.
#[derive(Debug, Default)]
pub(super) struct ReportWindow {
    /// Sent and not acknowledged, ids rising.
    unacked: VecDeque<ReportId>,
    /// The last report sent in this connection.
    sent: Option<ReportId>,
    /// Whether the outbox may hold more behind `sent`.
    more: bool,
    /// The count of the pending read of the outbox.
    reading: Option<usize>,
    /// Pending reads of earlier connections: their results begin at another report.
    stale_reads: usize,
    /// Whether the hub of this connection takes reports of Events.
    takes_events: bool,
}

impl ReportWindow {
    /// The session is open: reads the outbox from its first report.
    pub(super) fn open(&mut self, max: usize, takes_events: bool) -> Option<EdgeOutput> {
        self.more = true;
        self.takes_events = takes_events;
        self.read(max)
    }

    /// The connection is gone: everything not acknowledged is sent again later.
    pub(super) fn close(&mut self) {
        let stale_reads = self.stale_reads + usize::from(self.reading.is_some());
        *self = Self { stale_reads, ..Self::default() };
    }

    /// The outbox has a new report.
    pub(super) fn reported(&mut self, max: usize) -> Option<EdgeOutput> {
        self.more = true;
        self.read(max)
    }

    /// Sends the reports that were read from the outbox.
    pub(super) fn take(
        &mut self,
        reports: Vec<Report>,
        max: usize,
        frame_bytes_max: u64,
    ) -> Vec<EdgeOutput> {
        if self.stale_reads > 0 {
            self.stale_reads -= 1;
            return Vec::new();
        }
        let Some(count) = self.reading.take() else { return Vec::new() };
        // Fewer reports than requested: the outbox has no more, unless one came during the read.
        self.more |= reports.len() >= count;
        let mut outputs = Vec::new();
        let mut frame = Vec::new();
        let mut frame_bytes = 0;
        let mut after = self.sent;
        for mut report in reports.into_iter().take(count) {
            if !self.takes_events {
                report.body = without_events(report.body);
            }
            if self.sent.is_some_and(|sent| report.id <= sent) {
                continue;
            }
            let bytes = report_bytes(&report);
            if !frame.is_empty() && frame_bytes + bytes > frame_bytes_max {
                outputs.push(send(after, std::mem::take(&mut frame)));
                after = self.sent;
                frame_bytes = 0;
            }
            frame_bytes += bytes;
            self.sent = Some(report.id);
            self.unacked.push_back(report.id);
            frame.push(report);
        }
        if !frame.is_empty() {
            outputs.push(send(after, frame));
        }
        outputs.extend(self.read(max));
        outputs
    }

    /// Every report up to one of them is durable in the log, or refused. `None`: that report was
    /// never sent.
    pub(super) fn acked(&mut self, acked: ReportsAcked, max: usize) -> Option<Vec<EdgeOutput>> {
        let ReportsAcked { through, refused } = acked;
        if self.sent.is_none_or(|sent| sent < through) {
            return None;
        }
        let mut outputs = Vec::new();
        for refused in refused {
            // In the order of the ids, as they were sent.
            if refused.id <= through && self.unacked.binary_search(&refused.id).is_ok() {
                outputs.push(EdgeOutput::Refused(refused));
            }
        }
        let before = self.unacked.len();
        while self.unacked.front().is_some_and(|id| *id <= through) {
            self.unacked.pop_front();
        }
        if self.unacked.len() < before {
            outputs.push(EdgeOutput::Forget(through));
        }
        outputs.extend(self.read(max));
        Some(outputs)
    }

    fn read(&mut self, max: usize) -> Option<EdgeOutput> {
        let room = max.saturating_sub(self.unacked.len());
        if !self.more || self.reading.is_some() || room == 0 {
            return None;
        }
        self.more = false;
        self.reading = Some(room);
        Some(EdgeOutput::ReadOutbox { after: self.sent, count: room })
    }
}

/// The body for a hub of an earlier version: it ends a session over a kind that it does not know.
fn without_events(body: ReportBody) -> ReportBody {
    match body {
        ReportBody::Event { key, object } => ReportBody::Message { key, content: object },
        body => body,
    }
}

fn send(after: Option<ReportId>, reports: Vec<Report>) -> EdgeOutput {
    EdgeOutput::Send(EdgeMessage::Reports(Reports { after, reports }))
}
