//! The reports of a session that wait: for room in the queue of the log, or because their node
//! reports too fast. The session goes on meanwhile: it pushes, takes acknowledgements and the time.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use headwater_event::{NodeName, Report, ReportId};
use headwater_session::message::report_bytes;
use tokio::time::{Instant, sleep_until};

use crate::upstream::{AppendOutcome, AppendPermit, UpstreamAppender};
use crate::watched_value::WatchedValue;

/// Bytes of reports that wait before the session reads no more of its edge: the statuses of some
/// fifty pods. A hub that cannot append has some thousand sessions that wait. The message that
/// reaches the bound may be a full frame.
const WAITING_BYTES_MAX: u64 = 64 << 10;

/// The reports of one session that are not queued for the log yet.
pub(super) struct ReportQueue {
    upstream: UpstreamAppender,
    /// Each group, and when it may be appended. The times do not decrease.
    waiting: VecDeque<(Vec<Report>, Instant)>,
    waiting_bytes: u64,
    /// The wait for the time of the first of those, and for room.
    room: Option<BoxFuture<'static, Option<AppendPermit>>>,
    /// The last report that is queued for the log.
    queued: ReportId,
    /// What became of the queued ones.
    outcome: Arc<WatchedValue<AppendOutcome>>,
}

impl ReportQueue {
    /// A session without reports.
    pub(super) fn new(upstream: UpstreamAppender) -> Self {
        Self {
            upstream,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            room: None,
            queued: ReportId::default(),
            outcome: Arc::default(),
        }
    }

    /// What becomes of the reports.
    pub(super) fn outcome(&self) -> &Arc<WatchedValue<AppendOutcome>> {
        &self.outcome
    }

    /// Whether further reports may wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting_bytes < WAITING_BYTES_MAX
    }

    /// Adds reports of `node` that may be appended from `due` on.
    pub(super) fn add(&mut self, node: &NodeName, reports: Vec<Report>, due: Instant) {
        self.waiting_bytes += bytes(&reports);
        self.waiting.push_back((reports, due));
        self.queue(node);
    }

    /// Returns once there is room for the next reports that wait; waits forever when none do.
    /// `None`: the hub takes no more reports. Cancel safe.
    pub(super) async fn room(&mut self) -> Option<AppendPermit> {
        let Some(room) = &mut self.room else { return pending().await };
        let permit = room.await;
        self.room = None;
        permit
    }

    /// Queues the next reports of `node` that wait, and those behind them as far as there is room.
    pub(super) fn take_room(&mut self, node: &NodeName, permit: AppendPermit) {
        self.append(permit);
        self.queue(node);
    }

    fn queue(&mut self, node: &NodeName) {
        // Behind others that wait for room.
        if self.room.is_some() {
            return;
        }
        while let Some((_, due)) = self.waiting.front() {
            let (due, is_due) = (*due, *due <= Instant::now());
            if is_due && let Some(permit) = self.upstream.try_reserve(node) {
                self.append(permit);
                continue;
            }
            let (upstream, node) = (self.upstream.clone(), node.clone());
            let wait = async move {
                sleep_until(due).await;
                upstream.reserve(&node).await
            };
            self.room = Some(wait.boxed());
            return;
        }
    }

    fn append(&mut self, permit: AppendPermit) {
        let Some((reports, _)) = self.waiting.pop_front() else { return };
        self.waiting_bytes -= bytes(&reports);
        self.queued = permit.append(reports, self.queued, &self.outcome);
    }
}

fn bytes(reports: &[Report]) -> u64 {
    reports.iter().map(report_bytes).sum()
}
