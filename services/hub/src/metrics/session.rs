//! Sessions, pushes, requests.

use std::time::Duration;

use headwater_session::HubCloseReason;
use headwater_session::message::{Push, PushMode, RefusalCode, RequestError};
use prometheus::{Counter, Histogram, IntCounter, IntCounterVec, IntGauge};

use super::Families;

/// In the order of their values.
const MODES: [PushMode; 4] =
    [PushMode::Tail, PushMode::Delta, PushMode::Snapshot, PushMode::Correction];

/// The metrics of sessions.
#[derive(Clone)]
pub(crate) struct SessionMetrics {
    hellos: IntCounterVec,
    ended: IntCounterVec,
    resumes: IntCounterVec,
    pushes: [IntCounter; MODES.len()],
    push_bytes: [IntCounter; MODES.len()],
    changes: [IntCounter; MODES.len()],
    latency: Histogram,
    window_full: IntCounter,
    window_full_seconds: Counter,
    parked: IntGauge,
    requests: [IntCounter; 7],
}

/// The outcome of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloOutcome {
    /// The hub welcomed the edge.
    Accepted,
    /// No hello came, or another message in its place.
    Missing,
    /// The session ended before the welcome.
    Refused(EndReason),
    /// The hub did not admit the session, for this reason.
    NotAdmitted(&'static str),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The hub refused the session, or asked the edge to connect again.
    Refused(RefusalCode),
    /// The hub asked the edge to continue at another hub.
    Moved,
    /// The edge broke the protocol.
    Violation,
    /// The fold could not be read.
    Fold,
    /// The edge sent nothing.
    Silent,
    /// The edge took no bytes.
    Slow,
    /// The edge left.
    Left,
    /// The stream broke, or a message on it could not be read.
    Broken,
    /// The upstream appender takes no more reports: the hub stops.
    Upstream,
}

impl EndReason {
    pub(crate) fn of(end: &HubCloseReason) -> Self {
        match end {
            HubCloseReason::Refused(refusal) => Self::Refused(refusal.code),
            HubCloseReason::Left { .. } => Self::Moved,
            HubCloseReason::Violation(_) => Self::Violation,
            HubCloseReason::Source(_) => Self::Fold,
            HubCloseReason::Silent { .. } => Self::Silent,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Refused(RefusalCode::Clone) => "clone",
            Self::Refused(RefusalCode::StaleIdentity) => "stale_identity",
            Self::Refused(RefusalCode::Protocol) => "protocol",
            Self::Refused(RefusalCode::Violation) | Self::Violation => "violation",
            Self::Refused(RefusalCode::Forbidden) => "forbidden",
            Self::Refused(RefusalCode::Superseded) => "superseded",
            Self::Refused(RefusalCode::Unavailable) => "unavailable",
            Self::Moved => "moved",
            Self::Fold => "fold",
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::Left => "left",
            Self::Broken => "broken",
            Self::Upstream => "upstream",
        }
    }
}

impl HelloOutcome {
    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Missing => "missing",
            Self::Refused(reason) => reason.name(),
            Self::NotAdmitted(reason) => reason,
        }
    }
}

