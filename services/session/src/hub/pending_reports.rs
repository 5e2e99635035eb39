//! The reports of one session, from the edge to the log.

use std::collections::VecDeque;

use headwater_event::{Identity, ReportId};

use super::io::Violation;
use crate::message::Reports;

/// What was received and is not durable in the log.
#[derive(Debug, Default)]
pub(super) struct PendingReports {
    last: Option<ReportId>,
    unappended: VecDeque<ReportId>,
}

impl PendingReports {
    /// Checks that the reports continue what was received, under the session's identity.
    pub(super) fn take(
        &mut self,
        reports: &Reports,
        identity: &Identity,
        unappended_max: usize,
    ) -> Result<(), Violation> {
        if reports.after != self.last {
            return Err(Violation::ReportsMissing { said: reports.after, received: self.last });
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

    /// Everything up to `through` is durable: what of it the edge may forget.
    pub(super) fn appended(&mut self, through: ReportId) -> Option<ReportId> {
        let mut acked = None;
        while let Some(id) = self.unappended.front().copied().filter(|id| *id <= through) {
            self.unappended.pop_front();
            acked = Some(id);
        }
        acked
    }
}
