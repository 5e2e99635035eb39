//! What may befall requests and watches, and the fate that chance gives one request.

use std::time::Duration;

use crate::chance::Chance;

/// What may befall requests and watches. Probabilities are per mille; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The longest way of a request or an answer, milliseconds.
    pub way_ms_max: u64,
    /// A request is lost before it acts.
    pub request_lost: u16,
    /// The answer is lost after the request acted.
    pub answer_lost: u16,
    /// Of the two, how many are silent rather than a closed connection.
    pub silent: u16,
    /// The server refuses a request for now: 429.
    pub throttled: u16,
    /// The server fails before the request acts: 503.
    pub unavailable: u16,
    /// The server fails after the request acted: 500.
    pub store_timeout: u16,
    /// An answer is slow, by up to [`Faults::slow_ms_max`].
    pub slow: u16,
    /// The longest time that a slow answer takes more, milliseconds.
    pub slow_ms_max: u64,
    /// A watch or a page is refused because its version is too old, although it is not: 410.
    pub expired: u16,
    /// A watch ends, at each of its events.
    pub watch_ends: u16,
    /// A watch is silent from one of its events on, without an end.
    pub watch_hangs: u16,
    /// The longest time that an event is on its way, milliseconds.
    pub event_ms_max: u64,
    /// How many versions a list of any version (`resourceVersion=0`) is behind at most.
    pub stale_versions_max: u64,
}

/// How long a lost request or answer is silent before its connection is closed.
pub(crate) const SILENCE: Duration = Duration::from_secs(120);

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Served,
    RequestLost { is_silent: bool },
    AnswerLost { is_silent: bool },
    Throttled,
    Unavailable,
    StoreTimeout,
    Expired,
}

/// A request's way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) there: Duration,
    pub(crate) back: Duration,
    pub(crate) fate: Fate,
}

impl Faults {
    /// Draws the way of one request.
    pub(crate) fn way(&self, chance: &mut Chance) -> Way {
        let there = self.delay(chance);
        let mut back = self.delay(chance);
        if chance.happens(self.slow) {
            back += Duration::from_millis(chance.below(self.slow_ms_max + 1));
        }
        Way { there, back, fate: self.fate(chance) }
    }

    fn delay(&self, chance: &mut Chance) -> Duration {
        if self.way_ms_max == 0 {
            return Duration::ZERO;
        }
        Duration::from_millis(chance.below(self.way_ms_max + 1))
    }

    fn fate(&self, chance: &mut Chance) -> Fate {
        if chance.happens(self.request_lost) {
            Fate::RequestLost { is_silent: chance.happens(self.silent) }
        } else if chance.happens(self.answer_lost) {
            Fate::AnswerLost { is_silent: chance.happens(self.silent) }
        } else if chance.happens(self.throttled) {
            Fate::Throttled
        } else if chance.happens(self.unavailable) {
            Fate::Unavailable
        } else if chance.happens(self.store_timeout) {
            Fate::StoreTimeout
        } else if chance.happens(self.expired) {
            Fate::Expired
        } else {
            Fate::Served
        }
    }
}
