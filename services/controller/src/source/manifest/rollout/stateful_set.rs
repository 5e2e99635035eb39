//! A StatefulSet: pods with an ordinal, one after another.
//!
//! As in Kubernetes: pods come in the order of their ordinals, each once the one before is
//! available; they leave in the reverse order, and are replaced in the reverse order. Unlike there,
//! a pod of an earlier template that never becomes available does not block the rollout: it is
//! replaced, because here no person can delete it.

use std::collections::BTreeMap;

use super::{LivePod, PodContent, Rollout, RolloutContext, RolloutPod};

/// What a StatefulSet asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatefulSetRule {
    pub(super) replicas: u64,
    pub(super) first_ordinal: u64,
    /// Whether all pods come and leave at once. They are replaced one after another in any case.
    pub(super) is_parallel: bool,
    /// The first ordinal that is replaced; `None`: a pod stays as it is.
    pub(super) partition: Option<u64>,
    pub(super) min_ready_seconds: u64,
}

impl StatefulSetRule {
    pub(super) fn roll(&self, context: RolloutContext<'_>) -> Rollout {
        let RolloutContext { pods, is_leaving, names, clock, .. } = context;
        let end = self.first_ordinal.saturating_add(self.replicas);
        let live: BTreeMap<u64, &LivePod> =
            pods.iter().filter_map(|pod| Some((ordinal_of(&pod.name)?, pod))).collect();
        let mut next: BTreeMap<u64, RolloutPod> =
            live.iter().map(|(ordinal, pod)| (*ordinal, RolloutPod::kept(pod))).collect();
        let condemned: Vec<u64> = live
            .keys()
            .copied()
            .filter(|ordinal| !(self.first_ordinal..end).contains(ordinal))
            .collect();
        let is_old = |ordinal: u64, pod: &LivePod| {
            !pod.is_current && self.partition.is_some_and(|first| ordinal >= first)
        };
        let (mut is_blocked, mut is_missing) = (false, false);
        for (ordinal, name) in (self.first_ordinal..end).zip(names) {
            match live.get(&ordinal) {
                None => {
                    next.insert(ordinal, RolloutPod::new(name));
                    is_missing = true;
                }
                Some(pod) => is_blocked |= !clock.is_available(pod, self.min_ready_seconds),
            }
            if (is_missing || is_blocked) && !self.is_parallel {
                break;
            }
        }
        let replaced = if self.is_parallel {
            condemned.iter().for_each(|ordinal| drop(next.remove(ordinal)));
            self.next_replaced(&live, end, &is_old, clock)
        } else if is_missing {
            None
        } else if is_blocked {
            let is_stuck = |pod: &LivePod| pod.state.is_unready || pod.node.is_none();
            let mut old = live.range(self.first_ordinal..end).rev();
            let stuck = old.find(|(ordinal, pod)| is_old(**ordinal, pod) && is_stuck(pod));
            let waits = live
                .values()
                .any(|pod| pod.is_current && !clock.is_available(pod, self.min_ready_seconds));
            stuck.map(|(ordinal, _)| *ordinal).filter(|_| !waits)
        } else if let Some(last) = condemned.last() {
            if !is_leaving() {
                next.remove(last);
            }
            None
        } else {
            self.next_replaced(&live, end, &is_old, clock)
        };
        if let Some(pod) = replaced.and_then(|ordinal| next.get_mut(&ordinal)) {
            pod.content = PodContent::Template;
        }
        let pending = |ordinal: u64| match next.get(&ordinal) {
            None => true,
            Some(pod) => {
                pod.content == PodContent::Published
                    && self.partition.is_some_and(|first| ordinal >= first)
            }
        };
        let is_settled =
            (self.is_parallel || condemned.is_empty()) && !(self.first_ordinal..end).any(pending);
        Rollout { pods: next.into_values().collect(), is_settled, ..Rollout::default() }
    }

    /// The ordinal that is replaced next: the highest of an earlier template, once every pod above
    /// it is available.
    fn next_replaced(
        &self,
        live: &BTreeMap<u64, &LivePod>,
        end: u64,
        is_old: &dyn Fn(u64, &LivePod) -> bool,
        clock: &mut super::RolloutClock,
    ) -> Option<u64> {
        for (ordinal, pod) in live.range(self.first_ordinal..end).rev() {
            if is_old(*ordinal, pod) {
                return Some(*ordinal);
            }
            if !clock.is_available(pod, self.min_ready_seconds) {
                return None;
            }
        }
        None
    }
}

fn ordinal_of(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}
