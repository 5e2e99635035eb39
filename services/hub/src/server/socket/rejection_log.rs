//! Which rejected handshakes are logged: strangers can connect as often as they like, and must not
//! fill the log.

use std::time::Duration;

/// How many rejections may be logged at once: the nodes of a small site with a wrong CA.
const AT_ONCE: u32 = 10;

/// The time in which one more may be logged.
const INTERVAL: Duration = Duration::from_secs(6);

/// Limits the log lines about rejected handshakes.
#[derive(Debug, Default)]
pub(super) struct RejectionLog {
    /// When the log may take all lines of a burst again, on a monotonic clock.
    full_at: Duration,
    /// Rejections without a line since the last line.
    omitted: u64,
}

impl RejectionLog {
    /// Counts a rejection. Returns how many had no line since the last one, if this one is to have
    /// one. `now` is of a monotonic clock.
    pub(super) fn note(&mut self, now: Duration) -> Option<u64> {
        let full_at = self.full_at.max(now);
        if full_at - now > INTERVAL * (AT_ONCE - 1) {
            self.omitted += 1;
            return None;
        }
        self.full_at = full_at + INTERVAL;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_logged_and_then_one_line_an_interval_with_the_number_of_the_others() {
        let mut log = RejectionLog::default();
        let start = Duration::from_secs(100);
        let lines = (0..50).filter(|_| log.note(start).is_some()).count();
        assert_eq!(lines, AT_ONCE as usize);
        assert_eq!(log.note(start + INTERVAL), Some(40));
        assert_eq!(log.note(start + INTERVAL), None);
        assert_eq!(log.note(start + 2 * INTERVAL), Some(1));
    }
}
