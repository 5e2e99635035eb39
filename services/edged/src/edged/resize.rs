//! Whether the node has room for other resources of a pod that runs. Pure.
//!
//! The rules and the words are those of a kubelet (`pkg/kubelet/allocation/allocation_manager.go`): what the node could
//! never give is infeasible; what it cannot give now is deferred, and judged again when anything changes.

use k8s_openapi::api::core::v1::Pod;

use super::admission::{Load, Room, Shortage, shortage};
use crate::container::requests::Amounts;
use crate::cpus::exclusive_cpus;
use crate::pod::all_containers;
use crate::worker::PendingResize;

/// The reasons of the condition `PodResizePending`.
const INFEASIBLE: &str = "Infeasible";
const DEFERRED: &str = "Deferred";

/// The words for a pod that has processors for itself.
const EXCLUSIVE: &str =
    "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy";

/// Admits what a pod with the requests `before` requests now, beside what the other pods take. Less of everything is always
/// admitted.
///
/// # Errors
/// Why the pod keeps the resources that it has.
pub(super) fn admit_resize(
    before: Amounts,
    requests: Amounts,
    others: &Load,
    room: &Room,
) -> Result<(), PendingResize> {
    if requests.less(before) == Amounts::default() {
        return Ok(());
    }
    if let Some(Shortage { name, figures: [requested, _, capacity], .. }) =
        shortage(requests, &Load::default(), room)
    {
        return Err(infeasible(format!(
            "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
        )));
    }
    let Some(Shortage { name, figures: [requested, used, capacity], .. }) =
        shortage(requests, others, room)
    else {
        return Ok(());
    };
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: \
         {capacity}"
    );
    Err(PendingResize { reason: DEFERRED, message: message.into() })
}

/// Refuses other resources to a pod with processors of its own: its containers hold them by name.
///
/// # Errors
/// It has some, or would have.
pub(super) fn check_exclusive_cpus(before: &Pod, after: &Pod) -> Result<(), PendingResize> {
    let has_own = |pod: &Pod| all_containers(pod).any(|it| exclusive_cpus(pod, it) > 0);
    if has_own(before) || has_own(after) {
        return Err(infeasible(EXCLUSIVE.to_owned()));
    }
    Ok(())
}

fn infeasible(message: String) -> PendingResize {
    PendingResize { reason: INFEASIBLE, message: message.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cpu(cpu_milli: u64) -> Amounts {
        Amounts { cpu_milli, ..Amounts::default() }
    }

    #[test]
    fn what_the_node_never_has_is_infeasible_and_what_others_use_is_deferred() {
        let room = Room { pods: 10, amounts: cpu(1000) };
        let mut others = Load::default();
        others.add(cpu(600));
        for (requested, expected) in [
            (100, None),
            (400, None),
            (401, Some((DEFERRED, "cpu, requested: 401, used: 600, capacity: 1000"))),
            (1000, Some((DEFERRED, "cpu, requested: 1000, used: 600, capacity: 1000"))),
            (1001, Some((INFEASIBLE, "cpu, requested: 1001, capacity: 1000"))),
        ] {
            let found = admit_resize(cpu(100), cpu(requested), &others, &room).err();
            let found = found.map(|it| {
                let (_, words) = it.message.split_once(": ").expect("words");
                (it.reason, words.to_owned())
            });
            let expected = expected.map(|(reason, words)| (reason, words.to_owned()));
            assert_eq!(found, expected, "{requested}");
        }
        // The node got smaller than what is on it.
        assert!(admit_resize(cpu(2000), cpu(1500), &others, &room).is_ok());
    }

    #[test]
    fn a_pod_with_processors_of_its_own_keeps_them() {
        let pod = |cpu: &str| -> Pod {
            let resources = json!({"limits": {"cpu": cpu, "memory": "64Mi"},
                "requests": {"cpu": cpu, "memory": "64Mi"}});
            let container = json!({"name": "a", "resources": resources});
            serde_json::from_value(json!({"spec": {"containers": [container]}})).expect("a pod")
        };
        assert!(check_exclusive_cpus(&pod("500m"), &pod("1500m")).is_ok());
        for (before, after) in [("1", "500m"), ("500m", "1"), ("1", "2")] {
            let pending = check_exclusive_cpus(&pod(before), &pod(after)).expect_err("refused");
            assert_eq!((pending.reason, &*pending.message), (INFEASIBLE, EXCLUSIVE));
        }
    }
}
