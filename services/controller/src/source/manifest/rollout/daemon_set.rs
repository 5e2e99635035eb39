//! A DaemonSet: a pod on each node, replaced on so many nodes at a time.

use std::collections::HashMap;

use headwater_event::NodeName;

use super::rule::Share;
use super::{LivePod, Rollout, RolloutContext, RolloutPod};

/// What a DaemonSet asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DaemonSetRule {
    /// On how many nodes its pod may be unavailable while it rolls; `None`: a pod stays as it is.
    pub(super) unavailable_max: Option<Share>,
    pub(super) min_ready_seconds: u64,
}

impl DaemonSetRule {
    pub(super) fn roll(&self, context: RolloutContext<'_>) -> Rollout {
        let RolloutContext { pods, nodes, names, clock, .. } = context;
        let mut there: HashMap<&NodeName, &LivePod> = HashMap::new();
        for pod in pods {
            let Some(node) = &pod.node else { continue };
            let known = there.entry(node).or_insert(pod);
            if pod.is_current {
                *known = pod;
            }
        }
        // A node without its pod gets one now, and counts until the pod is available.
        let is_available = |node, clock: &mut super::RolloutClock| {
            let pod: Option<&&LivePod> = there.get(node);
            pod.is_some_and(|pod| clock.is_available(pod, self.min_ready_seconds))
        };
        let unavailable = nodes.iter().filter(|node| !is_available(*node, clock)).count();
        let mut budget = match self.unavailable_max {
            None => 0,
            Some(share) => {
                let max = share.of(nodes.len() as u64, true).max(1);
                usize::try_from(max).unwrap_or(usize::MAX).saturating_sub(unavailable)
            }
        };
        let mut rollout = Rollout { is_settled: true, ..Rollout::default() };
        for (node, name) in nodes.iter().zip(names) {
            let new = || RolloutPod { node: Some(node.clone()), ..RolloutPod::new(name.clone()) };
            let next = match there.get(node) {
                None => new(),
                Some(pod) if pod.is_current => RolloutPod::kept(pod),
                Some(pod) if self.unavailable_max.is_none() => RolloutPod::kept(pod),
                // Its end takes nothing away. A pod on an unreachable node may be Ready.
                Some(pod) if pod.state.is_unready => new(),
                Some(_) if budget > 0 && is_available(node, clock) => {
                    budget -= 1;
                    new()
                }
                Some(pod) => {
                    rollout.is_settled = false;
                    RolloutPod::kept(pod)
                }
            };
            rollout.pods.push(next);
        }
        rollout
    }
}
