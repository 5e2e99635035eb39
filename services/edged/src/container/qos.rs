//! The quality of service of a pod, from the requests and limits of its containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::container::downward_api::number;
use crate::pod::all_containers;

/// The resources that count.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// The quality of service of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    /// Every container may use exactly what it requests.
    Guaranteed,
    /// A container requests something, or is limited.
    Burstable,
    /// No container requests anything, and none is limited.
    BestEffort,
}

impl QosClass {
    /// The class, as Kubernetes computes it.
    pub fn of(pod: &Pod) -> Self {
        // What the pod itself states takes the place of what its containers state (KEP-2837).
        let own = pod.spec.as_ref().and_then(|spec| spec.resources.clone());
        let own = Container { resources: own, ..Container::default() };
        if RESOURCES.iter().any(|name| is_set(&own, name)) {
            return if is_guaranteed(&own) { Self::Guaranteed } else { Self::Burstable };
        }
        let sets_any = |container| RESOURCES.iter().any(|name| is_set(container, name));
        if !all_containers(pod).any(sets_any) {
            Self::BestEffort
        } else if all_containers(pod).all(is_guaranteed) {
            Self::Guaranteed
        } else {
            Self::Burstable
        }
    }

    /// The class as a pod's status has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

fn is_set(container: &Container, name: &str) -> bool {
    request(container, name).is_some() || limit(container, name).is_some()
}

/// Whether the container may use exactly what it requests.
fn is_guaranteed(container: &Container) -> bool {
    RESOURCES.iter().all(|name| {
        limit(container, name).is_some_and(|limit| {
            // A request that is not set is the limit, by the default of the API server.
            request(container, name).is_none_or(|request| (request - limit).abs() < f64::EPSILON)
        })
    })
}

fn request(container: &Container, name: &str) -> Option<f64> {
    amount(container.resources.as_ref()?.requests.as_ref(), name)
}

fn limit(container: &Container, name: &str) -> Option<f64> {
    amount(container.resources.as_ref()?.limits.as_ref(), name)
}

/// An amount above zero.
fn amount(resources: Option<&BTreeMap<String, Quantity>>, name: &str) -> Option<f64> {
    number(resources?.get(name)?).ok().filter(|amount| *amount > 0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let full = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
        let same = json!({"limits": {"cpu": "1", "memory": "64Mi"},
            "requests": {"cpu": "1000m", "memory": "65536Ki"}});
        let less = json!({"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "0.5"}});
        let half = json!({"limits": {"memory": "64Mi"}});
        let none = json!({});
        let zero = json!({"requests": {"cpu": "0"}, "limits": {"nvidia.com/gpu": 1}});
        for (all, wanted) in [
            ([&none, &none], "BestEffort"),
            ([&zero, &none], "BestEffort"),
            ([&full, &full], "Guaranteed"),
            ([&full, &same], "Guaranteed"),
            ([&full, &none], "Burstable"),
            ([&full, &less], "Burstable"),
            ([&half, &half], "Burstable"),
        ] {
            let container =
                |name: &str, resources: &Value| json!({"name": name, "resources": resources});
            let spec = json!({
                "initContainers": [container("init", all[0])],
                "containers": [container("main", all[1])],
            });
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            assert_eq!(QosClass::of(&pod).as_str(), wanted, "{all:?}");
        }
    }
}
