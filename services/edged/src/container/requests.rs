//! What a pod requests of the node, and its limits: sums of its containers. Pure.
//!
//! The rules are those of Kubernetes (`k8s.io/component-helpers/resource`, `PodRequests` and `PodLimits`): containers
//! and sidecars run at the same time; an init container runs beside the sidecars before it, and the largest of these
//! moments counts; what the pod itself states of CPU and memory takes the place of the sum; its overhead comes on top.

use std::collections::BTreeMap;
use std::ops::Add;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity::{milli_value, value};
use crate::pod::{all_containers, init_containers, is_sidecar, main_containers};

/// The names of the resources that are counted.
pub const CPU: &str = "cpu";
/// See [`CPU`].
pub const MEMORY: &str = "memory";
/// See [`CPU`].
pub const STORAGE: &str = "ephemeral-storage";

/// Amounts of the resources that are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a processor.
    pub cpu_milli: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the file system of pods.
    pub storage_bytes: u64,
}

type Quantities = BTreeMap<String, Quantity>;

impl Amounts {
    /// Subtracts each amount; less than nothing is nothing.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            storage_bytes: self.storage_bytes.saturating_sub(other.storage_bytes),
        }
    }

    fn of(quantities: Option<&Quantities>) -> Self {
        let amount = |name, read: fn(&Quantity) -> Option<i64>| {
            let amount = quantities.and_then(|all| read(all.get(name)?));
            u64::try_from(amount.unwrap_or(0)).unwrap_or(0)
        };
        Self {
            cpu_milli: amount(CPU, milli_value),
            memory_bytes: amount(MEMORY, value),
            storage_bytes: amount(STORAGE, value),
        }
    }

    /// The larger one of each amount.
    fn max(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            storage_bytes: self.storage_bytes.max(other.storage_bytes),
        }
    }

    /// The amounts of `other` where it has any, and these elsewhere.
    fn replaced_by(self, other: Self) -> Self {
        let chosen = |own: u64, other: u64| if other > 0 { other } else { own };
        Self {
            cpu_milli: chosen(self.cpu_milli, other.cpu_milli),
            memory_bytes: chosen(self.memory_bytes, other.memory_bytes),
            ..self
        }
    }
}

impl Add for Amounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            storage_bytes: self.storage_bytes.saturating_add(other.storage_bytes),
        }
    }
}

/// What the pod requests of the node.
pub fn pod_requests(pod: &Pod) -> Amounts {
    sandbox_requests(pod) + overhead(pod)
}

/// What the pod requests for its containers alone, without its overhead.
pub fn sandbox_requests(pod: &Pod) -> Amounts {
    let own = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    sum(pod, container_requests).replaced_by(requests(own))
}

/// The sum of the limits that containers have, or the pod itself. A container without one counts nothing.
pub fn sandbox_limits(pod: &Pod) -> Amounts {
    let own = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.limits.as_ref());
    sum(pod, container_limits).replaced_by(Amounts::of(own))
}

/// The limits of the pod. Zero is no limit: so it is if one of its containers has none.
pub fn pod_limits(pod: &Pod) -> Amounts {
    let mut sum = sum(pod, container_limits);
    // A container without a limit may use all that there is.
    for container in all_containers(pod) {
        let own = container_limits(container);
        let bounded = |sum: u64, own: u64| if own == 0 { 0 } else { sum };
        sum.cpu_milli = bounded(sum.cpu_milli, own.cpu_milli);
        sum.memory_bytes = bounded(sum.memory_bytes, own.memory_bytes);
        sum.storage_bytes = bounded(sum.storage_bytes, own.storage_bytes);
    }
    let own = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.limits.as_ref());
    let (limits, overhead) = (sum.replaced_by(Amounts::of(own)), overhead(pod));
    let more = |limit: u64, overhead: u64| {
        if limit == 0 { 0 } else { limit.saturating_add(overhead) }
    };
    Amounts {
        cpu_milli: more(limits.cpu_milli, overhead.cpu_milli),
        memory_bytes: more(limits.memory_bytes, overhead.memory_bytes),
        storage_bytes: more(limits.storage_bytes, overhead.storage_bytes),
    }
}

/// The disk that the pod may take: the sum of the limits that its containers have. Zero is no limit.
pub(crate) fn pod_storage_limit(pod: &Pod) -> u64 {
    let sum = sum(pod, container_limits).storage_bytes;
    if sum == 0 { 0 } else { sum.saturating_add(overhead(pod).storage_bytes) }
}

