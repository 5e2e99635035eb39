//! The timings of a writer and its standbys: heartbeats, the silence before another claims, heads.

use std::time::Duration;

use headwater_log::MARKS_WITHIN;

/// How often a writer appends a heartbeat: rare enough to cost nothing.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// How many heartbeats a standby misses before it claims: 12 s in all, because a log that is slow
/// for a while is no silence.
pub const HEARTBEATS_MISSED: u32 = 4;

/// How long a writer keeps the log after it has lost its sources: an API server restarts within it.
pub const SOURCE_LOSS_MAX: Duration = Duration::from_secs(60);

/// The longest between two rounds of heads: rare enough to cost nothing.
const HEADS_INTERVAL_MAX: Duration = Duration::from_secs(600);

/// The shortest between two rounds, for logs whose window is next to nothing.
const HEADS_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Rounds of heads in a replay window.
const HEADS_PER_WINDOW: u32 = 4;

/// How often heads are appended behind removals: well within the replay window of the log, during
/// which compaction keeps a tombstone.
pub(super) fn heads_interval(replay_window: Duration) -> Duration {
    (replay_window / HEADS_PER_WINDOW).clamp(HEADS_INTERVAL_MIN, HEADS_INTERVAL_MAX)
}

/// The timings of a writer and its standbys. All controllers of one log have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterTimings {
    /// How often the writer appends a heartbeat.
    pub heartbeat_interval: Duration,
    /// How many heartbeats a standby misses before it claims.
    pub heartbeats_missed: u32,
    /// How long the sources of a writer may be lost before it yields the log to a standby whose
    /// sources follow.
    pub source_loss_max: Duration,
}

impl WriterTimings {
    /// How long a standby waits for a record of the writer.
    pub fn silence_max(&self) -> Duration {
        self.heartbeat_interval.saturating_mul(self.heartbeats_missed.max(1))
    }

    /// How long a claim waits for partitions that do not take it: a third of the silence at most. The
    /// first heartbeat follows an interval later, and a standby must still take the claimant for alive.
    pub(super) fn marks_within(&self) -> Duration {
        (self.silence_max() / 3).min(MARKS_WITHIN)
    }

    /// How long after a heartbeat its writer is certainly the only one: two thirds of the silence. The
    /// last third is for a request on its way, and for clocks that run at different speeds.
    pub fn writes_for(&self) -> Duration {
        self.silence_max() * 2 / 3
    }
}

impl Default for WriterTimings {
    fn default() -> Self {
        Self {
            heartbeat_interval: HEARTBEAT_INTERVAL,
            heartbeats_missed: HEARTBEATS_MISSED,
            source_loss_max: SOURCE_LOSS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_well_within_the_window() {
        let ms = Duration::from_millis;
        assert_eq!(heads_interval(Duration::from_secs(7 * 24 * 3600)), HEADS_INTERVAL_MAX);
        assert_eq!(heads_interval(ms(2_000)), ms(500));
        assert_eq!(heads_interval(Duration::ZERO), HEADS_INTERVAL_MIN);
    }

    #[test]
    fn the_first_heartbeat_after_a_slow_claim_comes_within_the_silence() {
        for (interval_ms, heartbeats_missed) in
            [(1_500, 2), (1_000, 3), (750, 4), (3_000, 4), (9_000, 4)]
        {
            let timings = WriterTimings {
                heartbeat_interval: Duration::from_millis(interval_ms),
                heartbeats_missed,
                ..WriterTimings::default()
            };
            let first = timings.marks_within() + timings.heartbeat_interval;
            assert!(first < timings.silence_max(), "{first:?}, {timings:?}");
            assert!(timings.marks_within() <= MARKS_WITHIN);
        }
    }
}
