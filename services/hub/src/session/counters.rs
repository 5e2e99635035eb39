//! What one session adds to the hub's metrics, and the state that this needs.

use std::sync::Arc;

use headwater_event::StreamId;
use headwater_follow::WallClock;
use headwater_session::HubSession;
use headwater_session::message::{HubMessage, Push};
use tokio::time::Instant;

use crate::metrics::{EndReason, HelloOutcome, SessionMetrics};

/// Counts for one session.
pub(super) struct SessionCounters {
    metrics: Arc<SessionMetrics>,
    /// When the session began. The age of an earlier event does not measure a delivery.
    since_ms: i64,
    is_open: bool,
    is_parked: bool,
    /// Streams whose resume is counted. A list: a node has two or three, and a set has room for eleven.
    resumed: Vec<StreamId>,
    window_full_since: Option<Instant>,
}

impl SessionCounters {
    pub(super) fn new(metrics: Arc<SessionMetrics>, since_ms: i64) -> Self {
        Self {
            metrics,
            since_ms,
            is_open: false,
            is_parked: false,
            resumed: Vec::new(),
            window_full_since: None,
        }
    }

    /// Counts a message that the session hands to the transport.
    pub(super) fn sending(&mut self, message: &HubMessage, clock: &WallClock) {
        match message {
            HubMessage::Push(push) => self.pushing(push, push.bytes(), clock),
            HubMessage::Response(response) => self.metrics.responded(&response.outcome),
            _ => {}
        }
    }

    /// Counts a push of so many bytes that the session hands to the transport.
    pub(super) fn pushing(&mut self, push: &Push, bytes: u64, clock: &WallClock) {
        self.metrics.pushed(push, bytes);
        if !self.resumed.contains(&push.stream) {
            self.resumed.push(push.stream.clone());
            self.metrics.resumed(Some(push.mode));
        }
        let now_ms = clock();
        let times = push.changes.iter().filter_map(|pushed| pushed.appended_ms);
        for time_ms in times.filter(|time_ms| *time_ms >= self.since_ms) {
            self.metrics.delivered(now_ms - time_ms);
        }
    }

    /// Counts what a step of the session changed.
    pub(super) fn stepped(&mut self, session: &HubSession) {
        if session.is_open() && !self.is_open {
            self.is_open = true;
            self.metrics.hello(HelloOutcome::Accepted);
        }
        let mut is_parked = false;
        for stream in session.streams() {
            is_parked |= stream.parked.is_some();
            let has_everything = stream.parked.is_none()
                && !stream.resetting
                && stream.log_id.is_some()
                && stream.sent == stream.tail;
            if has_everything && !self.resumed.contains(stream.stream) {
                self.resumed.push(stream.stream.clone());
                self.metrics.resumed(None);
            }
        }
        self.set_parked(is_parked);
        match (session.is_window_full(), self.window_full_since) {
            (true, None) => {
                self.window_full_since = Some(Instant::now());
                self.metrics.window_filled();
            }
            (false, Some(_)) => self.window_opened(),
            _ => {}
        }
    }

    /// Counts the end of the session.
    pub(super) fn ended(&mut self, reason: EndReason) {
        self.set_parked(false);
        self.window_opened();
        if self.is_open {
            self.metrics.ended(reason);
        } else {
            self.metrics.hello(HelloOutcome::Refused(reason));
        }
    }

    fn set_parked(&mut self, is_parked: bool) {
        if self.is_parked != is_parked {
            self.is_parked = is_parked;
            self.metrics.parked(is_parked);
        }
    }

    fn window_opened(&mut self) {
        if let Some(since) = self.window_full_since.take() {
            self.metrics.window_opened(since.elapsed());
        }
    }
}
