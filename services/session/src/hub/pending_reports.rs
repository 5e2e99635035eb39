//! The reports of one session on their way from the edge to the log.

use std::collections::VecDeque;

use headwater_event::{Identity, ReportId};

use super::io::Violation;
use crate::message::Reports;

/// The ids of reports that were received and are not durable in the log yet.
#[derive(Debug, Default)]
pub(super) struct PendingReports {
    /// The last report received.
    last: Option<ReportId>,
    unappended: VecDeque<ReportId>,
}

impl PendingReports {
    /// Checks that the reports continue the ones received, under the session's identity, and adds
    /// them.
    pub(super) fn add(
        &mut self,
        reports: &Reports,
        identity: &Identity,
        unappended_max: usize,
    ) -> Result<(), Violation> {
        if reports.after != self.last {
            return Err(Violation::ReportsMissing { sent: reports.after, received: self.last });
        }
        let count = self.unappended.len() + reports.reports.len();
        if count > unappended_max {
            let what = "reports wait for the log";
            return Err(Violation::TooMany { what, count, max: unappended_max });
        }
        let mut last = self.last;
        for report in &reports.reports {
            let found = report.id;
            if (found.incarnation, found.boot) > identity.rank()
                || found.incarnation != identity.incarnation
            {
                return Err(Violation::ReportIdentity { found, identity: identity.clone() });
            }
            if let Some(after) = last
                && found <= after
            {
                return Err(Violation::ReportOrder { after, found });
            }
            last = Some(found);
        }
        self.last = last;
        self.unappended.extend(reports.reports.iter().map(|report| report.id));
        Ok(())
    }

    /// Every report up to `through` is durable; returns the last one that the edge may forget.
    pub(super) fn appended(&mut self, through: ReportId) -> Option<ReportId> {
        let mut acked = None;
        while let Some(id) = self.unappended.front().copied().filter(|id| *id <= through) {
            self.unappended.pop_front();
            acked = Some(id);
        }
        acked
    }
}
