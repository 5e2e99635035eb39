//! How many requests are on their way at once, over all lanes. The API server says when they are too many.
//!
//! ```text
//!        429: half of it, at least one
//!  most ◄──────────────────────────────► one
//!        a while without 429: twice of it
//! ```
//!
//! Leases take what there is first, objects then, Events last. Without this bound the server would choose, by
//! chance: a Lease would be refused for the sake of a status that comes a moment earlier.

use super::event_queue::EVENT_REQUESTS_MAX;
use super::lease::RENEWALS_MAX;
use super::queue::REQUESTS_MAX;

/// The requests of all lanes, as long as the API server takes them.
const WINDOW_MAX: usize = REQUESTS_MAX + RENEWALS_MAX + EVENT_REQUESTS_MAX;

/// The time without a refusal after which more requests are tried: from one to the most takes 14 s.
const GROWTH_MS: u64 = 2_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    window: usize,
    grows_at_ms: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { window: WINDOW_MAX, grows_at_ms: 0 }
    }
}

impl Pace {
    /// Whether one more request may be sent beside `in_flight` others. One always may.
    pub(super) fn has_room(&self, in_flight: usize) -> bool {
        in_flight < self.window
    }

    /// The API server refused a request because it has too much to do.
    pub(super) fn throttle(&mut self, now_ms: u64) {
        self.window = (self.window / 2).max(1);
        self.grows_at_ms = now_ms + GROWTH_MS;
    }

    /// Some time has passed.
    pub(super) fn look(&mut self, now_ms: u64) {
        if self.window < WINDOW_MAX && now_ms >= self.grows_at_ms {
            self.window = (self.window * 2).min(WINDOW_MAX);
            self.grows_at_ms = now_ms + GROWTH_MS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_leave_one_request_at_a_time_and_quiet_brings_all_of_them_back() {
        let mut pace = Pace::default();
        assert!(pace.has_room(WINDOW_MAX - 1) && !pace.has_room(WINDOW_MAX));
        for _ in 0..20 {
            pace.throttle(1_000);
        }
        assert!(pace.has_room(0) && !pace.has_room(1));
        pace.look(1_000 + GROWTH_MS - 1);
        assert!(!pace.has_room(1));
        for round in 1..=7 {
            pace.look(1_000 + round * GROWTH_MS);
            pace.look(1_001 + round * GROWTH_MS);
        }
        assert!(pace.has_room(WINDOW_MAX - 1) && !pace.has_room(WINDOW_MAX));
    }
}
