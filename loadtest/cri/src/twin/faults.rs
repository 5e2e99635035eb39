//! What goes wrong, by a seed.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// How long a slow call takes before it acts.
const SLOW: Duration = Duration::from_millis(300);

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call acts, and its answer is lost.
    LostAnswer,
    /// The call does not act.
    Refused,
    /// The call acts later.
    Slow(Duration),
}

/// How often each fault occurs, of 1000 calls or events.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// Calls that act, and whose answer is lost.
    pub lost_answers: u32,
    /// Calls that do not act.
    pub refused: u32,
    /// Calls that take 0.3 s longer.
    pub slow: u32,
    /// Events that do not come.
    pub lost_events: u32,
    /// Events that come twice.
    pub doubled_events: u32,
    /// Events that come after the next one.
    pub late_events: u32,
}

/// A fault of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFault {
    Lost,
    Doubled,
    Late,
}

/// The faults to come.
#[derive(Debug)]
pub(super) struct Faults {
    random: StdRng,
    rates: FaultRates,
    next: VecDeque<(&'static str, Fault)>,
}

impl Default for Faults {
    fn default() -> Self {
        let (rates, next) = (FaultRates::default(), VecDeque::new());
        Self { random: StdRng::seed_from_u64(0), rates, next }
    }
}

impl Faults {
    pub(super) fn set(&mut self, seed: u64, rates: FaultRates) {
        (self.random, self.rates) = (StdRng::seed_from_u64(seed), rates);
    }

    pub(super) fn fail_next(&mut self, method: &'static str, fault: Fault) {
        self.next.push_back((method, fault));
    }

    pub(super) fn has_planned(&self) -> bool {
        !self.next.is_empty()
    }

    pub(super) fn forget_planned(&mut self) {
        self.next.clear();
    }

    /// The fault of a call.
    pub(super) fn draw(&mut self, method: &str) -> Option<Fault> {
        if let Some(at) = self.next.iter().position(|(name, _)| *name == method) {
            return self.next.remove(at).map(|(_, fault)| fault);
        }
        let FaultRates { lost_answers, refused, slow, .. } = self.rates;
        let faults = [
            (lost_answers, Fault::LostAnswer),
            (refused, Fault::Refused),
            (slow, Fault::Slow(SLOW)),
        ];
        pick(&mut self.random, faults)
    }

    /// The fault of an event.
    pub(super) fn draw_event(&mut self) -> Option<EventFault> {
        let FaultRates { lost_events, doubled_events, late_events, .. } = self.rates;
        let faults = [
            (lost_events, EventFault::Lost),
            (doubled_events, EventFault::Doubled),
            (late_events, EventFault::Late),
        ];
        pick(&mut self.random, faults)
    }
}

/// One of the faults by their rates, each of 1000.
fn pick<T>(random: &mut StdRng, faults: [(u32, T); 3]) -> Option<T> {
    let mut left = random.random_range(0..1000_u32);
    for (rate, fault) in faults {
        if left < rate {
            return Some(fault);
        }
        left -= rate;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_and_each_of_them() {
        let rates = FaultRates { lost_answers: 200, refused: 200, slow: 200, ..Default::default() };
        let draw = |seed| {
            let mut faults = Faults::default();
            faults.set(seed, rates);
            (0..100).map(|_| faults.draw("Version")).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        for fault in [None, Some(Fault::LostAnswer), Some(Fault::Refused), Some(Fault::Slow(SLOW))]
        {
            assert!(draw(7).contains(&fault), "{fault:?}");
        }
    }

    #[test]
    fn a_fault_of_the_next_call_waits_for_its_method() {
        let mut faults = Faults::default();
        faults.fail_next("StartContainer", Fault::LostAnswer);
        assert_eq!(faults.draw("Version"), None);
        assert_eq!(faults.draw("StartContainer"), Some(Fault::LostAnswer));
        assert_eq!(faults.draw("StartContainer"), None);
    }
}
