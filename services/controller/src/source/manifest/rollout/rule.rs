//! What the spec of a workload asks of its rollout, with the defaults of Kubernetes.

use serde_json::Value;

use super::daemon_set::DaemonSetRule;
use super::deployment::{DeploymentRule, DeploymentStrategy};
use super::job::JobRule;
use super::replicas::ReplicasRule;
use super::stateful_set::StatefulSetRule;

/// The largest number of pods, attempts or seconds of a spec: Kubernetes' numbers are 32 bits.
const NUMBER_MAX: u64 = i32::MAX as u64;

/// How long the rollout of a Deployment may make no progress, where its spec has no other time.
const PROGRESS_DEADLINE_SECONDS: u64 = 600;

/// What a workload's spec asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Deployment(DeploymentRule),
    Replicas(ReplicasRule),
    StatefulSet(StatefulSetRule),
    DaemonSet(DaemonSetRule),
    Job(JobRule),
}

/// A field of a spec that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.{field} is {found}, want {wanted}")]
pub(crate) struct RuleError {
    /// The path of the field in the spec.
    pub(crate) field: &'static str,
    /// What it holds.
    pub(crate) found: Value,
    /// What it may hold.
    pub(crate) wanted: &'static str,
}

/// A number of pods, or a part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    Count(u64),
    Percent(u64),
}

impl Share {
    /// A quarter: the default of a Deployment.
    pub(super) const QUARTER: Self = Self::Percent(25);

    /// The number of pods out of `whole`.
    pub(super) fn of(self, whole: u64, rounds_up: bool) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) if rounds_up => (percent * whole).div_ceil(100),
            Self::Percent(percent) => percent * whole / 100,
        }
    }

    pub(super) fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

impl Rule {
    /// The rule of a Deployment of `replicas` pods.
    pub(crate) fn deployment(spec: &Value, replicas: u64) -> Result<Self, RuleError> {
        let strategy = &spec["strategy"];
        let rolling = &strategy["rollingUpdate"];
        let strategy = match strategy["type"].as_str() {
            None if strategy["type"].is_null() => rolling_update(rolling)?,
            Some("RollingUpdate") => rolling_update(rolling)?,
            Some("Recreate") => DeploymentStrategy::Recreate,
            _ => return refuse("strategy.type", &strategy["type"], "RollingUpdate or Recreate"),
        };
        let deadline = number("progressDeadlineSeconds", &spec["progressDeadlineSeconds"])?;
        Ok(Self::Deployment(DeploymentRule {
            replicas,
            strategy,
            min_ready_seconds: min_ready_seconds(spec)?,
            is_paused: spec["paused"] == Value::Bool(true),
            progress_deadline_seconds: deadline.unwrap_or(PROGRESS_DEADLINE_SECONDS),
        }))
    }

    /// The rule of a ReplicaSet or ReplicationController of `replicas` pods.
    pub(crate) fn replicas(replicas: u64) -> Self {
        Self::Replicas(ReplicasRule { replicas })
    }

    /// The rule of a StatefulSet of `replicas` pods.
    pub(crate) fn stateful_set(spec: &Value, replicas: u64) -> Result<Self, RuleError> {
        let policy = &spec["podManagementPolicy"];
        let is_parallel = match policy.as_str() {
            None if policy.is_null() => false,
            Some("OrderedReady") => false,
            Some("Parallel") => true,
            _ => return refuse("podManagementPolicy", policy, "OrderedReady or Parallel"),
        };
        let strategy = &spec["updateStrategy"];
        let partition = &strategy["rollingUpdate"]["partition"];
        let first_updated = match strategy["type"].as_str() {
            None if strategy["type"].is_null() => Some(()),
            Some("RollingUpdate") => Some(()),
            Some("OnDelete") => None,
            _ => return refuse("updateStrategy.type", &strategy["type"], ROLLING_OR_ON_DELETE),
        };
        let partition = number("updateStrategy.rollingUpdate.partition", partition)?.unwrap_or(0);
        Ok(Self::StatefulSet(StatefulSetRule {
            replicas,
            first_ordinal: spec["ordinals"]["start"].as_u64().unwrap_or(0),
            is_parallel,
            partition: first_updated.map(|()| partition),
            min_ready_seconds: min_ready_seconds(spec)?,
        }))
    }

