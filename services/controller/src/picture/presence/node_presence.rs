//! Whether a node and its worker live, for what acts on it: a Lease, a status that is put right.

use std::time::Duration;

use headwater_event::{NodeProgress, NodeState};

/// The presence of a node now, as hubs send it.
///
/// A hub sends that a node has left 25 s after its last word, and a hub that is silent itself has no
/// node after another 15 s. The controller counts both from its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePresence {
    /// A hub has the node connected, and heard its edge and its worker within 25 s. The position
    /// records in the log do not count: they are minutes old where no hub sends presence.
    pub is_present: bool,
    /// The outbox of the node was empty at least once since it connected, so that the picture has
    /// what the node reported while it was away. False while it is not connected.
    pub has_drained: bool,
}

/// A connected node, as its hub sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::picture) struct ConnectedState {
    /// The time since the last update of its hub.
    pub(in crate::picture) age: Duration,
    /// The time since its hub named it last.
    pub(in crate::picture) named_for: Duration,
    /// `None`: the hub is of a version that sends no states.
    pub(in crate::picture) state: Option<NodeState>,
}

impl NodePresence {
    /// The presence of a node whose last position in the log is `progress`.
    pub(in crate::picture) fn of(
        connected: Option<ConnectedState>,
        progress: Option<&NodeProgress>,
    ) -> Self {
        let Some(connected) = connected else { return Self::default() };
        let NodeState { lacks_worker, has_drained } = connected.state.unwrap_or_else(|| {
            // An older hub appends the depth of the outbox with each position.
            let has_drained = progress.is_some_and(|it| it.connected && it.outbox_depth == 0);
            NodeState { lacks_worker: false, has_drained }
        });
        Self { is_present: !lacks_worker, has_drained }
    }
}

impl ConnectedState {
    /// Whether the worker does not run.
    pub(in crate::picture) fn lacks_worker(&self) -> bool {
        self.state.is_some_and(|state| state.lacks_worker)
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation};

    use super::*;

    fn progress(connected: bool, outbox_depth: u64) -> NodeProgress {
        NodeProgress {
            hub: "hub".to_owned(),
            connected,
            incarnation: Incarnation(1),
            boot: Boot::default(),
            connection: 0,
            outbox_depth,
            contact_ms: 0,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: Vec::new(),
        }
    }

    #[test]
    fn a_node_is_present_with_its_worker_and_has_drained_by_its_hub_or_by_the_log() {
        let state = |lacks_worker, has_drained| Some(NodeState { lacks_worker, has_drained });
        let (empty, full, left) = (progress(true, 0), progress(true, 3), progress(false, 0));
        let connected =
            |state| Some(ConnectedState { age: Duration::ZERO, named_for: Duration::ZERO, state });
        for (connected, progress, expected) in [
            (None, Some(&empty), (false, false)),
            (connected(state(false, false)), Some(&empty), (true, false)),
            (connected(state(false, true)), Some(&full), (true, true)),
            (connected(state(true, true)), None, (false, true)),
            (connected(state(true, false)), None, (false, false)),
            // An older hub: its worker counts as running.
            (connected(None), Some(&empty), (true, true)),
            (connected(None), Some(&full), (true, false)),
            (connected(None), Some(&left), (true, false)),
            (connected(None), None, (true, false)),
        ] {
            let found = NodePresence::of(connected, progress);
            assert_eq!((found.is_present, found.has_drained), expected, "{connected:?}");
        }
    }
}
