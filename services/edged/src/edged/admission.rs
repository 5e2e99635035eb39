//! Whether the node has room for a pod. Pure: decided from what the node has for pods, what the pods that are here
//! request, and what the pod requests.
//!
//! The rules, their order and the words are those of a kubelet (`pkg/kubelet/lifecycle/predicate.go`). A pod is judged
//! once, when it comes to the node.

use headwater_object::host_ports::{HostPort, are_taken};
use k8s_openapi::api::core::v1::Pod;

use super::preemption::Missing;
use crate::container::qos::QosClass;
use crate::container::requests::{Amounts, CPU, MEMORY, STORAGE};
use crate::node::pressure::{Pressure, Pressures};
use crate::pod;
use crate::worker::AdmissionFailure;
use crate::worker::plan::FailReason;

/// The taint of a node that lacks memory; it has no value.
const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// The words for a pod whose ports of the machine are taken.
const PORTS_TAKEN: &str = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for \
                           the requested pod ports";

/// The resources, and why a pod fails that has no room of one.
const RESOURCES: [(&str, FailReason); 4] = [
    ("pods", FailReason::OutOfPods),
    (CPU, FailReason::OutOfCpu),
    (MEMORY, FailReason::OutOfMemory),
    (STORAGE, FailReason::OutOfStorage),
];

/// What the node has for its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) pods: u64,
    pub(super) amounts: Amounts,
}

/// What the admitted pods that have not ended take of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pods: u64,
    amounts: Amounts,
}

impl Load {
    /// Counts a pod.
    pub(super) fn add(&mut self, requests: Amounts) {
        self.pods += 1;
        self.amounts = self.amounts + requests;
    }

    /// Takes a pod out that goes.
    pub(super) fn remove(&mut self, requests: Amounts) {
        self.pods = self.pods.saturating_sub(1);
        self.amounts = self.amounts.less(requests);
    }
}

/// Admits a pod that has room.
///
/// # Errors
/// The first resource that is short.
pub(super) fn admit(requests: Amounts, load: &Load, room: &Room) -> Result<(), AdmissionFailure> {
    let Some(Shortage { name, reason, figures }) = shortage(requests, load, room) else {
        return Ok(());
    };
    let [requested, used, capacity] = figures;
    let message = format!(
        "Pod was rejected: Node didn't have enough resource: {name}, requested: {requested}, used: \
         {used}, capacity: {capacity}"
    );
    Err(AdmissionFailure { reason, message: message.into() })
}

/// A resource of which the node does not have what a pod requests.
pub(super) struct Shortage {
    /// The resource.
    pub(super) name: &'static str,
    /// Why a pod fails that needs it.
    reason: FailReason,
    /// What the pod requests, what others use, and what there is.
    pub(super) figures: [u64; 3],
}

/// The first resource that is short.
pub(super) fn shortage(requests: Amounts, load: &Load, room: &Room) -> Option<Shortage> {
    let mut all = RESOURCES.into_iter().zip(figures(requests, load, room));
    let ((name, reason), figures) = all.find(|(_, figures)| lacking(*figures) > 0)?;
    Some(Shortage { name, reason, figures })
}

/// Admits a pod unless another one has a port of the machine that it asks for.
///
/// # Errors
/// The words of a kubelet.
pub(super) fn admit_ports<'a>(
    ports: &[HostPort],
    taken: impl IntoIterator<Item = &'a HostPort>,
) -> Result<(), AdmissionFailure> {
    if are_taken(ports, taken) {
        return Err(AdmissionFailure {
            reason: FailReason::NodePorts,
            message: PORTS_TAKEN.into(),
        });
    }
    Ok(())
}

/// How much more the node would need to have for the pod.
pub(super) fn missing(requests: Amounts, load: &Load, room: &Room) -> Missing {
    figures(requests, load, room).map(lacking)
}

/// How much more the node would need to have for the pods that it has.
pub(super) fn excess(load: &Load, room: &Room) -> Missing {
    let (used, capacity) = (given(load.pods, load.amounts), given(room.pods, room.amounts));
    std::array::from_fn(|of| used[of].saturating_sub(capacity[of]))
}

/// Pods and amounts, in the order of [`RESOURCES`].
pub(super) fn given(pods: u64, amounts: Amounts) -> Missing {
    [pods, amounts.cpu_milli, amounts.memory_bytes, amounts.storage_bytes]
}

/// Of each resource: what the pod requests, what others use, and what there is.
fn figures(requests: Amounts, load: &Load, room: &Room) -> [[u64; 3]; RESOURCES.len()] {
    let requested = given(1, requests);
    let (used, capacity) = (given(load.pods, load.amounts), given(room.pods, room.amounts));
    std::array::from_fn(|of| [requested[of], used[of], capacity[of]])
}

/// What is missing of a resource. A pod that requests nothing of it is not kept away by others that have too much of it.
fn lacking([requested, used, capacity]: [u64; 3]) -> u64 {
    requested.saturating_sub(capacity.saturating_sub(used))
}

/// Admits a pod although the node lacks resources: what is critical always, and while only memory is short, what requests
/// some or tolerates it (`pkg/kubelet/eviction/eviction_manager.go`, `Admit`). Otherwise it would be evicted at once.
///
/// # Errors
/// The conditions of the node.
pub(super) fn admit_under_pressure(
    pod: &Pod,
    pressures: Pressures,
) -> Result<(), AdmissionFailure> {
    let Pressures { memory, disk, pids } = pressures;
    let all = [("MemoryPressure", memory), ("DiskPressure", disk), ("PIDPressure", pids)];
    let present = all.into_iter().filter(|(_, state)| *state == Pressure::Present);
    let present: Vec<&str> = present.map(|(name, _)| name).collect();
    let stands_it = match &*present {
        [] => true,
        ["MemoryPressure"] => QosClass::of(pod) != QosClass::BestEffort || tolerates_it(pod),
        _ => false,
    };
    if stands_it || pod::is_critical(pod) {
        return Ok(());
    }
    let message = format!("Pod was rejected: The node had condition: [{}]. ", present.join(" "));
    Err(AdmissionFailure { reason: FailReason::Evicted, message: message.into() })
}

