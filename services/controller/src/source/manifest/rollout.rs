//! Rollouts: from the pods of a workload that exist to the pods that exist next.
//!
//! Pure. The published pods and their statuses are the whole state, so a rollout continues where it
//! was after a restart and at a standby that takes over. Each kind follows the rules of its
//! controller in Kubernetes.
//!
//! | module | what it owns |
//! |---|---|
//! | `rule` | what a workload's spec asks of its rollout |
//! | `deployment` | `RollingUpdate` within maxSurge and maxUnavailable, `Recreate` |
//! | `replicas` | ReplicaSet and ReplicationController |
//! | `stateful_set` | one pod after another, in the order of the ordinals |
//! | `daemon_set` | a pod on each node, replaced within maxUnavailable |
//! | `job` | attempts until the Job is complete or has failed |

mod daemon_set;
mod deployment;
mod job;
mod replicas;
mod rule;
mod stateful_set;

use std::collections::{HashMap, HashSet};

use headwater_event::NodeName;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub(crate) use self::deployment::DeploymentProgress;
pub(crate) use self::job::JobCondition;
pub(crate) use self::rule::{Rule, RuleError};

/// A node reports a new pod, which is not Ready, within this time. Where the condition Ready is younger,
/// the pod was Ready before.
const FIRST_STATUS_WITHIN: SignedDuration = SignedDuration::from_secs(5);

/// A pod of a workload that exists: it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LivePod {
    /// Its name.
    pub(crate) name: String,
    /// Its node.
    pub(crate) node: Option<NodeName>,
    /// Whether it was made of the present template.
    pub(crate) is_current: bool,
    /// When it was made.
    pub(crate) created: Option<Timestamp>,
    /// Why its node ends it, as of a Job that has failed.
    pub(crate) ended: Option<String>,
    /// What its node reports.
    pub(crate) state: PodState,
}

/// What the node of a pod reports of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodState {
    /// How far its containers are.
    pub(crate) phase: Phase,
    /// Since when it is Ready, by its node's clock; `None`: it is not, or its node is unreachable.
    pub(crate) ready_since: Option<Timestamp>,
    /// Whether its node reports that it is not Ready. A pod of which nothing is known is neither.
    pub(crate) is_unready: bool,
    /// Whether it is Ready for its node, or ever was.
    pub(crate) was_ready: bool,
    /// Whether its node reports it at all.
    pub(crate) is_known: bool,
    /// How often its containers restarted.
    pub(crate) restarts: u64,
    /// When its last container ended, by its node's clock.
    pub(crate) finished: Option<Timestamp>,
}

/// How far the containers of a pod are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// They run, or will.
    #[default]
    Active,
    /// All ended well.
    Succeeded,
    /// All ended, one of them not well.
    Failed,
}

/// The pods of a workload that should exist next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rollout {
    /// The pods.
    pub(crate) pods: Vec<RolloutPod>,
    /// Whether no status of a pod changes the next decision.
    pub(crate) is_settled: bool,
    /// The condition of a Job that has ended or is suspended.
    pub(crate) condition: Option<JobCondition>,
    /// How far a Deployment is.
    pub(crate) progress: Option<DeploymentProgress>,
}

/// A pod that should exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RolloutPod {
    /// Its name.
    pub(crate) name: String,
    /// The node that it names, as a pod of a DaemonSet does.
    pub(crate) node: Option<NodeName>,
    /// What it is made of.
    pub(crate) content: PodContent,
}

/// What a pod is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodContent {
    /// The present template.
    Template,
    /// What is published of it.
    Published,
    /// What is published of it; its node ends it for this reason.
    Ended(&'static str),
}

/// What a rollout depends on.
pub(crate) struct RolloutContext<'a> {
    /// The pods that exist.
    pub(crate) pods: &'a [LivePod],
    /// Whether a node still reports a pod of this workload that does not exist any more.
    pub(crate) is_leaving: &'a dyn Fn() -> bool,
    /// The nodes on which a pod of a DaemonSet runs.
    pub(crate) nodes: &'a [NodeName],
    /// Names for new pods, in order, each once: of slots, or of the nodes of a DaemonSet.
    pub(crate) names: &'a mut dyn Iterator<Item = String>,
    /// The time, and when to look again.
    pub(crate) clock: &'a mut RolloutClock,
}

