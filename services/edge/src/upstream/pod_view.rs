//! The node's pods in the durable view.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Whether the view has the node's whole private stream. Before that, absence means nothing.
    pub(super) complete: bool,
    /// When the view became complete, on the monotonic clock.
    pub(super) complete_ms: Option<u64>,
    /// The number of the cloud's last request for a full snapshot.
    pub(super) requested: u64,
}

impl PodView {
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
                self.pods.insert(pod, uid);
                false
            }
            ViewChange::PodGone { pod, uid } => {
                if self.pods.get(&pod) == Some(&uid) {
                    self.pods.remove(&pod);
                }
                let is_suspect = has_status(&pod);
                if is_suspect {
                    self.suspects.insert(pod);
                }
                is_suspect
            }
            ViewChange::SnapshotRequested(number) => {
                self.requested = number;
                true
            }
        }
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
