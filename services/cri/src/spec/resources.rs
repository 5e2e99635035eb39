//! The shares and limits of a container, and its place in the order of kills
//! (`kuberuntime_container_linux.go`, `pkg/kubelet/cm/helpers_linux.go`, `pkg/kubelet/qos/policy.go`).

use std::collections::BTreeMap;

use headwater_edged::container::qos::QosClass;
use headwater_edged::container::quantity::{milli_value, value};
use headwater_edged::pod::{is_sidecar, main_containers};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{NodeFacts, spec};
use crate::proto::{HugepageLimit, LinuxContainerResources};

/// The share of a whole CPU.
const SHARES_OF_CPU: i64 = 1024;

/// The least and the largest share that a kernel takes.
pub(super) const SHARES: (i64, i64) = (2, 262_144);

/// The period in which a quota is counted, in microseconds.
pub(super) const PERIOD_US: i64 = 100_000;

/// The least quota, in microseconds: the kernel takes no smaller one.
const QUOTA_US_MIN: i64 = 1000;

/// The adjustment of a pod that is killed last.
const KILLED_LAST: i64 = -997;

/// The adjustment of a pod that is killed first.
const KILLED_FIRST: i64 = 1000;

/// The class of pods without which a node does not work.
const NODE_CRITICAL: &str = "system-node-critical";

/// The least priority of such a pod, which the system alone gives.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The beginning of a resource of huge pages: its size follows.
const HUGE_PAGES: &str = "hugepages-";

/// The resources of a container. Without a limit of its own it has the pod's.
pub fn resources(pod: &Pod, container: &Container, node: &NodeFacts) -> LinuxContainerResources {
    let cpu_limit = limit(pod, container, "cpu").and_then(milli_value).unwrap_or(0).max(0);
    let requests = container.resources.as_ref().and_then(|own| own.requests.as_ref());
    // A request that is not stated is the limit, as the API server sets it.
    let cpu_request = requests.and_then(|requests| requests.get("cpu")).and_then(milli_value);
    let memory_limit = limit(pod, container, "memory").and_then(value).unwrap_or(0).max(0);
    LinuxContainerResources {
        cpu_period: PERIOD_US,
        cpu_quota: cpu_quota(cpu_limit),
        cpu_shares: cpu_shares(cpu_request.unwrap_or(cpu_limit)),
        memory_limit_in_bytes: memory_limit,
        memory_swap_limit_in_bytes: swap_limit(memory_limit, node),
        oom_score_adj: oom_score_adjust(pod, container, node.memory_bytes),
        hugepage_limits: huge_page_limits(pod, container, node),
        unified: unified(node),
        ..LinuxContainerResources::default()
    }
}

/// Memory and swap together: no container swaps (`ConfigureNoSwap`).
fn swap_limit(memory_limit: i64, node: &NodeFacts) -> i64 {
    if node.has_swap_limit && !node.has_cgroup_v2 { memory_limit } else { 0 }
}

/// The files of cgroup v2 without a field: a container that is killed for memory ends as a whole, and none swaps.
fn unified(node: &NodeFacts) -> super::StringMap {
    let group = node.has_cgroup_v2.then_some(("memory.oom.group", "1"));
    let swap = (node.has_cgroup_v2 && node.has_swap_limit).then_some(("memory.swap.max", "0"));
    let files = group.into_iter().chain(swap);
    files.map(|(file, content)| (file.to_owned(), content.to_owned())).collect()
}

/// `cpu.shares` of so many thousandths of a CPU (`MilliCPUToShares`).
pub fn cpu_shares(milli: i64) -> i64 {
    (milli.saturating_mul(SHARES_OF_CPU) / 1000).clamp(SHARES.0, SHARES.1)
}

/// `cpu.cfs_quota_us` of so many thousandths; zero is no limit (`MilliCPUToQuota`).
pub(super) fn cpu_quota(milli: i64) -> i64 {
    if milli == 0 { 0 } else { (milli.saturating_mul(PERIOD_US) / 1000).max(QUOTA_US_MIN) }
}

