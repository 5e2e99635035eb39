//! The node's pods in the durable view.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_event::ResourceKey;

use super::ViewChange;
use crate::meta::operation::OperationError;

/// The node's pods, as the replica reports them.
#[derive(Debug, Default)]
pub(super) struct PodView {
    /// The UID of each pod.
    pub(super) pods: BTreeMap<ResourceKey, String>,
    /// Pods whose status may belong to another pod, or to none.
    pub(super) suspects: BTreeSet<ResourceKey>,
    /// Pods that left the view with a status, and the time, on the monotonic clock. Each status waits
    /// for the pod worker to end the pod, and becomes a suspect when it waited for too long.
    ending: BTreeMap<ResourceKey, u64>,
    /// How long it waits, in milliseconds.
    end_wait_ms: u64,
    /// Whether the view has the node's whole private stream. Before that, absence means nothing.
    pub(super) complete: bool,
    /// When the view became complete, on the monotonic clock.
    pub(super) complete_ms: Option<u64>,
    /// The number of the cloud's last request for a full snapshot.
    pub(super) requested: u64,
}

impl PodView {
    /// An empty view. The status of a pod that leaves it waits for `end_wait`.
    pub(super) fn new(end_wait: Duration) -> Self {
        let end_wait_ms = u64::try_from(end_wait.as_millis()).unwrap_or(u64::MAX);
        Self { end_wait_ms, ..Self::default() }
    }

    /// Applies a change. True: the pod status snapshot may differ. `has_status` is whether the
    /// node has a status of a pod.
    pub(super) fn apply(
        &mut self,
        change: ViewChange,
        now_ms: u64,
        has_status: impl Fn(&ResourceKey) -> bool,
    ) -> bool {
        match change {
            ViewChange::Listed { pods, complete } => {
                self.pods = pods;
                self.ending.clear();
                self.complete = complete;
                self.requested = 0;
                if complete {
                    self.complete_ms.get_or_insert(now_ms);
                }
                true
            }
            ViewChange::Pod { pod, uid } => {
                if has_status(&pod) {
                    self.suspects.insert(pod.clone());
                }
                self.ending.remove(&pod);
                self.pods.insert(pod, uid);
                false
            }
            ViewChange::PodGone { pod, uid } => {
                if self.pods.get(&pod) == Some(&uid) {
                    self.pods.remove(&pod);
                }
                let has_status = has_status(&pod);
                let is_suspect = has_status && self.end_wait_ms == 0;
                if is_suspect {
                    self.suspects.insert(pod);
                } else if has_status && !self.pods.contains_key(&pod) {
                    self.ending.insert(pod, now_ms);
                }
                is_suspect
            }
            ViewChange::SnapshotRequested(number) => {
                self.requested = number;
                true
            }
        }
    }

    /// The pod worker has ended a pod that left the view.
    pub(super) fn has_ended(&mut self, pod: &ResourceKey) {
        self.ending.remove(pod);
    }

    /// Suspects the statuses that waited for the pod worker for too long. True: there are some.
    pub(super) fn end_waits(&mut self, now_ms: u64) -> bool {
        let end_wait_ms = self.end_wait_ms;
        let waited =
            self.ending.extract_if(.., |_, since| now_ms.saturating_sub(*since) >= end_wait_ms);
        let before = self.suspects.len();
        self.suspects.extend(waited.map(|(pod, _)| pod));
        self.suspects.len() > before
    }

    /// Whether the node has the pod with this UID.
    pub(super) fn has(&self, pod: &ResourceKey, uid: &str) -> bool {
        self.pods.get(pod).is_some_and(|found| found == uid)
    }

    /// Refuses a status of a pod that the node does not have.
    pub(super) fn check(&self, pod: &ResourceKey, uid: &str) -> Result<(), OperationError> {
        match self.pods.get(pod) {
            Some(found) if found == uid => Ok(()),
            Some(found) => Err(OperationError::NotFound(format!(
                "{pod}: the pod of this node has UID {found}, not {uid}"
            ))),
            None => Err(OperationError::NotFound(format!("{pod}: this node has no such pod"))),
        }
    }
}
