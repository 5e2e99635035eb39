//! TLS handshakes, and how long the hub's own certificate lasts.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{IntCounter, IntGauge};

use super::{Families, level};

/// What the handshakes of a hub count together.
#[derive(Clone)]
pub(crate) struct HandshakeMetrics {
    outcomes: [IntCounter; 3],
    not_after: IntGauge,
}

/// What became of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// There is a connection.
    Done,
    /// It failed, or the peer broke it off.
    Failed,
    /// It took too long.
    Late,
}

impl HandshakeMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            outcomes: families.counters(
                "headwater_hub_handshakes_total",
                "TLS handshakes with edges, by what became of them.",
                "outcome",
                ["done", "failed", "late"],
            )?,
            not_after: families.gauge(
                "headwater_hub_certificate_not_after_seconds",
                "Until when the hub's certificate is valid, as of the last handshake, in seconds \
                 since the Unix epoch; 0: no TLS.",
            )?,
        })
    }

    /// A handshake ended; the hub's own certificate is valid until `not_after`.
    pub(crate) fn count(&self, outcome: Handshake, not_after: SystemTime) {
        self.outcomes[outcome as usize].inc();
        self.until(not_after);
    }

    /// The hub's own certificate is valid until then.
    pub(crate) fn until(&self, not_after: SystemTime) {
        let since = not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.not_after.set(level(since.as_secs()));
    }
}
