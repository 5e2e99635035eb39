//! The window of reports: read from the edge's outbox, sent, not yet acknowledged.
//!
//! It keeps ids only. Every connection begins at the first report of the outbox, and the outbox
//! keeps a report until the hub acknowledges it as durable in the log.

use std::collections::VecDeque;

use headwater_event::{Report, ReportBody, ReportId};

use super::io::EdgeOutput;
use crate::message::{EdgeMessage, Reports, ReportsAcked, report_bytes};

/// The bounds of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowBounds {
    /// The highest number of reports.
    pub(super) reports: usize,
    /// Their bytes at most. A report of more is sent when no other is in flight.
    pub(super) bytes: u64,
}

/// The reports in flight in one session.
#[derive(Debug, Default)]
pub(super) struct ReportWindow {
    /// Sent and not acknowledged, ids rising, each with its bytes.
    unacked: VecDeque<(ReportId, u64)>,
    unacked_bytes: u64,
    /// The last report sent in this connection.
    sent: Option<ReportId>,
    /// Whether the outbox may hold more behind `sent`.
    more: bool,
    /// Whether the next report has no room until others are acknowledged.
    is_full: bool,
    /// Whether a read of the outbox is pending.
    is_reading: bool,
    /// Pending reads of earlier connections: their results begin at another report.
    stale_reads: usize,
    /// Whether the hub of this connection takes reports of Events.
    takes_events: bool,
}

impl ReportWindow {
    /// The session is open: reads the outbox from its first report.
    pub(super) fn open(&mut self, bounds: WindowBounds, takes_events: bool) -> Option<EdgeOutput> {
        self.more = true;
        self.takes_events = takes_events;
        self.read(bounds)
    }

    /// The connection is gone: everything not acknowledged is sent again later.
    pub(super) fn close(&mut self) {
        let stale_reads = self.stale_reads + usize::from(self.is_reading);
        *self = Self { stale_reads, ..Self::default() };
    }

    /// The outbox has a new report.
    pub(super) fn reported(&mut self, bounds: WindowBounds) -> Option<EdgeOutput> {
        self.more = true;
        self.read(bounds)
    }

    /// Sends the reports that were read from the outbox, as far as there is room. `is_end`: it had no more.
    pub(super) fn take(
        &mut self,
        reports: Vec<Report>,
        is_end: bool,
        bounds: WindowBounds,
        frame_bytes_max: u64,
    ) -> Vec<EdgeOutput> {
        if self.stale_reads > 0 {
            self.stale_reads -= 1;
            return Vec::new();
        }
        if !std::mem::take(&mut self.is_reading) {
            return Vec::new();
        }
        // One may have come during the read.
        self.more |= !is_end;
        let mut outputs = Vec::new();
        let mut frame = Vec::new();
        let mut frame_bytes = 0;
        let mut after = self.sent;
        for mut report in reports {
            if !self.takes_events {
                report.body = without_events(report.body);
            }
            if self.sent.is_some_and(|sent| report.id <= sent) {
                continue;
            }
            let bytes = report_bytes(&report);
            if !self.has_room(bytes, bounds) {
                (self.more, self.is_full) = (true, true);
                break;
            }
            if !frame.is_empty() && frame_bytes + bytes > frame_bytes_max {
                outputs.push(send(after, std::mem::take(&mut frame)));
                after = self.sent;
                frame_bytes = 0;
            }
            frame_bytes += bytes;
            self.sent = Some(report.id);
            self.unacked.push_back((report.id, bytes));
            self.unacked_bytes += bytes;
            frame.push(report);
        }
        if !frame.is_empty() {
            outputs.push(send(after, frame));
        }
        outputs.extend(self.read(bounds));
        outputs
    }

    /// Every report up to one of them is durable in the log, or refused. `None`: that report was
    /// never sent.
    pub(super) fn acked(
        &mut self,
        acked: ReportsAcked,
        bounds: WindowBounds,
    ) -> Option<Vec<EdgeOutput>> {
        let ReportsAcked { through, refused } = acked;
        if self.sent.is_none_or(|sent| sent < through) {
            return None;
        }
        let mut outputs = Vec::new();
        for refused in refused {
            // In the order of the ids, as they were sent.
            let is_unacked = self.unacked.binary_search_by_key(&refused.id, |(id, _)| *id).is_ok();
            if refused.id <= through && is_unacked {
                outputs.push(EdgeOutput::Refused(refused));
            }
        }
        let before = self.unacked.len();
        while let Some((_, bytes)) = self.unacked.pop_front_if(|(id, _)| *id <= through) {
            self.unacked_bytes -= bytes;
        }
        if self.unacked.len() < before {
            self.is_full = false;
            outputs.push(EdgeOutput::Forget(through));
        }
        outputs.extend(self.read(bounds));
        Some(outputs)
    }

    /// Whether a report of so many bytes may be sent now.
    fn has_room(&self, bytes: u64, bounds: WindowBounds) -> bool {
        self.unacked.is_empty()
            || self.unacked.len() < bounds.reports && self.unacked_bytes + bytes <= bounds.bytes
    }

    fn read(&mut self, bounds: WindowBounds) -> Option<EdgeOutput> {
        let count = bounds.reports.saturating_sub(self.unacked.len());
        let bytes = bounds.bytes.saturating_sub(self.unacked_bytes);
        if !self.more || self.is_reading || self.is_full || count == 0 || bytes == 0 {
            return None;
        }
        self.more = false;
        self.is_reading = true;
        Some(EdgeOutput::ReadOutbox { after: self.sent, count, bytes })
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
