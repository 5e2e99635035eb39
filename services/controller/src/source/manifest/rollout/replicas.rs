//! A ReplicaSet or ReplicationController: a number of pods, whatever template they were made of.

use super::{LivePod, Rollout, RolloutContext, RolloutPod, create, keep_best};

/// What a ReplicaSet asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicasRule {
    pub(super) replicas: u64,
}

impl ReplicasRule {
    pub(super) fn roll(&self, mut context: RolloutContext<'_>) -> Rollout {
        let replicas = usize::try_from(self.replicas).unwrap_or(usize::MAX);
        let mut pods: Vec<&LivePod> = context.pods.iter().collect();
        if pods.len() > replicas {
            keep_best(&mut pods, replicas, &mut context);
        }
        let mut next: Vec<RolloutPod> = pods.iter().map(|pod| RolloutPod::kept(pod)).collect();
        next.extend(create(&mut context, replicas - pods.len()));
        Rollout { pods: next, is_settled: true, ..Rollout::default() }
    }
}
