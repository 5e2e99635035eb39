//! The shares and limits of a pod's own cgroup, which bound its containers and its volumes in memory together
//! (`pkg/kubelet/cm/helpers_linux.go`, `ResourceConfigForPod`).

use headwater_edged::container::qos::QosClass;
use headwater_edged::container::requests::{
    Amounts, overhead, pod_limits, pod_requests, sandbox_limits, sandbox_requests,
};
use headwater_edged::exclusive_cpus;
use headwater_edged::pod::all_containers;
use k8s_openapi::api::core::v1::Pod;

use super::resources::{PERIOD_US, SHARES, cpu_quota, cpu_shares};
use crate::proto::LinuxContainerResources;

/// What a pod's cgroup is asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodResources {
    /// `cpu.shares`.
    pub cpu_shares: i64,
    /// `cpu.cfs_quota_us`; `None`: no limit.
    pub cpu_quota_us: Option<i64>,
    /// `cpu.cfs_period_us`.
    pub cpu_period_us: i64,
    /// `memory.limit_in_bytes`; `None`: no limit.
    pub memory_limit_bytes: Option<i64>,
}

/// The resources of a pod. Without a limit on each of its containers, and none of its own, it has no limit.
///
/// `has_static_cpus`: a container that has processors for itself has no quota, which would only let it wait on them, and
/// neither has its pod.
pub fn pod_resources(pod: &Pod, has_static_cpus: bool) -> PodResources {
    let whole = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let (requests, limits) = (pod_requests(pod), pod_limits(pod));
    let none = PodResources {
        cpu_shares: SHARES.0,
        cpu_quota_us: None,
        cpu_period_us: PERIOD_US,
        memory_limit_bytes: None,
    };
    if QosClass::of(pod) == QosClass::BestEffort {
        return none;
    }
    let is_exclusive = has_static_cpus && all_containers(pod).any(|it| exclusive_cpus(pod, it) > 0);
    PodResources {
        cpu_shares: cpu_shares(whole(requests.cpu_milli)),
        cpu_quota_us: Some(cpu_quota(whole(limits.cpu_milli)))
            .filter(|quota| *quota > 0 && !is_exclusive),
        memory_limit_bytes: Some(whole(limits.memory_bytes)).filter(|limit| *limit > 0),
        ..none
    }
}

/// The sums of the containers, for a runtime that gives a pod a machine of its own
/// (`kuberuntime_sandbox_linux.go`, `calculateSandboxResources`).
pub(super) fn sandbox_resources(pod: &Pod) -> LinuxContainerResources {
    linux_resources(sandbox_requests(pod), sandbox_limits(pod))
}

/// What that machine takes for itself.
pub(super) fn overhead_resources(pod: &Pod) -> Option<LinuxContainerResources> {
    pod.spec.as_ref()?.overhead.as_ref()?;
    Some(linux_resources(overhead(pod), overhead(pod)))
}

fn linux_resources(requests: Amounts, limits: Amounts) -> LinuxContainerResources {
    let whole = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: cpu_quota(whole(limits.cpu_milli)),
        cpu_shares: cpu_shares(whole(requests.cpu_milli)),
        memory_limit_in_bytes: whole(limits.memory_bytes),
        ..LinuxContainerResources::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pods_cgroup_has_the_sums_of_its_containers() {
        let of = |resources: &Value| json!({"name": "c", "resources": resources});
        let full = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
        let half = json!({"requests": {"cpu": "250m"}, "limits": {"memory": "1Mi"}});
        let (none, whole) = (json!({}), json!({"limits": {"cpu": "1", "memory": "7Mi"}}));
        for (containers, own, shares, quota, memory) in [
            ([&full, &full], &none, 1024, Some(100_000), Some(128 << 20)),
            ([&full, &half], &none, 768, None, Some(65 << 20)),
            ([&full, &none], &none, 512, None, None),
            ([&none, &none], &none, 2, None, None),
            ([&none, &none], &whole, 1024, Some(100_000), Some(7 << 20)),
        ] {
            let spec = json!({"containers": containers.map(of), "resources": own});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            let found = pod_resources(&pod, false);
            assert_eq!(
                (found.cpu_shares, found.cpu_quota_us, found.memory_limit_bytes),
                (shares, quota, memory),
                "{pod:?}"
            );
        }
    }
}
