//! The statuses that nodes report of pods of other nodes. They are never written; their nodes are named.
//!
//! A change of the picture names the pod, not the node that reports it. So the nodes are looked at in turn: some a
//! second, whatever they report.

use headwater_event::{NodeName, ResourceKey};
use headwater_telemetry::error_chain;

use super::SinkRun;

/// The nodes that are looked at each time: some hundred reads of memory.
const NODES_MAX: usize = 16;

/// The statuses that are read each time, of some 2 KB: a few milliseconds. A node has 110 pods at most by default.
const STATUSES_MAX: usize = 512;

/// How far the look at the nodes is.
#[derive(Debug, Default)]
pub(super) struct StatusScan {
    /// The node that was looked at last.
    node: Option<NodeName>,
    /// The last pod that was read of it; `None`: all were.
    pod: Option<ResourceKey>,
    /// A pod of another node among those that were read.
    foreign: Option<(ResourceKey, NodeName)>,
}

impl SinkRun {
    /// Looks at what the next nodes report of pods.
    pub(super) fn look_at_statuses(&mut self) {
        if self.epoch.is_none() {
            return;
        }
        let (mut nodes, mut statuses) = (NODES_MAX, STATUSES_MAX);
        while nodes > 0 && statuses > 0 {
            nodes -= 1;
            if self.status_scan.pod.is_none() && !self.scan_next_node() {
                return;
            }
            let Some(node) = self.status_scan.node.clone() else { return };
            match self.scan_statuses(&node, statuses) {
                Ok(read) => statuses = statuses.saturating_sub(read),
                Err(error) => {
                    tracing::warn!(error, "the picture cannot be read; trying again");
                    return;
                }
            }
        }
    }

    /// Goes on to the next node. False: there is none, and the first one comes next.
    fn scan_next_node(&mut self) -> bool {
        let after = self.status_scan.node.take();
        let is_later = |node: &&NodeName| after.as_ref().is_none_or(|after| *node > after);
        let next = self.presence.keys().filter(is_later).min().cloned();
        self.status_scan = StatusScan { node: next, ..StatusScan::default() };
        if self.status_scan.node.is_none() {
            self.troubles.retain_statuses(|node| self.presence.contains_key(node));
        }
        self.status_scan.node.is_some()
    }

    /// Reads statuses that a node reports, at most `max`. Returns how many.
    fn scan_statuses(&mut self, node: &NodeName, max: usize) -> Result<usize, String> {
        let reported = self.picture.reported_pods(node, self.status_scan.pod.as_ref(), max);
        let reported = reported.map_err(|error| error_chain(&error))?;
        let is_last = reported.len() < max;
        if self.status_scan.foreign.is_none() {
            let objects = self.view.lock();
            self.status_scan.foreign = reported.iter().find_map(|(pod, uid)| {
                // A pod of the same name that was bound to the node before has another UID.
                let view =
                    objects.pod(pod).filter(|view| view.node != *node && *view.uid == **uid)?;
                Some((pod.clone(), view.node.clone()))
            });
        }
        self.status_scan.pod = reported.last().filter(|_| !is_last).map(|(pod, _)| pod.clone());
        if is_last {
            let foreign = self.status_scan.foreign.take();
            let foreign = foreign.as_ref().map(|(pod, of)| (pod, of));
            if let Some((pod, of)) = foreign.filter(|_| !self.troubles.names_statuses_of(node)) {
                tracing::warn!(%node, %pod, bound_to = %of, "a node reports the status of another node's pod");
            }
            self.troubles.set_foreign_status(node, foreign);
        }
        Ok(reported.len())
    }
}
