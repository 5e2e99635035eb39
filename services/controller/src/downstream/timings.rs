//! How often a writer says that it lives, and how long its silence lasts before another claims.

use std::time::Duration;

/// How often a writer says that it lives: rare enough to cost nothing.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// How many heartbeats must be missed before another claims: a log that is slow for a while is no
/// silence.
pub const HEARTBEATS_MISSED: u32 = 3;

/// How a writer and those who stand by deal with each other. The same for all controllers of one
/// log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterTimings {
    /// How often the writer says that it lives.
    pub heartbeat_interval: Duration,
    /// How many of its heartbeats must be missed before another claims.
    pub heartbeats_missed: u32,
}

impl WriterTimings {
    /// How long who stands by waits for a sign of the writer.
    pub fn silence_max(&self) -> Duration {
        self.heartbeat_interval.saturating_mul(self.heartbeats_missed.max(1))
    }
}

impl Default for WriterTimings {
    fn default() -> Self {
        Self { heartbeat_interval: HEARTBEAT_INTERVAL, heartbeats_missed: HEARTBEATS_MISSED }
    }
}
