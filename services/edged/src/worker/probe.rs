//! Probes: check a container periodically, and signal the pod's worker when the verdict changes, or
//! the answer of a probe that fails.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::handler::{Handler, HandlerError, Target};
use super::probe_failure::ProbeFailure;
use super::probe_totals::ProbeCounter;
use super::signal::{ProbeFinding, ProbeKind, Signal, Signals};

/// The verdict from the results of a probe: it changes after enough equal results in a row.
#[derive(Clone, Debug)]
struct Verdict {
    healthy: Option<bool>,
    in_a_row: (bool, u32),
    success_threshold: u32,
    failure_threshold: u32,
}

/// The run of a container that is probed.
pub(crate) struct ProbedRun {
    /// Its number.
    pub(crate) attempt: u32,
    /// The time for which it has run.
    pub(crate) age: Duration,
    /// The failure of this probe that the worker knows, from an earlier run or an earlier worker.
    pub(crate) failing: Option<ProbeFailure>,
    /// Counts the results.
    pub(crate) counter: Arc<ProbeCounter>,
}

/// The results of a probe that the worker gets: each change of the verdict, and of a probe that fails the
/// changes of its answer, at a bounded rate.
#[derive(Debug)]
struct Findings {
    kind: ProbeKind,
    verdict: Verdict,
    /// The time of the first failure after the last success.
    failing_since: Option<Timestamp>,
    /// The failure that the worker knows.
    known: Option<ProbeFailure>,
    /// The time of the last failure that the worker got.
    reported_at: Option<Instant>,
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

/// The shortest time between two answers of a probe that fails, and between two warnings, so that an answer which is never the
/// same twice does not report the pod in every period.
const ANSWER_INTERVAL: Duration = Duration::from_secs(60);

/// Failures in a row of a container that was not healthy yet, before its status names them. One is
/// usual while a container starts.
const EARLY_FAILURES: u32 = 2;

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

impl Findings {
    fn new(kind: ProbeKind, probe: &Probe, known: Option<ProbeFailure>) -> Self {
        let failing_since = known.as_ref().map(|failure| failure.since);
        Self { kind, verdict: Verdict::new(probe), failing_since, known, reported_at: None }
    }

    /// Applies a result. Returns what the worker does not know.
    fn apply(
        &mut self,
        result: Result<(), String>,
        now: Instant,
        time: Timestamp,
    ) -> Option<ProbeFinding> {
        let has_changed = self.verdict.apply(result.is_ok()).is_some();
        let Err(answer) = result else {
            self.failing_since = None;
            if has_changed {
                self.known = None;
            }
            return has_changed.then_some(ProbeFinding::Healthy);
        };
        let since = *self.failing_since.get_or_insert(time);
        let failure = ProbeFailure::new(self.kind, since, &answer);
        if !has_changed && !self.is_answer_due(&failure, now) {
            return None;
        }
        self.known = Some(failure.clone());
        self.reported_at = Some(now);
        Some(match has_changed {
            true => ProbeFinding::Unhealthy(failure),
            false => ProbeFinding::StillFailing(failure),
        })
    }