    /// The rule of a DaemonSet.
    pub(crate) fn daemon_set(spec: &Value) -> Result<Self, RuleError> {
        let strategy = &spec["updateStrategy"];
        let rolling = &strategy["rollingUpdate"];
        let unavailable_max = match strategy["type"].as_str() {
            Some("OnDelete") => None,
            None if !strategy["type"].is_null() => {
                return refuse("updateStrategy.type", &strategy["type"], ROLLING_OR_ON_DELETE);
            }
            None | Some("RollingUpdate") => {
                let field = "updateStrategy.rollingUpdate.maxUnavailable";
                let unavailable = share(field, &rolling["maxUnavailable"])?;
                let field = "updateStrategy.rollingUpdate.maxSurge";
                let surge = share(field, &rolling["maxSurge"])?.filter(|surge| !surge.is_zero());
                match (unavailable, surge) {
                    (None, None) => Some(Share::Count(1)),
                    // A node runs one pod of a DaemonSet at a time here.
                    (_, Some(surge)) => Some(surge),
                    (Some(unavailable), None) if unavailable.is_zero() => {
                        let field = "updateStrategy.rollingUpdate.maxUnavailable";
                        return refuse(field, &rolling["maxUnavailable"], "more than 0");
                    }
                    (Some(unavailable), None) => Some(unavailable),
                }
            }
            Some(_) => {
                return refuse("updateStrategy.type", &strategy["type"], ROLLING_OR_ON_DELETE);
            }
        };
        let min_ready_seconds = min_ready_seconds(spec)?;
        Ok(Self::DaemonSet(DaemonSetRule { unavailable_max, min_ready_seconds }))
    }

    /// The rule of a Job. Its numbers of pods are checked by the caller.
    pub(crate) fn job(
        spec: &Value,
        completions: Option<u64>,
        parallelism: Option<u64>,
    ) -> Result<Self, RuleError> {
        Ok(Self::Job(JobRule {
            // Without either, one pod runs once.
            completions: if parallelism.is_none() { completions.or(Some(1)) } else { completions },
            parallelism: parallelism.unwrap_or(1),
            backoff_limit: number("backoffLimit", &spec["backoffLimit"])?.unwrap_or(6),
            deadline_seconds: number("activeDeadlineSeconds", &spec["activeDeadlineSeconds"])?,
            is_suspended: spec["suspend"] == Value::Bool(true),
            restarts_in_place: spec["template"]["spec"]["restartPolicy"] == "OnFailure",
        }))
    }

    /// How many pods the spec asks for; `None` where the nodes decide.
    pub(crate) fn wanted(&self) -> Option<u64> {
        match self {
            Self::Deployment(rule) => Some(rule.replicas),
            Self::Replicas(rule) => Some(rule.replicas),
            Self::StatefulSet(rule) => Some(rule.replicas),
            Self::DaemonSet(_) => None,
            Self::Job(rule) => rule.completions,
        }
    }

    /// How many seconds a pod is Ready before it counts as available.
    pub(crate) fn min_ready_seconds(&self) -> u64 {
        match self {
            Self::Deployment(rule) => rule.min_ready_seconds,
            Self::StatefulSet(rule) => rule.min_ready_seconds,
            Self::DaemonSet(rule) => rule.min_ready_seconds,
            Self::Replicas(_) | Self::Job(_) => 0,
        }
    }
}

const ROLLING_OR_ON_DELETE: &str = "RollingUpdate or OnDelete";

fn rolling_update(rolling: &Value) -> Result<DeploymentStrategy, RuleError> {
    let surge = share("strategy.rollingUpdate.maxSurge", &rolling["maxSurge"])?;
    let field = "strategy.rollingUpdate.maxUnavailable";
    let unavailable = share(field, &rolling["maxUnavailable"])?;
    let surge_max = surge.unwrap_or(Share::QUARTER);
    let unavailable_max = unavailable.unwrap_or(Share::QUARTER);
    if surge_max.is_zero() && unavailable_max.is_zero() {
        let wanted = "more than 0 where maxSurge is 0";
        return refuse(field, &rolling["maxUnavailable"], wanted);
    }
    Ok(DeploymentStrategy::RollingUpdate { surge_max, unavailable_max })
}

fn min_ready_seconds(spec: &Value) -> Result<u64, RuleError> {
    Ok(number("minReadySeconds", &spec["minReadySeconds"])?.unwrap_or(0))
}

fn number(field: &'static str, found: &Value) -> Result<Option<u64>, RuleError> {
    if found.is_null() {
        return Ok(None);
    }
    match found.as_u64().filter(|number| *number <= NUMBER_MAX) {
        Some(number) => Ok(Some(number)),
        None => refuse(field, found, "a number from 0 to 2147483647"),
    }
}

fn share(field: &'static str, found: &Value) -> Result<Option<Share>, RuleError> {
    let percent = |text: &str| text.strip_suffix('%')?.parse().ok();
    let share = match found {
        Value::Null => return Ok(None),
        Value::String(text) => percent(text).filter(|percent| *percent <= 100).map(Share::Percent),
        found => found.as_u64().filter(|count| *count <= NUMBER_MAX).map(Share::Count),
    };
    match share {
        Some(share) => Ok(Some(share)),
        None => refuse(field, found, "a number of pods, or a percentage as \"25%\""),
    }
}

fn refuse<T>(field: &'static str, found: &Value, wanted: &'static str) -> Result<T, RuleError> {
    Err(RuleError { field, found: found.clone(), wanted })
}
