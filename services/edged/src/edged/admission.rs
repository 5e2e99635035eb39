//! Whether the node has room for a pod. Pure: decided from what the node has for pods, what the pods that are here
//! request, and what the pod requests.
//!
//! The rules, their order and the words are those of a kubelet (`pkg/kubelet/lifecycle/predicate.go`). A pod is judged
//! once, when it comes to the node.

use crate::container::requests::{Amounts, CPU, MEMORY, STORAGE};
use crate::worker::AdmissionFailure;
use crate::worker::plan::FailReason;

/// What the node has for its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) pods: u64,
    pub(super) amounts: Amounts,
}

/// What the admitted pods that have not ended take of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pods: u64,
    amounts: Amounts,
}

impl Taken {
    /// Counts a pod.
    pub(super) fn add(&mut self, requests: Amounts) {
        self.pods += 1;
        self.amounts = self.amounts + requests;
    }
}

/// Admits a pod that has room.
///
/// # Errors
/// The first resource that is short.
pub(super) fn admit(requests: Amounts, taken: &Taken, room: &Room) -> Result<(), AdmissionFailure> {
    let of = |amounts: &Amounts| [amounts.cpu_milli, amounts.memory_bytes, amounts.storage_bytes];
    let names = [
        (CPU, FailReason::OutOfCpu),
        (MEMORY, FailReason::OutOfMemory),
        (STORAGE, FailReason::OutOfStorage),
    ];
    check("pods", FailReason::OutOfPods, 1, taken.pods, room.pods)?;
    let figures = of(&requests).into_iter().zip(of(&taken.amounts)).zip(of(&room.amounts));
    for ((name, reason), ((requested, used), capacity)) in names.into_iter().zip(figures) {
        check(name, reason, requested, used, capacity)?;
    }
    Ok(())
}

fn check(
    name: &str,
    reason: FailReason,
    requested: u64,
    used: u64,
    capacity: u64,
) -> Result<(), AdmissionFailure> {
    // A pod that requests nothing of a resource is not kept away by others that have too much of it.
    if requested == 0 || requested <= capacity.saturating_sub(used) {
        return Ok(());
    }
    let message = format!(
        "Pod was rejected: Node didn't have enough resource: {name}, requested: {requested}, \
         used: {used}, capacity: {capacity}"
    );
    Err(AdmissionFailure { reason, message: message.into() })
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
            let mut taken = Taken::default();
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
}