impl SessionMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        let modes = MODES.map(mode_name);
        let seconds = Counter::new(
            "headwater_hub_window_full_seconds_total",
            "Time that sessions could push nothing because their window was full.",
        )?;
        families.registry.register(Box::new(seconds.clone()))?;
        Ok(Self {
            hellos: families.counter_vec(
                "headwater_hub_hellos_total",
                "Hellos, by outcome.",
                "outcome",
            )?,
            ended: families.counter_vec(
                "headwater_hub_sessions_ended_total",
                "Sessions that were open and ended, by reason.",
                "reason",
            )?,
            resumes: families.counter_vec(
                "headwater_hub_resumes_total",
                "Streams that a session began to serve, by the mode of the first push; none: the \
                 replica lacked nothing.",
                "mode",
            )?,
            pushes: families.counters(
                "headwater_hub_pushes_total",
                "Pushes handed to the transport; each part of a larger push counts.",
                "mode",
                modes,
            )?,
            push_bytes: families.counters(
                "headwater_hub_push_bytes_total",
                "Bytes of these pushes, as windows count them.",
                "mode",
                modes,
            )?,
            changes: families.counters(
                "headwater_hub_pushed_changes_total",
                "Changes in these pushes.",
                "mode",
                modes,
            )?,
            latency: families.histogram(
                "headwater_hub_delivery_latency_seconds",
                "From the append of an event until a session hands it to its transport, for \
                 sessions that were open at the append.",
                (0.000_5, 2.0, 18),
            )?,
            window_full: families.counter(
                "headwater_hub_window_full_total",
                "Times that the window of a session became full.",
            )?,
            window_full_seconds: seconds,
            parked: families.gauge(
                "headwater_hub_parked_sessions",
                "Sessions with a stream that is not served at present.",
            )?,
            requests: families.counters(
                "headwater_hub_requests_total",
                "Responses to requests of nodes.",
                "outcome",
                ["ok", "not_found", "forbidden", "unavailable", "conflict", "invalid", "too_many"],
            )?,
        })
    }

    /// Counts a hello.
    pub(crate) fn hello(&self, end: HelloOutcome) {
        self.hellos.with_label_values(&[end.name()]).inc();
    }

    /// Counts the end of a session that was open.
    pub(crate) fn ended(&self, reason: EndReason) {
        self.ended.with_label_values(&[reason.name()]).inc();
    }

    /// Counts a stream that a session began to serve; `None`: the replica lacked nothing.
    pub(crate) fn resumed(&self, mode: Option<PushMode>) {
        self.resumes.with_label_values(&[mode.map_or("none", mode_name)]).inc();
    }

    /// Counts a push of so many bytes to the transport.
    pub(crate) fn pushed(&self, push: &Push, bytes: u64) {
        let mode = push.mode as usize;
        self.pushes[mode].inc();
        self.push_bytes[mode].inc_by(bytes);
        self.changes[mode].inc_by(push.changes.len() as u64);
    }

    /// Counts an event that reached the transport this long after its append.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a session are few")]
    pub(crate) fn delivered(&self, after_ms: i64) {
        self.latency.observe(after_ms.max(0) as f64 / 1000.0);
    }

    /// Counts a window that became full.
    pub(crate) fn window_filled(&self) {
        self.window_full.inc();
    }

    /// Counts the time that a window was full.
    pub(crate) fn window_opened(&self, after: Duration) {
        self.window_full_seconds.inc_by(after.as_secs_f64());
    }

    /// Counts a session that is parked now, or no longer.
    pub(crate) fn parked(&self, is_parked: bool) {
        if is_parked {
            self.parked.inc();
        } else {
            self.parked.dec();
        }
    }

    /// Counts a response.
    pub(crate) fn responded<T>(&self, outcome: &Result<T, RequestError>) {
        let [ok, not_found, forbidden, unavailable, conflict, invalid, too_many] = &self.requests;
        match outcome {
            Ok(_) => ok.inc(),
            Err(RequestError::NotFound) => not_found.inc(),
            Err(RequestError::Forbidden(_)) => forbidden.inc(),
            Err(RequestError::Unavailable(_)) => unavailable.inc(),
            Err(RequestError::Conflict(_)) => conflict.inc(),
            Err(RequestError::Invalid(_)) => invalid.inc(),
            Err(RequestError::TooMany(_)) => too_many.inc(),
        }
    }
}

fn mode_name(mode: PushMode) -> &'static str {
    match mode {
        PushMode::Tail => "tail",
        PushMode::Delta => "delta",
        PushMode::Snapshot => "snapshot",
        PushMode::Correction => "correction",
    }
}