/// What a container requests of the node.
pub fn container_requests(container: &Container) -> Amounts {
    requests(container.resources.as_ref())
}

/// The limits of a container. Zero is no limit.
pub fn container_limits(container: &Container) -> Amounts {
    Amounts::of(container.resources.as_ref().and_then(|own| own.limits.as_ref()))
}

/// A request that is not stated is the limit, as the API server sets it.
fn requests(resources: Option<&ResourceRequirements>) -> Amounts {
    let Some(resources) = resources else { return Amounts::default() };
    let stated = resources.requests.as_ref();
    let (of_requests, of_limits) = (Amounts::of(stated), Amounts::of(resources.limits.as_ref()));
    let is_stated = |name| stated.is_some_and(|stated| stated.contains_key(name));
    let chosen = |name, request, limit| if is_stated(name) { request } else { limit };
    Amounts {
        cpu_milli: chosen(CPU, of_requests.cpu_milli, of_limits.cpu_milli),
        memory_bytes: chosen(MEMORY, of_requests.memory_bytes, of_limits.memory_bytes),
        storage_bytes: chosen(STORAGE, of_requests.storage_bytes, of_limits.storage_bytes),
    }
}

/// What the runtime takes for the pod beside its containers.
pub fn overhead(pod: &Pod) -> Amounts {
    Amounts::of(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()))
}

fn sum(pod: &Pod, of: impl Fn(&Container) -> Amounts) -> Amounts {
    let mains = main_containers(pod).iter().map(&of).fold(Amounts::default(), Amounts::add);
    let (mut sidecars, mut at_start) = (Amounts::default(), Amounts::default());
    for container in init_containers(pod) {
        let own = of(container);
        let moment = sidecars + own;
        if is_sidecar(container) {
            sidecars = moment;
        }
        at_start = at_start.max(moment);
    }
    (mains + sidecars).max(at_start)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).expect("a pod")
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> Value {
        let mut container = container(cpu, memory);
        container["restartPolicy"] = json!("Always");
        container
    }

    fn amounts(cpu_milli: u64, memory_bytes: u64) -> Amounts {
        Amounts { cpu_milli, memory_bytes, storage_bytes: 0 }
    }

    #[test]
    fn a_pod_requests_the_most_that_its_containers_request_at_one_moment() {
        let two = [container("1", "10"), container("500m", "20")];
        for (spec, expected) in [
            (json!({"containers": two}), amounts(1500, 30)),
            (
                json!({"containers": two, "initContainers": [container("2", "5")]}),
                amounts(2000, 30),
            ),
            (json!({"containers": two, "initContainers": [sidecar("2", "5")]}), amounts(3500, 35)),
            // An init container runs beside the sidecars before it, and not beside those after it.
            (
                json!({"containers": two, "initContainers": [
                    sidecar("1", "5"), container("4", "1"), sidecar("1", "5")]}),
                amounts(5000, 40),
            ),
            (
                json!({"containers": two, "overhead": {"cpu": "250m", "memory": "7"}}),
                amounts(1750, 37),
            ),
            (
                json!({"containers": two, "resources": {"requests": {"cpu": "3"}}}),
                amounts(3000, 30),
            ),
            (
                json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}),
                amounts(2000, 0),
            ),
            (
                json!({"containers": [{"name": "a", "resources":
                    {"limits": {"cpu": "2"}, "requests": {"cpu": "0"}}}]}),
                amounts(0, 0),
            ),
            (json!({"containers": [{"name": "a"}]}), amounts(0, 0)),
        ] {
            assert_eq!(pod_requests(&pod(spec.clone())), expected, "{spec}");
        }
    }

    #[test]
    fn a_pod_has_a_limit_if_every_container_has_one() {
        let limited = |limits: Value| json!({"name": "c", "resources": {"limits": limits}});
        let both = limited(json!({"cpu": "1", "memory": "64"}));
        for (spec, expected) in [
            (json!({"containers": [both, both]}), amounts(2000, 128)),
            (json!({"containers": [both, limited(json!({"cpu": "1"}))]}), amounts(2000, 0)),
            (json!({"containers": [both], "initContainers": [{"name": "i"}]}), amounts(0, 0)),
            (
                json!({"containers": [both, {"name": "d"}],
                    "resources": {"limits": {"memory": "9"}}, "overhead": {"memory": "1"}}),
                amounts(0, 10),
            ),
        ] {
            assert_eq!(pod_limits(&pod(spec.clone())), expected, "{spec}");
        }
    }
}
