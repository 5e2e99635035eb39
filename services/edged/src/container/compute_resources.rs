//! The processor time and the memory of a container: the resources that change while it runs. Pure.
//!
//! The rules are those of Kubernetes (KEP-1287, in-place update of pod resources): requests and limits of CPU and memory
//! change, and `resizePolicy` names the resources whose change demands a restart of the container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity::{milli_value, value};
use super::requests::{CPU, MEMORY};
use crate::pod::all_containers;

/// The value of `resizePolicy` that demands a restart; by default a container runs on.
const RESTART: &str = "RestartContainer";

/// A request and a limit, as far as they are stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds {
    request: Option<i64>,
    limit: Option<i64>,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputeResources {
    /// In thousandths of a processor.
    cpu: Bounds,
    /// In bytes.
    memory: Bounds,
}

/// How a running container gets other resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResizeMode {
    /// It runs on.
    InPlace,
    /// It ends, and starts again.
    Restart,
}

type Quantities = BTreeMap<String, Quantity>;

impl ComputeResources {
    /// The resources that a container's spec states.
    pub fn of(container: &Container) -> Self {
        container.resources.as_ref().map(Self::of_requirements).unwrap_or_default()
    }

    /// The resources that these requirements state.
    pub fn of_requirements(requirements: &ResourceRequirements) -> Self {
        let bounds = |name, read: fn(&Quantity) -> Option<i64>| {
            let of = |stated: &Option<Quantities>| read(stated.as_ref()?.get(name)?);
            Bounds { request: of(&requirements.requests), limit: of(&requirements.limits) }
        };
        Self { cpu: bounds(CPU, milli_value), memory: bounds(MEMORY, value) }
    }

    /// The same requirements with these resources of CPU and memory. What is equal keeps its spelling.
    pub(crate) fn within(self, requirements: &ResourceRequirements) -> ResourceRequirements {
        let stated = Self::of_requirements(requirements);
        let mut changed = requirements.clone();
        let mut set = |name: &str, own: Bounds, stated: Bounds, print: fn(i64) -> String| {
            let pairs = [
                (&mut changed.requests, own.request, stated.request),
                (&mut changed.limits, own.limit, stated.limit),
            ];
            for (quantities, own, _) in pairs.into_iter().filter(|(_, own, stated)| own != stated) {
                let quantities = quantities.get_or_insert_default();
                match own {
                    Some(amount) => quantities.insert(name.to_owned(), Quantity(print(amount))),
                    None => quantities.remove(name),
                };
            }
        };
        set(CPU, self.cpu, stated.cpu, |milli| match milli % 1000 {
            0 => (milli / 1000).to_string(),
            _ => format!("{milli}m"),
        });
        set(MEMORY, self.memory, stated.memory, |bytes| bytes.to_string());
        changed
    }
}

/// How a container that runs with the resources `before` gets those of its spec; `None`: it has them.
pub(crate) fn resize_mode(container: &Container, before: ComputeResources) -> Option<ResizeMode> {
    let wanted = ComputeResources::of(container);
    let restarts = |resource| {
        let policies = container.resize_policy.iter().flatten();
        let mut own = policies.filter(|policy| policy.resource_name == resource);
        own.any(|policy| policy.restart_policy == RESTART)
    };
    let needs_restart = (wanted.cpu != before.cpu && restarts(CPU))
        || (wanted.memory != before.memory && restarts(MEMORY));
    match wanted != before {
        false => None,
        true if needs_restart => Some(ResizeMode::Restart),
        true => Some(ResizeMode::InPlace),
    }
}

/// Whether any container of both pods has other resources.
pub(crate) fn is_resized(before: &Pod, after: &Pod) -> bool {
    all_containers(after).any(|container| {
        let before = named(before, &container.name);
        before.is_some_and(|before| before != ComputeResources::of(container))
    })
}

/// The pod, each of whose containers has the resources that it has in `given`.
pub(crate) fn with_resources_of(pod: Pod, given: &Pod) -> Pod {
    with_resources(pod, |name| named(given, name))
}

