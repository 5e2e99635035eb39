//! What became of the reports of a session that are on their way into the log.

use std::sync::Arc;

use headwater_event::ReportId;
use headwater_session::message::{RefusedReport, ReportsAcked};

use crate::watched_value::WatchedValue;

/// What became of the reports of one session.
#[derive(Debug, Default)]
pub(crate) struct AppendOutcome {
    /// The last report of the groups that are done, in their order.
    through: ReportId,
    /// Reports up to `through` that the log never takes, not sent to the edge yet.
    refused: Vec<RefusedReport>,
    /// A group was discarded before the log had it. No later group counts: an acknowledgement is
    /// cumulative.
    is_lost: bool,
}

/// The receipt of a group of reports. A receipt that is dropped says that its group was discarded.
#[derive(Debug)]
pub(super) struct AppendReceipt {
    outcome: Arc<WatchedValue<AppendOutcome>>,
    /// The last report of the group before.
    after: ReportId,
    last: ReportId,
    is_done: bool,
}

impl AppendOutcome {
    /// What the edge must be sent since the last call; `None`: reports were discarded, so the edge
    /// must send them once more.
    pub(crate) fn take(outcome: &WatchedValue<Self>) -> Option<ReportsAcked> {
        outcome.with(|outcome| {
            let refused = std::mem::take(&mut outcome.refused);
            (!outcome.is_lost).then_some(ReportsAcked { through: outcome.through, refused })
        })
    }
}

impl AppendReceipt {
    /// The receipt of a group up to `last`, behind the group up to `after`.
    pub(super) fn new(
        outcome: Arc<WatchedValue<AppendOutcome>>,
        after: ReportId,
        last: ReportId,
    ) -> Self {
        Self { outcome, after, last, is_done: false }
    }

    /// The log has every report of the group, except the `refused` ones, which it never takes.
    pub(super) fn done(mut self, refused: Vec<RefusedReport>) {
        self.is_done = true;
        // The session may be over: its edge then sends the reports again.
        self.outcome.modify(|outcome| {
            outcome.is_lost |= outcome.through != self.after;
            if !outcome.is_lost {
                outcome.through = self.last;
                outcome.refused.extend(refused);
            }
        });
    }
}

impl Drop for AppendReceipt {
    fn drop(&mut self) {
        if !self.is_done {
            self.outcome.modify(|outcome| outcome.is_lost = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seq: u64) -> ReportId {
        ReportId { boot: 1, seq, ..ReportId::default() }
    }

    #[test]
    fn nothing_behind_a_discarded_group_is_acknowledged() {
        let outcome = Arc::<WatchedValue<AppendOutcome>>::default();
        let receipt = |after, last| AppendReceipt::new(outcome.clone(), after, id(last));
        let refused = RefusedReport { id: id(2), reason: "too large".to_owned() };
        receipt(ReportId::default(), 3).done(vec![refused.clone()]);
        let acked = ReportsAcked { through: id(3), refused: vec![refused] };
        assert_eq!(AppendOutcome::take(&outcome), Some(acked));
        assert_eq!(AppendOutcome::take(&outcome), Some(id(3).into()), "a refusal is sent once");
        let discarded = receipt(id(3), 5);
        receipt(id(5), 6).done(Vec::new());
        assert_eq!(AppendOutcome::take(&outcome), None, "also before the receipt is dropped");
        drop(discarded);
        assert_eq!(AppendOutcome::take(&outcome), None);
    }
}
