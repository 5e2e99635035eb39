//! The reports of a session that wait: for room in the queue of the log, or because their node
//! reports too fast. The session goes on meanwhile: it pushes, takes acknowledgements and the time.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use headwater_event::{NodeName, Report, ReportId};
use headwater_session::message::report_bytes;
use headwater_session::settings::REPORT_BYTES_WINDOW;
use tokio::time::{Instant, sleep_until};

use crate::upstream::{AppendOutcome, AppendPermit, UpstreamAppender};
use crate::watched_value::WatchedValue;

/// Bytes of reports that wait, inclusive, before the session reads no more of its edge. An edge has no more in flight, or
/// one report that is larger, so the session always reads it; an edge of an earlier version may have more. A hub
/// that cannot append has some thousand sessions that wait.
const WAITING_BYTES_MAX: u64 = REPORT_BYTES_WINDOW;

/// The reports of one message.
struct WaitingGroup {
    reports: Vec<Report>,
    bytes: u64,
    /// When they may be appended.
    due: Instant,
}

/// The reports of one session that are not queued for the log yet.
pub(super) struct ReportQueue {
    upstream: UpstreamAppender,
    /// The times of the groups do not decrease.
    waiting: VecDeque<WaitingGroup>,
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
        let is_one_report = || self.waiting.len() == 1 && self.waiting[0].reports.len() == 1;
        self.waiting_bytes <= WAITING_BYTES_MAX || is_one_report()
    }

    /// Adds reports of `node` that may be appended from `due` on.
    pub(super) fn add(&mut self, node: &NodeName, reports: Vec<Report>, due: Instant) {
        let bytes = reports.iter().map(report_bytes).sum();
        self.waiting_bytes += bytes;
        self.waiting.push_back(WaitingGroup { reports, bytes, due });
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
        while let Some(&WaitingGroup { due, .. }) = self.waiting.front() {
            if due <= Instant::now()
                && let Some(permit) = self.upstream.try_reserve(node)
            {
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
        let Some(WaitingGroup { reports, bytes, .. }) = self.waiting.pop_front() else { return };
        self.waiting_bytes -= bytes;
        self.queued = permit.append(reports, self.queued, &self.outcome);
    }
}
