//! Which pods make room for a critical one. Pure.
//!
//! The rules are those of a kubelet (`pkg/kubelet/preemption/preemption.go`): as few guaranteed pods as possible go, then
//! as few burstable ones, then those of best effort. Among the pods of a class the one goes first that comes closest to
//! what is missing, and of equals the smaller one.

use k8s_openapi::api::core::v1::Pod;

use crate::container::qos::QosClass;
use crate::pod;

/// Amounts of what a node can be short of: pods, CPU, memory and disk.
pub(super) type Missing = [u64; 4];

/// A pod that may go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate<P> {
    /// Which one.
    pub(super) pod: P,
    pub(super) class: QosClass,
    /// What its end gives back.
    pub(super) gives: Missing,
}

/// Whether `other` may go for `critical`: the node works without it, or its priority is lower.
pub(super) fn may_preempt(critical: &Pod, other: &Pod) -> bool {
    let is_lower = |own: &Pod, other: &Pod| {
        let stated = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority);
        stated(own).zip(stated(other)).is_some_and(|(own, other)| own > other)
    };
    !pod::is_critical(other) || is_lower(critical, other)
}

/// The pods that go, so that nothing is missing; `None`: all of them together do not give enough.
pub(super) fn victims<P: Clone>(missing: Missing, candidates: Vec<Candidate<P>>) -> Option<Vec<P>> {
    let of = |class| candidates.iter().filter(move |it| it.class == class).collect::<Vec<_>>();
    let [best_effort, burstable, guaranteed] =
        [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed].map(of);
    let without = |given: &[&[&Candidate<P>]]| given.concat().into_iter().fold(missing, less);
    let guaranteed = closest(without(&[&best_effort, &burstable]), guaranteed)?;
    let burstable = closest(without(&[&best_effort, &guaranteed]), burstable)?;
    let best_effort = closest(without(&[&burstable, &guaranteed]), best_effort)?;
    let all = best_effort.into_iter().chain(burstable).chain(guaranteed);
    Some(all.map(|it| it.pod.clone()).collect())
}

/// The pods of one class that go, in order.
fn closest<P>(mut missing: Missing, mut pods: Vec<&Candidate<P>>) -> Option<Vec<&Candidate<P>>> {
    let mut going = Vec::new();
    while missing != Missing::default() {
        let order = |pod: &&&Candidate<P>| (distance(missing, pod), pod.gives);
        let first = pods.iter().enumerate().min_by(|(_, a), (_, b)| {
            let ((far_a, gives_a), (far_b, gives_b)) = (order(a), order(b));
            far_a.total_cmp(&far_b).then(gives_a[2].cmp(&gives_b[2])).then(gives_a.cmp(&gives_b))
        });
        let pod = pods.remove(first?.0);
        missing = less(missing, pod);
        going.push(pod);
    }
    Some(going)
}

/// How much is missing after the end of a pod: of each resource the share of what is missing now, squared.
#[expect(clippy::cast_precision_loss, reason = "it orders pods")]
fn distance<P>(missing: Missing, pod: &Candidate<P>) -> f64 {
    let left = less(missing, pod);
    let shares = missing.iter().zip(left).filter(|(missing, _)| **missing > 0);
    shares.map(|(missing, left)| (left as f64 / *missing as f64).powi(2)).sum()
}

fn less<P>(missing: Missing, pod: &Candidate<P>) -> Missing {
    std::array::from_fn(|of| missing[of].saturating_sub(pod.gives[of]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn candidate(
        pod: &'static str,
        class: QosClass,
        cpu: u64,
        memory: u64,
    ) -> Candidate<&'static str> {
        Candidate { pod, class, gives: [1, cpu, memory, 0] }
    }

    #[test]
    fn as_few_pods_of_a_better_class_go_as_possible() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let all = [
            candidate("free", BestEffort, 0, 0),
            candidate("small", Burstable, 100, 10),
            candidate("fit", Burstable, 500, 50),
            candidate("large", Burstable, 900, 90),
            candidate("sure", Guaranteed, 500, 50),
        ];
        for (missing, expected) in [
            // A place alone: the pod that requests nothing.
            ([1, 0, 0, 0], Some("free")),
            ([0, 500, 0, 0], Some("fit")),
            ([0, 100, 10, 0], Some("small")),
            ([0, 600, 0, 0], Some("large")),
            // Some of each class.
            ([2, 1_400, 0, 0], Some("fit large")),
            ([0, 1_501, 0, 0], Some("fit large sure")),
            ([6, 0, 0, 0], None),
            ([0, 2_001, 0, 0], None),
            ([0, 0, 0, 1], None),
            ([0, 0, 0, 0], Some("")),
        ] {
            let found = victims(missing, all.to_vec()).map(|mut pods| {
                let place = |pod: &&str| all.iter().position(|it| it.pod == *pod);
                pods.sort_by_key(place);
                pods.join(" ")
            });
            assert_eq!(found.as_deref(), expected, "{missing:?}");
        }
    }

    #[test]
    fn a_critical_pod_takes_the_place_of_what_the_node_works_without_and_of_lower_priorities() {
        let pod = |spec: Value| -> Pod {
            serde_json::from_value(json!({ "spec": spec })).expect("a pod")
        };
        let of = |priority: i32| pod(json!({"priority": priority, "containers": []}));
        let (node, cluster) = (of(2_000_001_000), of(2_000_000_000));
        assert!(
            may_preempt(&cluster, &of(0)) && may_preempt(&cluster, &pod(json!({"containers": []})))
        );
        assert!(may_preempt(&node, &cluster) && !may_preempt(&cluster, &node));
        assert!(!may_preempt(&cluster, &cluster));
    }
}
