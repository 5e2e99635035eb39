//! Sessions, pushes, requests.

use std::time::Duration;

use headwater_session::HubCloseReason;
use headwater_session::message::{Push, PushMode, RefusalCode, RequestError};
use prometheus::{Counter, Histogram, IntCounter, IntCounterVec, IntGauge};

use super::Families;

/// In the order of their values.
const MODES: [PushMode; 4] =
    [PushMode::Tail, PushMode::Delta, PushMode::Snapshot, PushMode::Correction];

/// What the sessions of a hub count together.
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
    requests: [IntCounter; 4],
}

/// What became of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloEnd {
    /// The edge was welcomed.
    Accepted,
    /// None came, or another message in its place.
    Missing,
    /// The session ended before the welcome.
    Refused(SessionOver),
    /// It was turned away at the door, for this reason.
    TurnedAway(&'static str),
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionOver {
    /// The hub refused it or asked the edge to connect again.
    Refused(RefusalCode),
    /// The edge was asked to go on elsewhere.
    Moved,
    /// The edge broke the protocol.
    Violation,
    /// The fold could not be read.
    Fold,
    /// Nothing was heard of the edge.
    Silent,
    /// The edge took no bytes.
    Slow,
    /// The edge left.
    Left,
    /// The stream broke, or what came on it could not be read.
    Broken,
    /// The log takes no reports any more: the hub stops.
    Upstream,
}

impl SessionOver {
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

impl HelloEnd {
    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Missing => "missing",
            Self::Refused(over) => over.name(),
            Self::TurnedAway(why) => why,
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
                "Hellos, by what became of them.",
                "outcome",
            )?,
            ended: families.counter_vec(
                "headwater_hub_sessions_ended_total",
                "Sessions that were open and are over, by the reason.",
                "reason",
            )?,
            resumes: families.counter_vec(
                "headwater_hub_resumes_total",
                "Streams that a session began to serve, by the way that brought the replica \
                 forward; none: it had everything.",
                "mode",
            )?,
            pushes: families.counters(
                "headwater_hub_pushes_total",
                "Pushes handed to a session's transport, each part of a larger one counted.",
                "mode",
                modes,
            )?,
            push_bytes: families.counters(
                "headwater_hub_push_bytes_total",
                "Bytes of those, as windows count them.",
                "mode",
                modes,
            )?,
            changes: families.counters(
                "headwater_hub_pushed_changes_total",
                "Changes in those.",
                "mode",
                modes,
            )?,
            latency: families.histogram(
                "headwater_hub_delivery_latency_seconds",
                "From the append of an event to its hand-over to a session's transport, where \
                 the session was open when it was appended.",
                (0.000_5, 2.0, 18),
            )?,
            window_full: families.counter(
                "headwater_hub_window_full_total",
                "Times that the window of a session filled up.",
            )?,
            window_full_seconds: seconds,
            parked: families.gauge(
                "headwater_hub_parked_sessions",
                "Sessions of which a stream is not served just now.",
            )?,
            requests: families.counters(
                "headwater_hub_requests_total",
                "Requests of nodes that were answered.",
                "outcome",
                ["ok", "not_found", "forbidden", "unavailable"],
            )?,
        })
    }

    pub(crate) fn hello(&self, end: HelloEnd) {
        self.hellos.with_label_values(&[end.name()]).inc();
    }

    /// A session that was open is over.
    pub(crate) fn over(&self, over: SessionOver) {
        self.ended.with_label_values(&[over.name()]).inc();
    }

    /// A session began to serve a stream; `None`: the replica had everything.
    pub(crate) fn resumed(&self, mode: Option<PushMode>) {
        self.resumes.with_label_values(&[mode.map_or("none", mode_name)]).inc();
    }

    /// A push was handed to the transport.
    pub(crate) fn pushed(&self, push: &Push) {
        let mode = push.mode as usize;
        self.pushes[mode].inc();
        self.push_bytes[mode].inc_by(push.bytes());
        self.changes[mode].inc_by(push.changes.len() as u64);
    }

    /// An event was handed to the transport so long after its append.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a session are few")]
    pub(crate) fn delivered(&self, after_ms: i64) {
        self.latency.observe(after_ms.max(0) as f64 / 1000.0);
    }

    pub(crate) fn window_filled(&self) {
        self.window_full.inc();
    }

    /// A window has room again, or its session is over.
    pub(crate) fn window_opened(&self, after: Duration) {
        self.window_full_seconds.inc_by(after.as_secs_f64());
    }

    /// A session is parked now, or no longer.
    pub(crate) fn parked(&self, is_parked: bool) {
        if is_parked {
            self.parked.inc();
        } else {
            self.parked.dec();
        }
    }

    pub(crate) fn answered<T>(&self, outcome: &Result<T, RequestError>) {
        let [ok, not_found, forbidden, unavailable] = &self.requests;
        match outcome {
            Ok(_) => ok.inc(),
            Err(RequestError::NotFound) => not_found.inc(),
            Err(RequestError::Forbidden) => forbidden.inc(),
            Err(RequestError::Unavailable(_)) => unavailable.inc(),
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
