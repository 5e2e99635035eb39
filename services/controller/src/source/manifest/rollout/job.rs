//! A Job: pods that run to completion, up to so many at once, until enough succeed or too many fail.
//!
//! A pod that ended stays published, as in a cluster: it is the record of its attempt. A Job that
//! fails while pods run ends them through their deadline and marks them with the reason, so that
//! they are the record of the failure.

use jiff::Timestamp;

use super::{LivePod, Phase, PodContent, Rollout, RolloutContext, RolloutPod, create};

/// The wait after the first failed pod, in seconds; it doubles with each: Kubernetes' own.
const RETRY_SECONDS: u64 = 10;

/// The longest wait after a failed pod, in seconds: Kubernetes' own.
const RETRY_SECONDS_MAX: u64 = 600;

/// The reason of a Job of which too many pods failed.
const BACKOFF_LIMIT: &str = "BackoffLimitExceeded";

/// The reason of a Job that ran for too long.
const DEADLINE: &str = "DeadlineExceeded";

/// What a Job asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobRule {
    /// How many pods have to succeed; `None`: one, after which no other begins.
    pub(super) completions: Option<u64>,
    /// How many run at once.
    pub(super) parallelism: u64,
    /// How many may fail.
    pub(super) backoff_limit: u64,
    /// How long all may take, from the first pod on.
    pub(super) deadline_seconds: Option<u64>,
    pub(super) is_suspended: bool,
    /// Whether a failed container restarts in its pod, instead of in a new pod.
    pub(super) restarts_in_place: bool,
}

/// The state of a Job that makes no more pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobCondition {
    Complete,
    /// With the reason, as Kubernetes names it.
    Failed(String),
    Suspended,
}

/// The pods of a Job by their phase.
struct Attempts<'a> {
    active: Vec<&'a LivePod>,
    succeeded: Vec<&'a LivePod>,
    failed: Vec<&'a LivePod>,
}

impl JobRule {
    pub(super) fn roll(&self, mut context: RolloutContext<'_>) -> Rollout {
        // A Job with another template is another Job: the pods of the former one leave.
        let attempts = Attempts::of(context.pods);
        let ended = attempts.succeeded.iter().chain(&attempts.failed);
        let mut pods: Vec<RolloutPod> = ended.map(|pod| RolloutPod::published(pod)).collect();
        let condition = self.condition(&attempts, &mut context);
        match &condition {
            Some(JobCondition::Failed(reason)) => {
                let reason = if reason == DEADLINE { DEADLINE } else { BACKOFF_LIMIT };
                pods.extend(attempts.active.iter().map(|pod| {
                    let content = match pod.ended {
                        Some(_) => PodContent::Published,
                        None => PodContent::Ended(reason),
                    };
                    RolloutPod { content, ..RolloutPod::published(pod) }
                }));
            }
            Some(JobCondition::Complete | JobCondition::Suspended) => {}
            None => {
                let wanted = self.wanted_active(&attempts);
                let mut active = attempts.active.clone();
                active.sort_by_key(|pod| pod.state.ready_since.is_none());
                active.truncate(wanted);
                pods.extend(active.iter().map(|pod| RolloutPod::published(pod)));
                let missing = wanted - active.len();
                if missing > 0 && may_retry(&attempts, &mut context) {
                    pods.extend(create(&mut context, missing));
                }
            }
        }
        Rollout { pods, is_settled: condition.is_some(), condition, progress: None }
    }

    fn condition(
        &self,
        attempts: &Attempts<'_>,
        context: &mut RolloutContext<'_>,
    ) -> Option<JobCondition> {
        let succeeded = attempts.succeeded.len() as u64;
        let is_complete = match self.completions {
            Some(completions) => succeeded >= completions,
            None => succeeded > 0 && attempts.active.is_empty(),
        };
        let failed = |reason: &str| Some(JobCondition::Failed(reason.to_owned()));
        if let Some(reason) = attempts.all().find_map(|pod| pod.ended.as_deref()) {
            return failed(reason);
        }
        if is_complete {
            return Some(JobCondition::Complete);
        }
        if self.is_over_limit(attempts) {
            return failed(BACKOFF_LIMIT);
        }
        if self.is_suspended {
            return Some(JobCondition::Suspended);
        }
        let began = attempts.all().filter_map(|pod| pod.created).min()?;
        match self.deadline_seconds {
            Some(seconds) if context.clock.has_passed(began, seconds) => failed(DEADLINE),
            _ => None,
        }
    }

    fn is_over_limit(&self, attempts: &Attempts<'_>) -> bool {
        if attempts.failed.len() as u64 > self.backoff_limit {
            return true;
        }
        let restarts: u64 = attempts.active.iter().map(|pod| pod.state.restarts).sum();
        self.restarts_in_place && restarts > 0 && restarts >= self.backoff_limit
    }

    /// How many pods run now.
    fn wanted_active(&self, attempts: &Attempts<'_>) -> usize {
        let succeeded = attempts.succeeded.len() as u64;
        let wanted = match self.completions {
            Some(completions) => self.parallelism.min(completions - succeeded),
            None if succeeded > 0 => self.parallelism.min(attempts.active.len() as u64),
            None => self.parallelism,
        };
        usize::try_from(wanted).unwrap_or(usize::MAX)
    }
}

impl<'a> Attempts<'a> {
    fn of(pods: &'a [LivePod]) -> Self {
        let of = |phase| {
            pods.iter().filter(move |pod| pod.is_current && pod.state.phase == phase).collect()
        };
        Self {
            active: of(Phase::Active),
            succeeded: of(Phase::Succeeded),
            failed: of(Phase::Failed),
        }
    }

    fn all(&self) -> impl Iterator<Item = &&'a LivePod> {
        self.active.iter().chain(&self.succeeded).chain(&self.failed)
    }
}

/// Whether the wait after the last failed pods is over.
fn may_retry(attempts: &Attempts<'_>, context: &mut RolloutContext<'_>) -> bool {
    let ended = |pod: &&LivePod| pod.state.finished.or(pod.created);
    let last_success = attempts.succeeded.iter().filter_map(ended).max();
    let failures: Vec<Timestamp> = attempts
        .failed
        .iter()
        .filter_map(ended)
        .filter(|at| last_success.is_none_or(|success| *at > success))
        .collect();
    let Some(last) = failures.iter().max() else { return true };
    let doublings = u32::try_from(failures.len() - 1).unwrap_or(u32::MAX).min(16);
    let wait = (RETRY_SECONDS << doublings).min(RETRY_SECONDS_MAX);
    context.clock.has_passed(*last, wait)
}