/// `oom_score_adj` by quality of service (`GetContainerOOMScoreAdjust`): a container that requests a
/// tenth of the memory has 900, so that it is killed when it uses more. A sidecar is not killed before
/// the containers that need it (KEP-753).
fn oom_score_adjust(pod: &Pod, container: &Container, memory_bytes: i64) -> i64 {
    let spec = spec(pod);
    let is_critical = spec.priority_class_name.as_deref() == Some(NODE_CRITICAL)
        && spec.priority.is_some_and(|priority| priority >= CRITICAL_PRIORITY);
    match QosClass::of(pod) {
        _ if is_critical => return KILLED_LAST,
        QosClass::Guaranteed => return KILLED_LAST,
        QosClass::BestEffort => return KILLED_FIRST,
        QosClass::Burstable => {}
    }
    let share = |bytes: i64| {
        let of = i128::from(memory_bytes.max(1));
        let share = i128::from(KILLED_FIRST) * i128::from(bytes.max(0)) / of;
        KILLED_FIRST.saturating_sub(i64::try_from(share).unwrap_or(i64::MAX))
    };
    let mut adjust = share(memory_request(container));
    if is_sidecar(container) {
        let least = main_containers(pod).iter().map(memory_request).min().unwrap_or(0);
        adjust = adjust.min(share(least));
    }
    // Above every guaranteed pod, and below every one that requests nothing.
    adjust.clamp(KILLED_FIRST + KILLED_LAST, KILLED_FIRST - 1)
}

fn memory_request(container: &Container) -> i64 {
    let requests = container.resources.as_ref().and_then(|own| own.requests.as_ref());
    requests.and_then(|requests| requests.get("memory")).and_then(value).unwrap_or(0)
}

/// The container's limit, else the pod's; one of zero is none.
fn limit<'p>(pod: &'p Pod, container: &'p Container, name: &str) -> Option<&'p Quantity> {
    let own = container.resources.as_ref().and_then(|own| own.limits.as_ref());
    let of_pod = spec(pod).resources.as_ref().and_then(|own| own.limits.as_ref());
    let of = |limits: Option<&'p BTreeMap<String, Quantity>>| {
        limits?.get(name).filter(|limit| value(limit) != Some(0))
    };
    of(own).or(of(of_pod))
}

/// A limit for every size of the kernel: none where the spec states none
/// (`GetHugepageLimitsFromResources`).
fn huge_page_limits(pod: &Pod, container: &Container, node: &NodeFacts) -> Vec<HugepageLimit> {
    let limits = |size: &String| {
        let own = container.resources.as_ref().and_then(|own| own.limits.as_ref());
        let of_pod = spec(pod).resources.as_ref().and_then(|own| own.limits.as_ref());
        let stated = own.into_iter().chain(of_pod).flatten();
        let mut of_size = stated.filter(|(name, _)| huge_page_size(name).as_ref() == Some(size));
        let limit = of_size.next().and_then(|(_, limit)| value(limit)).unwrap_or(0);
        HugepageLimit { page_size: size.clone(), limit: u64::try_from(limit).unwrap_or(0) }
    };
    node.huge_page_sizes.iter().map(limits).collect()
}

/// The size of a resource of huge pages as cgroups name it: `2MB` for `hugepages-2Mi`; `None` for
/// another resource.
pub(super) fn huge_page_size(resource: &str) -> Option<String> {
    let size = resource.strip_prefix(HUGE_PAGES)?;
    let mut bytes = u64::try_from(value(&Quantity(size.to_owned()))?).ok().filter(|it| *it > 0)?;
    let mut units = ["B", "KB", "MB", "GB", "TB", "PB"].into_iter();
    let mut unit = units.next()?;
    while bytes >= 1024 {
        let Some(next) = units.next() else { break };
        (bytes, unit) = (bytes / 1024, next);
    }
    Some(format!("{bytes}{unit}"))
}
