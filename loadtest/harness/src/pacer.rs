//! Acts at intended moments, whatever the system does (open loop), and knows how late it was.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use crate::latency::{Quantiles, histogram, record};

/// A run whose pacer was later than this at its 99th percentile is void.
pub const LAG_P99_MS_MAX: f64 = 1.0;

/// How late a pacer was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lag {
    /// How much later than intended it acted.
    #[serde(rename = "lag")]
    pub quantiles: Quantiles,
    /// Whether it had real-time priority, see [`pace`].
    #[serde(default)]
    pub real_time: bool,
}

impl Lag {
    /// The lag that is judged, in milliseconds: its 99th percentile, or its largest value where the
    /// samples carry none.
    pub fn judged_ms(&self) -> f64 {
        self.quantiles.p99_ms.or(self.quantiles.max_ms).unwrap_or_default()
    }

    /// Whether the pacer kept up: without that, what was measured is void.
    pub fn kept_up(&self) -> bool {
        self.judged_ms() <= LAG_P99_MS_MAX
    }
}

/// Gives each of `changes` to `act` at its moment, counted from `began`, and how late that is; lag
/// counts from `measured_from` on.
///
/// It has a thread of its own. Where this process may set it (root, `CAP_SYS_NICE`, or an RTPRIO
/// limit of at least 1) the thread is `SCHED_FIFO` at its lowest priority, before every thread of the
/// ordinary kind. So `act` must hardly do anything, and start no threads, which would inherit that.
///
/// # Errors
/// The first that `act` ends with.
///
/// # Panics
/// When `act` does, with what it says.
pub fn pace<T, E: Send>(
    began: Instant,
    measured_from: Duration,
    changes: impl IntoIterator<Item = (Duration, T)> + Send,
    mut act: impl FnMut(T, Duration) -> Result<(), E> + Send,
) -> Result<Lag, E> {
    punctual(|real_time| {
        let mut lag = histogram();
        for (at, change) in changes {
            let moment = began + at;
            thread::sleep(moment.saturating_duration_since(Instant::now()));
            let late = moment.elapsed();
            act(change, late)?;
            if at >= measured_from {
                record(&mut lag, late);
            }
        }
        Ok(Lag { quantiles: Quantiles::of(&lag), real_time })
    })
}

fn punctual<T: Send>(act: impl FnOnce(bool) -> T + Send) -> T {
    let thread = thread::scope(|scope| scope.spawn(|| act(to_real_time())).join());
    thread.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Makes the calling thread one of real time, and says whether that was permitted.
fn to_real_time() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use thread_priority::thread_schedule_policy;

    use super::*;

    #[test]
    fn only_the_thread_itself_is_one_of_real_time() {
        let fifo = Ok(ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo));
        let (told, is) = punctual(|told| (told, thread_schedule_policy() == fifo));
        assert_eq!(told, is);
        assert_ne!(thread_schedule_policy(), fifo);
    }

    #[test]
    fn a_stall_is_felt_by_all_that_it_delays() {
        let began = Instant::now();
        let turns = (1..=22).map(|turn| (Duration::from_millis(turn), turn));
        let mut acted = Vec::new();
        let lag = pace(began, Duration::from_millis(3), turns, |turn, _| {
            if turn == 5 {
                // Until long after the last moment.
                while began.elapsed() < Duration::from_millis(27) {
                    thread::yield_now();
                }
            }
            acted.push(turn);
            Ok::<_, Infallible>(())
        });
        let lag = lag.unwrap_or_else(|never| match never {});
        assert_eq!(acted, (1..=22).collect::<Vec<_>>());
        assert_eq!(lag.quantiles.count, 20, "what shows the way does not count");
        assert!(lag.quantiles.p50_ms.is_some_and(|p50| p50 >= 5.0) && !lag.kept_up());
    }

    #[test]
    fn a_lag_that_the_samples_do_not_carry_is_judged_by_its_worst() {
        let lag = |count, p99_ms, max_ms| Lag {
            quantiles: Quantiles { count, p99_ms, max_ms, ..Quantiles::default() },
            real_time: false,
        };
        assert!(lag(2_000, Some(0.9), Some(30.0)).kept_up());
        assert!(!lag(2_000, Some(1.1), Some(30.0)).kept_up());
        assert!(!lag(10, None, Some(1.1)).kept_up());
        assert!(lag(0, None, None).kept_up());
    }
}
