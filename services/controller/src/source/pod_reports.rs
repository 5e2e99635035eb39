//! What the nodes report of pods, as a source reads it.

use std::collections::BTreeSet;
use std::future::pending;

use async_trait::async_trait;
use headwater_event::{NodeName, ResourceKey};
use serde_json::Value;

/// The report of a node on one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodReport {
    /// The status that the node reported last.
    pub status: Value,
    /// Whether the node is connected now.
    pub is_node_reachable: bool,
}

/// Reads what the nodes report of pods. A source that makes pods one after another decides by it.
pub trait PodReports: Send + Sync {
    /// The report on the pod at `key`, which the source sent as `pod`; `None` where its node has
    /// reported nothing of this very pod.
    fn report(&self, key: &ResourceKey, pod: &Value) -> Option<PodReport>;

    /// The pods of a namespace, of names that begin with that of a workload, that their node still reports. Pods
    /// that have left are among them; `selects` selects by pod and node. What another node reports does not count.
    fn reported(
        &self,
        namespace: &str,
        workload: &str,
        selects: &dyn Fn(&ResourceKey, &NodeName) -> bool,
    ) -> BTreeSet<ResourceKey>;

    /// Subscribes to the changes from now on.
    fn subscribe(&self) -> Box<dyn ReportChanges>;
}

/// Receives the keys of pods and nodes that may have changed.
#[async_trait]
pub trait ReportChanges: Send {
    /// Waits for a change, and returns all keys since the last call; `None`: any may have changed.
    /// Cancel-safe.
    async fn next(&mut self) -> Option<BTreeSet<ResourceKey>>;
}

/// The reports where no node reports anything.
#[derive(Clone, Copy, Debug)]
pub struct NoReports;

impl PodReports for NoReports {
    fn report(&self, _: &ResourceKey, _: &Value) -> Option<PodReport> {
        None
    }

    fn reported(
        &self,
        _: &str,
        _: &str,
        _: &dyn Fn(&ResourceKey, &NodeName) -> bool,
    ) -> BTreeSet<ResourceKey> {
        BTreeSet::new()
    }

    fn subscribe(&self) -> Box<dyn ReportChanges> {
        Box::new(Self)
    }
}

#[async_trait]
impl ReportChanges for NoReports {
    async fn next(&mut self) -> Option<BTreeSet<ResourceKey>> {
        pending().await
    }
}