/// Whether the pod tolerates the taint of a node that lacks memory.
fn tolerates_it(pod: &Pod) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref());
    tolerations.unwrap_or_default().iter().any(|toleration| {
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        let has_no_value = toleration.value.as_deref().is_none_or(str::is_empty);
        (effect.is_empty() || effect == "NoSchedule")
            && match toleration.key.as_deref().unwrap_or_default() {
                "" => exists,
                key => key == MEMORY_TAINT && (exists || has_no_value),
            }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu_milli: u64, memory_bytes: u64, storage_bytes: u64) -> Amounts {
        Amounts { cpu_milli, memory_bytes, storage_bytes }
    }

    #[test]
    fn the_first_resource_that_is_short_is_named_with_its_figures() {
        let room = Room { pods: 3, amounts: amounts(2000, 100, 50) };
        let taken = |pods: &[Amounts]| {
            let mut taken = Load::default();
            pods.iter().for_each(|pod| taken.add(*pod));
            taken
        };
        let none = Amounts::default();
        let half = amounts(1000, 50, 25);
        for (requests, pods, expected) in [
            (none, &[][..], None),
            (amounts(2000, 100, 50), &[], None),
            (half, &[half], None),
            (
                amounts(2001, 0, 0),
                &[],
                Some(("OutOfcpu", "cpu, requested: 2001, used: 0, capacity: 2000")),
            ),
            (
                half,
                &[half, half],
                Some(("OutOfcpu", "cpu, requested: 1000, used: 2000, capacity: 2000")),
            ),
            (
                amounts(0, 51, 999),
                &[half],
                Some(("OutOfmemory", "memory, requested: 51, used: 50, capacity: 100")),
            ),
            (
                amounts(0, 0, 26),
                &[half],
                Some((
                    "OutOfephemeral-storage",
                    "ephemeral-storage, requested: 26, used: 25, capacity: 50",
                )),
            ),
            // More is taken than there is: the node got smaller.
            (none, &[amounts(9999, 0, 0)], None),
            (
                amounts(1, 0, 0),
                &[amounts(9999, 0, 0)],
                Some(("OutOfcpu", "cpu, requested: 1, used: 9999, capacity: 2000")),
            ),
            (
                amounts(9999, 0, 0),
                &[none, none, none],
                Some(("OutOfpods", "pods, requested: 1, used: 3, capacity: 3")),
            ),
        ] {
            let failure = admit(requests, &taken(pods), &room).err();
            let found = failure.as_ref().map(|it| (it.reason.as_str(), &*it.message));
            let head = "Pod was rejected: Node didn't have enough resource: ";
            let expected = expected.map(|(reason, words)| (reason, format!("{head}{words}")));
            let expected = expected.as_ref().map(|(reason, words)| (*reason, words.as_str()));
            assert_eq!(found, expected, "{requests:?} {pods:?}");
        }
    }

    #[test]
    fn a_node_that_lacks_a_resource_admits_what_is_critical_and_what_stands_it() {
        use Pressure::{Absent, Present, Unknown};
        use serde_json::{Value, json};
        let pod = |spec: Value| -> Pod {
            let mut pod = json!({"spec": {"containers": [{"name": "a"}]}});
            spec.as_object().expect("a spec").iter().for_each(|(key, value)| {
                pod["spec"][key] = value.clone();
            });
            serde_json::from_value(pod).expect("a pod")
        };
        let none = pod(json!({}));
        let requests = json!({"requests": {"memory": "1Mi"}});
        let burstable = pod(json!({"containers": [{"name": "a", "resources": requests}]}));
        let critical = pod(json!({"priority": 2_000_000_000}));
        let toleration = json!({"key": MEMORY_TAINT, "operator": "Exists", "effect": "NoSchedule"});
        let tolerant = pod(json!({"tolerations": [toleration]}));
        let of_all = pod(json!({"tolerations": [{"operator": "Exists"}]}));
        let other = pod(json!({"tolerations": [{"key": "node.kubernetes.io/disk-pressure"}]}));
        for (pressures, expected) in [
            ([Absent, Absent, Unknown], "none burstable critical tolerant of_all other"),
            ([Present, Absent, Absent], "burstable critical tolerant of_all"),
            ([Absent, Present, Absent], "critical"),
            ([Present, Absent, Present], "critical"),
        ] {
            let [memory, disk, pids] = pressures;
            let pods = [
                ("none", &none),
                ("burstable", &burstable),
                ("critical", &critical),
                ("tolerant", &tolerant),
                ("of_all", &of_all),
                ("other", &other),
            ];
            let admitted = pods.into_iter().filter(|(_, pod)| {
                admit_under_pressure(pod, Pressures { memory, disk, pids }).is_ok()
            });
            let names: Vec<_> = admitted.map(|(name, _)| name).collect();
            assert_eq!(names.join(" "), expected, "{pressures:?}");
        }
        let both = Pressures { memory: Present, disk: Present, pids: Absent };
        let failure = admit_under_pressure(&burstable, both).expect_err("rejected");
        let message = "Pod was rejected: The node had condition: [MemoryPressure DiskPressure]. ";
        assert_eq!((failure.reason.as_str(), &*failure.message), ("Evicted", message));
    }
}
