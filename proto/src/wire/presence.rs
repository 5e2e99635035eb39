//! The presence of nodes, on the lane between a hub and the active controller.

use std::time::Duration;

use headwater_event::{ConnectedNode, DisconnectedNode, NodeState, PresenceUpdate};

use super::{PRESENCE_NODES_MAX, WireError, WireFault, at_most, node_name};
use crate::cloud as wire;
use crate::cloud::hub_message::Message;

impl From<PresenceUpdate> for wire::HubMessage {
    fn from(update: PresenceUpdate) -> Self {
        let message = match update {
            PresenceUpdate::Connected(nodes) => Message::Connected(nodes.into()),
            PresenceUpdate::Disconnected(nodes) => {
                let nodes = nodes.into_iter().map(Into::into).collect();
                Message::Disconnected(wire::NodesDisconnected { nodes })
            }
            PresenceUpdate::Complete => Message::Complete(wire::PresenceComplete {}),
            PresenceUpdate::Beat => Message::Beat(wire::PresenceBeat {}),
        };
        Self { message: Some(message) }
    }
}

impl TryFrom<wire::HubMessage> for PresenceUpdate {
    type Error = WireError;

    /// A hello is none: it comes once, before the updates.
    fn try_from(message: wire::HubMessage) -> Result<Self, WireError> {
        match message.message {
            Some(Message::Connected(connected)) => Ok(Self::Connected(connected.try_into()?)),
            Some(Message::Disconnected(disconnected)) => {
                at_most(&disconnected.nodes, PRESENCE_NODES_MAX, "NodesDisconnected.nodes")?;
                let nodes = disconnected.nodes.into_iter().map(TryInto::try_into);
                Ok(Self::Disconnected(nodes.collect::<Result<_, _>>()?))
            }
            Some(Message::Complete(wire::PresenceComplete {})) => Ok(Self::Complete),
            Some(Message::Beat(wire::PresenceBeat {})) => Ok(Self::Beat),
            Some(Message::Hello(_)) | None => Err(WireFault::Missing.of("HubMessage.message")),
        }
    }
}

impl From<Vec<ConnectedNode>> for wire::NodesConnected {
    /// Without states unless each node has one.
    fn from(nodes: Vec<ConnectedNode>) -> Self {
        let states = nodes.iter().map(|node| node.state.map(Into::into)).collect::<Option<_>>();
        let nodes = nodes.into_iter().map(|connected| connected.node.into()).collect();
        Self { nodes, states: states.unwrap_or_default() }
    }
}

impl TryFrom<wire::NodesConnected> for Vec<ConnectedNode> {
    type Error = WireError;

    fn try_from(connected: wire::NodesConnected) -> Result<Self, WireError> {
        let wire::NodesConnected { nodes, states } = connected;
        at_most(&nodes, PRESENCE_NODES_MAX, "NodesConnected.nodes")?;
        let (found, want) = (states.len(), nodes.len());
        if found != 0 && found != want {
            return Err(WireFault::Count { want, found }.of("NodesConnected.states"));
        }
        let states = states.into_iter().map(|state| Some(state.into()));
        let states = states.chain(std::iter::repeat(None));
        let connected = nodes.into_iter().zip(states).map(|(node, state)| {
            Ok(ConnectedNode { node: node_name(node, "NodesConnected.nodes")?, state })
        });
        connected.collect()
    }
}

impl From<NodeState> for wire::NodeState {
    fn from(state: NodeState) -> Self {
        let NodeState { lacks_worker, has_drained } = state;
        Self { lacks_worker, has_drained }
    }
}

impl From<wire::NodeState> for NodeState {
    fn from(state: wire::NodeState) -> Self {
        let wire::NodeState { lacks_worker, has_drained } = state;
        Self { lacks_worker, has_drained }
    }
}

impl From<DisconnectedNode> for wire::DisconnectedNode {
    fn from(gone: DisconnectedNode) -> Self {
        let silent_ms = u64::try_from(gone.silent_for.as_millis()).unwrap_or(u64::MAX);
        Self { node: gone.node.into(), silent_ms }
    }
}

impl TryFrom<wire::DisconnectedNode> for DisconnectedNode {
    type Error = WireError;

    fn try_from(gone: wire::DisconnectedNode) -> Result<Self, WireError> {
        let node = node_name(gone.node, "DisconnectedNode.node")?;
        Ok(Self { node, silent_for: Duration::from_millis(gone.silent_ms) })
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::NodeName;

    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    /// Each state once.
    fn states() -> [NodeState; 4] {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(lacks_worker, has_drained)| NodeState { lacks_worker, has_drained })
    }

    #[test]
    fn a_hub_and_a_controller_of_different_versions_understand_each_other() {
        let with_states: Vec<_> =
            states().map(|state| ConnectedNode { node: node("a"), state: Some(state) }).into();
        let sent = wire::NodesConnected::from(with_states);
        // An older controller knows the first field alone.
        assert_eq!(sent.nodes, ["a"; 4]);
        let of_older_hub = wire::NodesConnected { nodes: sent.nodes, states: Vec::new() };
        let read = Vec::<ConnectedNode>::try_from(of_older_hub).expect("valid");
        assert!(read.iter().all(|connected| connected.state.is_none()));
    }

    #[test]
    fn updates_are_read_as_they_were_sent() {
        let silent_for = Duration::from_millis(1_234);
        let with = |state| ConnectedNode { node: node("a"), state };
        for update in [
            PresenceUpdate::Connected(states().map(|state| with(Some(state))).into()),
            PresenceUpdate::Connected(vec![with(None), with(None)]),
            PresenceUpdate::Disconnected(vec![DisconnectedNode { node: node("a"), silent_for }]),
            PresenceUpdate::Complete,
            PresenceUpdate::Beat,
        ] {
            let message = wire::HubMessage::from(update.clone());
            assert_eq!(PresenceUpdate::try_from(message), Ok(update));
        }
    }

    #[test]
    fn what_is_no_update_is_named() {
        let connected = |nodes: Vec<String>| {
            Message::Connected(wire::NodesConnected { nodes, states: Vec::new() })
        };
        let states = vec![wire::NodeState::default()];
        let gone = wire::DisconnectedNode { node: "a/b".to_owned(), silent_ms: u64::MAX };
        for (message, field) in [
            (None, "HubMessage.message"),
            (Some(Message::Hello(wire::HubHello::default())), "HubMessage.message"),
            (Some(connected(vec!["UPPER".to_owned()])), "NodesConnected.nodes"),
            (Some(connected(vec!["a".to_owned(); PRESENCE_NODES_MAX + 1])), "NodesConnected.nodes"),
            (
                Some(Message::Connected(wire::NodesConnected { nodes: Vec::new(), states })),
                "NodesConnected.states",
            ),
            (
                Some(Message::Disconnected(wire::NodesDisconnected { nodes: vec![gone] })),
                "DisconnectedNode.node",
            ),
        ] {
            let read = PresenceUpdate::try_from(wire::HubMessage { message });
            assert_eq!(read.expect_err("refused").field, field);
        }
    }
}
