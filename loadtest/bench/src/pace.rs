//! Open loop: every change has its moment from the beginning, and its latency counts from there, not
//! from its sending. A stall shows in every change that it delays.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use headwater_loadtest::latency::histogram;
use headwater_loadtest::punctual::punctual;

use crate::failure::Failure;

/// From when on what is measured counts.
const BEGINS_IN: Duration = Duration::from_millis(100);

/// The moments of `count` turns, `per_second` of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    began: Instant,
    per_second: u32,
    pub(crate) count: u64,
    /// The first turns show the way and do not count.
    pub(crate) warm_up: u64,
}

impl Pace {
    /// Begins in a moment.
    pub(crate) fn new(per_second: u32, count: u64, warm_up: u64) -> Self {
        Self { began: Instant::now() + BEGINS_IN, per_second, count: count + warm_up, warm_up }
    }

    /// The same, beginning in a moment from now.
    pub(crate) fn again(self) -> Self {
        Self { began: Instant::now() + BEGINS_IN, ..self }
    }

    /// The moment of `turn`, from 1.
    pub(crate) fn moment(&self, turn: u64) -> Instant {
        self.began + Duration::from_secs(turn) / self.per_second
    }

    /// How long after its moment it is now.
    pub(crate) fn since(&self, turn: u64) -> Duration {
        Instant::now().saturating_duration_since(self.moment(turn))
    }

    /// Says every turn at its moment. Gives how late each was: the generator's own lag.
    ///
    /// # Errors
    /// The first that saying one ends with.
    pub(crate) fn drive(
        &self,
        mut say: impl FnMut(u64) -> Result<(), Failure> + Send,
    ) -> Result<Latency, Failure> {
        punctual(|_| {
            let mut lag = Latency::new();
            for turn in 1..=self.count {
                thread::sleep(self.moment(turn).saturating_duration_since(Instant::now()));
                let late = self.since(turn);
                say(turn)?;
                if turn > self.warm_up {
                    lag.record(late);
                }
            }
            Ok(lag)
        })
    }
}

/// A distribution of times, of the range and the digits that load tests have.
#[derive(Clone, Debug)]
pub(crate) struct Latency(Histogram<u64>);

impl Latency {
    pub(crate) fn new() -> Self {
        Self(histogram())
    }

    pub(crate) fn record(&mut self, taken: Duration) {
        self.0.saturating_record(u64::try_from(taken.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many times were recorded.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time within which this part of all came, in milliseconds.
    pub(crate) fn ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_felt_by_all_that_it_delays() {
        let pace = Pace::new(1_000, 20, 2);
        let mut said = Vec::new();
        let lag = pace.drive(|turn| {
            if turn == 5 {
                // Until long after the last moment.
                while pace.since(22) < Duration::from_millis(5) {
                    thread::yield_now();
                }
            }
            said.push(turn);
            Ok(())
        });
        let lag = lag.expect("nothing fails");
        assert_eq!(said, (1..=22).collect::<Vec<_>>());
        assert_eq!(lag.count(), 20, "what shows the way does not count");
        assert!(lag.ms(0.5) >= 5.0, "{}", lag.ms(0.5));
    }
}