/// The pod, each of whose containers has the resources that its status states.
pub(crate) fn with_resources_of_status(pod: Pod, status: &PodStatus) -> Pod {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let statuses: Vec<&ContainerStatus> = lists.into_iter().flatten().flatten().collect();
    with_resources(pod, |name| {
        let status = statuses.iter().find(|status| status.name == name)?;
        status.resources.as_ref().map(ComputeResources::of_requirements)
    })
}

/// The resources of a pod's container, if it has one of that name.
fn named(pod: &Pod, name: &str) -> Option<ComputeResources> {
    all_containers(pod).find(|it| it.name == name).map(ComputeResources::of)
}

fn with_resources(mut pod: Pod, of: impl Fn(&str) -> Option<ComputeResources>) -> Pod {
    let Some(spec) = &mut pod.spec else { return pod };
    let init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(init) {
        let own = ComputeResources::of(container);
        if let Some(given) = of(&container.name).filter(|given| *given != own) {
            let requirements = container.resources.clone().unwrap_or_default();
            container.resources = Some(given.within(&requirements));
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(resources: Value, policies: &[(&str, &str)]) -> Container {
        let policies: Vec<_> = policies
            .iter()
            .map(|(name, policy)| json!({"resourceName": name, "restartPolicy": policy}))
            .collect();
        let value = json!({"name": "a", "resources": resources, "resizePolicy": policies});
        serde_json::from_value(value).expect("a container")
    }

    fn pod(resources: Value) -> Pod {
        let container = json!({"name": "a", "resources": resources});
        serde_json::from_value(json!({"spec": {"containers": [container]}})).expect("a pod")
    }

    #[test]
    fn a_container_runs_on_unless_its_policy_names_the_resource_that_changes() {
        let before = json!({"requests": {"cpu": "1", "memory": "64Mi", "example.com/x": "1"}});
        let more_cpu = json!({"requests": {"cpu": "2", "memory": "64Mi", "example.com/x": "1"}});
        let restarts_for_memory = [("cpu", "NotRequired"), ("memory", "RestartContainer")];
        let restarts_for_cpu = [("cpu", "RestartContainer")];
        for (after, policies, expected) in [
            (&before, &restarts_for_cpu[..], None),
            // Another spelling, and a resource that does not change.
            (&json!({"requests": {"cpu": "1000m", "memory": "67108864"}}), &[], None),
            (&more_cpu, &[], Some(ResizeMode::InPlace)),
            (&more_cpu, &restarts_for_memory, Some(ResizeMode::InPlace)),
            (&more_cpu, &restarts_for_cpu, Some(ResizeMode::Restart)),
            (
                &json!({"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}),
                &restarts_for_memory,
                Some(ResizeMode::Restart),
            ),
        ] {
            let own = ComputeResources::of(&container(before.clone(), &[]));
            let mode = resize_mode(&container(after.clone(), policies), own);
            assert_eq!(mode, expected, "{after} {policies:?}");
        }
    }

    #[test]
    fn a_pod_keeps_the_resources_that_it_was_given_and_everything_else_of_its_new_spec() {
        let given = pod(json!({"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}));
        let wanted = json!({
            "requests": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "1Gi"},
        });
        let wanted = pod(wanted);
        assert!(is_resized(&given, &wanted) && !is_resized(&given, &given));
        let kept = with_resources_of(wanted.clone(), &given);
        let expected = json!({
            "requests": {"cpu": "250m", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "67108864"},
        });
        assert_eq!(json!(kept.spec.expect("a spec").containers[0].resources), expected);
        let stated = json!({"name": "a", "resources": {"requests": {"cpu": "1"}},
            "image": "", "imageID": "", "ready": true, "restartCount": 0});
        let status = serde_json::from_value(json!({"containerStatuses": [stated]}));
        let kept = with_resources_of_status(wanted, &status.expect("a status"));
        let expected = json!({"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}, "limits": {}});
        assert_eq!(json!(kept.spec.expect("a spec").containers[0].resources), expected);
    }
}