/// The time of a decision, and the time of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RolloutClock {
    now: Timestamp,
    next: Option<Timestamp>,
}

impl RolloutClock {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, next: None }
    }

    /// When a decision changes although no pod does.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// Whether `seconds` have passed since `from`; otherwise the decision is made again then.
    fn has_passed(&mut self, from: Timestamp, seconds: u64) -> bool {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let Ok(at) = from.checked_add(SignedDuration::from_secs(seconds)) else { return false };
        if at <= self.now {
            return true;
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        false
    }

    /// Whether `pod` has been Ready for `seconds`.
    fn is_available(&mut self, pod: &LivePod, seconds: u64) -> bool {
        match pod.state.ready_since {
            Some(_) if seconds == 0 => true,
            Some(since) => self.has_passed(since, seconds),
            None => false,
        }
    }
}

impl Rule {
    /// The pods that should exist next.
    pub(crate) fn roll(&self, context: RolloutContext<'_>) -> Rollout {
        match self {
            Self::Deployment(rule) => rule.roll(context),
            Self::Replicas(rule) => rule.roll(context),
            Self::StatefulSet(rule) => rule.roll(context),
            Self::DaemonSet(rule) => rule.roll(context),
            Self::Job(rule) => rule.roll(context),
        }
    }
}

impl PodState {
    /// The state that `status` shows of a pod; an unreachable node's pod is not Ready, as the node
    /// lifecycle controller marks it.
    pub(crate) fn of(status: &Value, is_reachable: bool) -> Self {
        let time = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let containers = || {
            ["initContainerStatuses", "containerStatuses"]
                .into_iter()
                .filter_map(|list| status[list].as_array())
                .flatten()
        };
        let phase = match status["phase"].as_str() {
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Active,
        };
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|one| one["type"] == "Ready");
        let ready = condition.filter(|condition| condition["status"] == "True");
        let is_unready = ready.is_none();
        let lost_ready = || {
            let changed: Timestamp = time(&condition?["lastTransitionTime"])?;
            let started: Timestamp = time(&status["startTime"])?;
            Some(changed.duration_since(started) >= FIRST_STATUS_WITHIN)
        };
        let was_ready = ready.is_some() || lost_ready().unwrap_or(false);
        let ready_since = ready
            .filter(|_| is_reachable && phase == Phase::Active)
            .map(|ready| time(&ready["lastTransitionTime"]).unwrap_or(Timestamp::UNIX_EPOCH));
        Self {
            phase,
            ready_since,
            is_unready,
            was_ready,
            is_known: true,
            restarts: containers().filter_map(|one| one["restartCount"].as_u64()).sum(),
            finished: containers()
                .filter_map(|one| time(&one["state"]["terminated"]["finishedAt"]))
                .max(),
        }
    }
}

impl RolloutPod {
    /// A pod that exists, as the present template has it or, of an earlier one, as it is published.
    fn kept(pod: &LivePod) -> Self {
        let content = if pod.is_current { PodContent::Template } else { PodContent::Published };
        Self { content, ..Self::published(pod) }
    }

    /// A pod that exists, as it is published.
    fn published(pod: &LivePod) -> Self {
        let (name, node) = (pod.name.clone(), pod.node.clone());
        Self { name, node, content: PodContent::Published }
    }

    /// A new pod.
    fn new(name: String) -> Self {
        Self { name, node: None, content: PodContent::Template }
    }
}

/// New pods under the first free names.
fn create(context: &mut RolloutContext<'_>, count: usize) -> Vec<RolloutPod> {
    let taken: HashSet<&str> = context.pods.iter().map(|pod| &*pod.name).collect();
    let free = (&mut *context.names).filter(|name| !taken.contains(&**name));
    free.take(count).map(RolloutPod::new).collect()
}

/// Keeps `count` of `pods`: those that are Ready before others, then those whose names are drawn first.
/// No new pod may be created in the same decision.
fn keep_best(pods: &mut Vec<&LivePod>, count: usize, context: &mut RolloutContext<'_>) {
    let names = (&mut *context.names).take(context.pods.len());
    let ranks: HashMap<String, usize> = names.zip(0..).collect();
    pods.sort_by_key(|pod| {
        let rank = ranks.get(&pod.name).copied().unwrap_or(usize::MAX);
        (pod.state.ready_since.is_none(), rank)
    });
    pods.truncate(count);
}

#[cfg(test)]
mod tests;
