//! TLS handshakes, and the validity of the hub's own certificate.

use std::time::{SystemTime, UNIX_EPOCH};

use headwater_identity::HandshakeError;
use prometheus::{IntCounter, IntCounterVec, IntGauge, register_int_counter_vec_with_registry};

use super::{Families, level};

/// The reason of a handshake that takes too long.
pub(crate) const LATE: &str = "late";

/// The metrics of TLS handshakes.
#[derive(Clone)]
pub(crate) struct HandshakeMetrics {
    outcomes: [IntCounter; 3],
    /// By the reasons of `HandshakeError::REASONS`, and `late`.
    rejected: IntCounterVec,
    not_after: IntGauge,
}

/// The outcome of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeOutcome {
    /// The connection is established.
    Done,
    /// The handshake failed, or the peer ended it.
    Failed,
    /// It took too long.
    Late,
}

impl HandshakeMetrics {
    pub(super) fn new(families: &Families<'_>) -> Result<Self, prometheus::Error> {
        let rejected = register_int_counter_vec_with_registry!(
            "headwater_hub_handshakes_rejected_total",
            "TLS handshakes with edges that did not succeed, by the reason.",
            &["reason"],
            families.registry
        )?;
        for reason in HandshakeError::REASONS.into_iter().chain([LATE]) {
            rejected.with_label_values(&[reason]);
        }
        Ok(Self {
            rejected,
            outcomes: families.counters(
                "headwater_hub_handshakes_total",
                "TLS handshakes with edges, by outcome.",
                "outcome",
                ["done", "failed", "late"],
            )?,
            not_after: families.gauge(
                "headwater_hub_certificate_not_after_seconds",
                "When the hub's certificate expires, as its file was read last, in seconds since \
                 the Unix epoch; 0: no TLS.",
            )?,
        })
    }

    /// Counts a handshake; the hub's own certificate expires at `not_after`.
    pub(crate) fn count(&self, outcome: HandshakeOutcome, not_after: SystemTime) {
        self.outcomes[outcome as usize].inc();
        self.valid_until(not_after);
    }

    /// Counts a handshake that did not succeed, by its reason.
    pub(crate) fn reject(&self, reason: &str) {
        self.rejected.with_label_values(&[reason]).inc();
    }

    /// Sets when the hub's own certificate expires.
    pub(crate) fn valid_until(&self, not_after: SystemTime) {
        let since = not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.not_after.set(level(since.as_secs()));
    }
}
