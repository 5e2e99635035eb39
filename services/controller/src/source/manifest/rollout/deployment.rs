//! A Deployment: its pods are replaced within maxSurge and maxUnavailable, or all at once, unless it is
//! paused.

use super::rule::Share;
use super::{LivePod, Rollout, RolloutContext, RolloutPod, create, keep_best};

/// What a Deployment asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeploymentRule {
    pub(super) replicas: u64,
    pub(super) strategy: DeploymentStrategy,
    pub(super) min_ready_seconds: u64,
    pub(super) is_paused: bool,
    pub(super) progress_deadline_seconds: u64,
}

/// How far the rollout of a Deployment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeploymentProgress {
    /// Its template takes no effect.
    Paused,
    /// It goes on, or is complete.
    Progressing,
    /// No new pod came and none became Ready for so long.
    Exceeded {
        /// The deadline.
        seconds: u64,
    },
}

/// How its pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeploymentStrategy {
    /// New pods come while at most so many more exist; old ones leave while enough are available.
    RollingUpdate { surge_max: Share, unavailable_max: Share },
    /// Every old pod leaves before the first new one comes.
    Recreate,
}

impl DeploymentRule {
    pub(super) fn roll(&self, mut context: RolloutContext<'_>) -> Rollout {
        if self.is_paused {
            return self.hold(&mut context);
        }
        let mut rollout = self.replace(&mut context);
        let progress = self.progress(&mut context);
        if matches!(progress, DeploymentProgress::Exceeded { .. }) {
            // The status of any pod may end it.
            rollout.is_settled = false;
        }
        rollout.progress = Some(progress);
        rollout
    }

    /// The pods of a paused Deployment: those that are there. A new scale takes effect, unless it asks
    /// for more pods of an earlier template, or for the first ones of all.
    fn hold(&self, context: &mut RolloutContext<'_>) -> Rollout {
        let replicas = usize::try_from(self.replicas).unwrap_or(usize::MAX);
        let mut pods: Vec<&LivePod> = context.pods.iter().collect();
        let are_current = pods.iter().all(|pod| pod.is_current);
        let are_old = pods.iter().all(|pod| !pod.is_current);
        let surge = if are_current || are_old { 0 } else { self.margins().0 };
        let missing = match are_current && !pods.is_empty() {
            true => replicas.saturating_sub(pods.len()),
            false => 0,
        };
        if pods.len() > replicas.saturating_add(surge) {
            keep_best(&mut pods, replicas.saturating_add(surge), context);
        }
        let mut next: Vec<RolloutPod> = pods.into_iter().map(RolloutPod::kept).collect();
        next.extend(create(context, missing));
        let progress = Some(DeploymentProgress::Paused);
        Rollout { pods: next, is_settled: true, progress, ..Rollout::default() }
    }

    /// How far the rollout is. It is under way while there are old pods, or new ones that were never
    /// Ready; its last progress is the last new pod that came or became Ready.
    fn progress(&self, context: &mut RolloutContext<'_>) -> DeploymentProgress {
        let is_new = |pod: &LivePod| !pod.is_current || !pod.state.was_ready;
        let is_under_way = context.pods.iter().any(is_new);
        // A controller that does not write the log knows no status.
        let is_known = context.pods.iter().any(|pod| pod.state.is_known);
        let current = context.pods.iter().filter(|pod| pod.is_current);
        let last = current.filter_map(|pod| pod.created.max(pod.state.ready_since)).max();
        let seconds = self.progress_deadline_seconds;
        match last {
            Some(last) if is_under_way && is_known && context.clock.has_passed(last, seconds) => {
                DeploymentProgress::Exceeded { seconds }
            }
            _ => DeploymentProgress::Progressing,
        }
    }

    fn replace(&self, context: &mut RolloutContext<'_>) -> Rollout {
        let pods = context.pods;
        let (mut current, mut old): (Vec<&LivePod>, Vec<&LivePod>) =
            pods.iter().partition(|pod| pod.is_current);
        let replicas = usize::try_from(self.replicas).unwrap_or(usize::MAX);
        let (surge_max, unavailable_max) = match self.strategy {
            DeploymentStrategy::Recreate => {
                // A node that still ends the last old pod keeps the first new one away.
                let waits =
                    !old.is_empty() || current.is_empty() && replicas > 0 && (context.is_leaving)();
                if waits {
                    let pods = current.into_iter().map(RolloutPod::kept).collect();
                    return Rollout { pods, ..Rollout::default() };
                }
                (0, replicas)
            }
            DeploymentStrategy::RollingUpdate { .. } => self.margins(),
        };
        if current.len() > replicas {
            keep_best(&mut current, replicas, context);
        }
        // Without old pods this is the first rollout or a new scale: all come at once.
        let new = if old.is_empty() {
            replicas - current.len()
        } else {
            let exist = current.len() + old.len();
            (replicas + surge_max).saturating_sub(exist).min(replicas - current.len())
        };
        let seconds = self.min_ready_seconds;
        let current_available =
            current.iter().filter(|pod| context.clock.is_available(pod, seconds)).count();
        let (mut stay, unavailable): (Vec<&LivePod>, Vec<&LivePod>) =
            old.drain(..).partition(|pod| context.clock.is_available(pod, seconds));
        let available_min = replicas.saturating_sub(unavailable_max);
        // Old pods that are not available leave first: their end takes nothing away. Together no
        // more leave than the new pods and the remaining old ones make up for.
        let leave_max =
            (current_available + stay.len() + unavailable.len()).saturating_sub(available_min);
        let unavailable_leave = leave_max.min(unavailable.len());
        let available_leave =
            (current_available + stay.len()).saturating_sub(available_min).min(stay.len());
        stay.truncate(stay.len() - available_leave);
        stay.extend(&unavailable[unavailable_leave..]);
        let is_settled = stay.is_empty() && current.len() + new == replicas;
        let mut next: Vec<RolloutPod> =
            current.iter().chain(&stay).map(|pod| RolloutPod::kept(pod)).collect();
        next.extend(create(context, new));
        Rollout { pods: next, is_settled, ..Rollout::default() }
    }

    /// How many pods there may be more, and how many may be missing: never both none.
    pub(super) fn margins(&self) -> (usize, usize) {
        let DeploymentStrategy::RollingUpdate { surge_max, unavailable_max } = self.strategy else {
            return (0, usize::MAX);
        };
        let surge = surge_max.of(self.replicas, true);
        let unavailable = match unavailable_max.of(self.replicas, false) {
            0 if surge == 0 => 1,
            unavailable => unavailable.min(self.replicas),
        };
        let count = |pods| usize::try_from(pods).unwrap_or(usize::MAX / 4);
        (count(surge), count(unavailable))
    }
}