    /// Whether the worker gets this answer, although the verdict is the same.
    fn is_answer_due(&self, failure: &ProbeFailure, now: Instant) -> bool {
        // A container is healthy until its liveness probe has failed often enough, and ends then.
        let is_unhealthy = self.kind != ProbeKind::Liveness && self.verdict.healthy != Some(true);
        let has_time = self.reported_at.is_none_or(|at| now.duration_since(at) >= ANSWER_INTERVAL);
        let is_new = self.known.as_ref() != Some(failure);
        is_unhealthy && is_new && has_time && self.verdict.in_a_row.1 >= EARLY_FAILURES
    }
}

/// Starts the probe of this kind of a container's run, if the container has one.
pub(crate) fn start(
    kind: ProbeKind,
    container: &Container,
    target: &Target,
    run: ProbedRun,
    signals: Signals,
) -> Option<Prober> {
    let ProbedRun { attempt, age, failing, counter } = run;
    let probe = kind.of(container)?;
    let handler = Handler::of_probe(probe)?;
    let mut findings = Findings::new(kind, probe, failing);
    let delay = seconds(probe.initial_delay_seconds).unwrap_or_default().saturating_sub(age);
    let period = seconds(probe.period_seconds).unwrap_or(PERIOD_DEFAULT);
    let timeout = seconds(probe.timeout_seconds).unwrap_or(TIMEOUT_DEFAULT);
    let target = target.clone();
    let task = tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut warned_at: Option<Instant> = None;
        loop {
            ticks.tick().await;
            // A probe waits most of the time. Its request is boxed, and takes no memory meanwhile.
            let result = match Box::pin(handler.run(&target, timeout)).await {
                Ok(warning) => Ok(warning),
                Err(HandlerError::Failed(why)) => Err(why),
                // As a kubelet: a runtime that is away says nothing of its containers.
                Err(HandlerError::NotRun(why)) => {
                    tracing::debug!(container = target.container, why, "a probe did not run");
                    continue;
                }
            };
            counter.count(result.is_ok());
            let now = Instant::now();
            let may_warn = warned_at.is_none_or(|at| now.duration_since(at) >= ANSWER_INTERVAL);
            let warning = result.as_ref().ok().cloned().flatten().filter(|_| may_warn);
            if warning.is_some() {
                warned_at = Some(now);
            }
            let finding = findings.apply(result.map(drop), now, Timestamp::now());
            let container = || target.container.clone();
            let warning = warning.map(|message| Signal::ProbeWarning {
                container: container(),
                kind,
                message,
            });
            let finding = finding.map(|finding| {
                let container = container();
                Signal::Probe { container, attempt, kind, finding }
            });
            for signal in warning.into_iter().chain(finding) {
                if signals.send(Box::new(signal)).await.is_err() {
                    return;
                }
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

    fn findings(kind: ProbeKind, failure_threshold: i32) -> Findings {
        let probe = Probe { failure_threshold: Some(failure_threshold), ..Probe::default() };
        Findings::new(kind, &probe, None)
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn failed(answer: &str) -> Result<(), String> {
        Err(answer.to_owned())
    }

    #[test]
    fn an_equal_answer_is_reported_once_and_another_one_once_a_minute() {
        let start = Instant::now();
        let mut findings = findings(ProbeKind::Readiness, 1);
        let mut reported = Vec::new();
        for second in 0..300_u64 {
            let answer = if second < 100 { "same".to_owned() } else { second.to_string() };
            let now = start + Duration::from_secs(second);
            if let Some(finding) = findings.apply(Err(answer), now, at(second)) {
                reported.push((second, finding));
            }
        }
        let failure = |answer: &str| ProbeFailure::new(ProbeKind::Readiness, at(0), answer);
        let unhealthy = ProbeFinding::Unhealthy(failure("same"));
        let again =
            |second: u64| (second, ProbeFinding::StillFailing(failure(&second.to_string())));
        assert_eq!(reported, [(0, unhealthy), again(100), again(160), again(220), again(280)]);
    }

    #[test]
    fn a_container_that_is_not_ready_yet_has_the_answer_of_its_second_failure() {
        let now = Instant::now();
        let mut findings = findings(ProbeKind::Readiness, 100);
        assert_eq!(findings.apply(failed("no"), now, at(1)), None, "it may start");
        let failure = ProbeFailure::new(ProbeKind::Readiness, at(1), "no");
        let still = Some(ProbeFinding::StillFailing(failure));
        assert_eq!(findings.apply(failed("no"), now, at(2)), still);
        assert_eq!(findings.apply(failed("no"), now, at(3)), None);
        assert_eq!(findings.apply(Ok(()), now, at(4)), Some(ProbeFinding::Healthy));
        for second in 5..100 {
            assert_eq!(findings.apply(failed("no"), now, at(second)), None, "it is healthy yet");
        }
    }

    #[test]
    fn a_liveness_probe_is_reported_once_it_has_failed_often_enough() {
        let now = Instant::now();
        let mut findings = findings(ProbeKind::Liveness, 3);
        assert_eq!(findings.apply(failed("no"), now, at(1)), None);
        assert_eq!(findings.apply(failed("no"), now, at(2)), None);
        let failure = ProbeFailure::new(ProbeKind::Liveness, at(1), "no");
        let unhealthy = Some(ProbeFinding::Unhealthy(failure));
        assert_eq!(findings.apply(failed("no"), now, at(3)), unhealthy);
    }

    #[test]
    fn a_failure_that_an_earlier_worker_reported_keeps_its_beginning() {
        let known = ProbeFailure::new(ProbeKind::Readiness, at(1), "no");
        let probe = Probe::default();
        let mut findings = Findings::new(ProbeKind::Readiness, &probe, Some(known.clone()));
        let now = Instant::now();
        let mut reported =
            (9..12).filter_map(|second| findings.apply(failed("no"), now, at(second)));
        assert_eq!(reported.next(), Some(ProbeFinding::Unhealthy(known)));
        assert_eq!(reported.next(), None);
    }
}
