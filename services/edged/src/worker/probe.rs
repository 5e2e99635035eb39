//! Probes: check a container periodically, and signal the pod's worker when the verdict changes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::task::AbortHandle;

use super::handler::{Handler, Target};
use super::signal::{ProbeKind, Signal, Signals};

/// The verdict from the results of a probe: it changes after enough equal results in a row.
#[derive(Clone, Debug)]
struct Verdict {
    healthy: Option<bool>,
    in_a_row: (bool, u32),
    success_threshold: u32,
    failure_threshold: u32,
}

/// An active probe; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Prober(AbortHandle);

impl Drop for Prober {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// A kubelet's defaults.
const PERIOD_DEFAULT: Duration = Duration::from_secs(10);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
const FAILURE_THRESHOLD_DEFAULT: u32 = 3;
const SUCCESS_THRESHOLD_DEFAULT: u32 = 1;

impl Verdict {
    fn new(probe: &Probe) -> Self {
        let threshold = |given: Option<i32>, default| {
            given.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        Self {
            healthy: None,
            in_a_row: (false, 0),
            success_threshold: threshold(probe.success_threshold, SUCCESS_THRESHOLD_DEFAULT),
            failure_threshold: threshold(probe.failure_threshold, FAILURE_THRESHOLD_DEFAULT),
        }
    }

    /// Applies a result. Returns the verdict if it changed.
    fn apply(&mut self, healthy: bool) -> Option<bool> {
        let (last, count) = self.in_a_row;
        self.in_a_row = if last == healthy { (healthy, count + 1) } else { (healthy, 1) };
        let threshold = if healthy { self.success_threshold } else { self.failure_threshold };
        if self.in_a_row.1 < threshold || self.healthy == Some(healthy) {
            return None;
        }
        self.healthy = Some(healthy);
        self.healthy
    }
}

/// Starts the probe of this kind of a container that has run for `age`, if it has one.
pub(crate) fn start(
    kind: ProbeKind,
    container: &Container,
    target: &Target,
    attempt: u32,
    age: Duration,
    signals: Signals,
) -> Option<Prober> {
    let probe = kind.of(container)?;
    let handler = Handler::of_probe(probe)?;
    let mut verdict = Verdict::new(probe);
    let delay = seconds(probe.initial_delay_seconds).unwrap_or_default().saturating_sub(age);
    let period = seconds(probe.period_seconds).unwrap_or(PERIOD_DEFAULT);
    let timeout = seconds(probe.timeout_seconds).unwrap_or(TIMEOUT_DEFAULT);
    let target = target.clone();
    let task = tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A probe waits most of the time. Its request is boxed, and takes no memory meanwhile.
            let result = Box::pin(handler.run(&target, timeout)).await;
            let Some(healthy) = verdict.apply(result.is_ok()) else { continue };
            let container = target.container.clone();
            let message = result.err().unwrap_or_default();
            let signal = Signal::Probe { container, attempt, kind, healthy, message };
            if signals.send(Box::new(signal)).await.is_err() {
                return;
            }
        }
    });
    Some(Prober(task.abort_handle()))
}

fn seconds(given: Option<i32>) -> Option<Duration> {
    given.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_changes_only_after_enough_results_in_a_row() {
        let probe =
            Probe { failure_threshold: Some(3), success_threshold: Some(2), ..Probe::default() };
        let mut verdict = Verdict::new(&probe);
        let results = [true, true, true, false, false, true, false, false, false, false];
        let changes: Vec<_> = results.into_iter().map(|result| verdict.apply(result)).collect();
        let (good, bad) = (Some(true), Some(false));
        assert_eq!(changes, [None, good, None, None, None, None, None, None, bad, None]);
    }
}
