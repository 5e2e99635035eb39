//! The presence of nodes, on the lane between a hub and the active controller.

use std::time::Duration;

use headwater_event::{DisconnectedNode, PresenceUpdate};

use super::{PRESENCE_NODES_MAX, WireError, WireFault, at_most, node_name};
use crate::cloud as wire;
use crate::cloud::hub_message::Message;

impl From<PresenceUpdate> for wire::HubMessage {
    fn from(update: PresenceUpdate) -> Self {
        let message = match update {
            PresenceUpdate::Connected(nodes) => {
                let nodes = nodes.into_iter().map(Into::into).collect();
                Message::Connected(wire::NodesConnected { nodes })
            }
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

    /// A hello is none: it comes once, before the updates. Nor is an ask.
    fn try_from(message: wire::HubMessage) -> Result<Self, WireError> {
        match message.message {
            Some(Message::Connected(connected)) => {
                at_most(&connected.nodes, PRESENCE_NODES_MAX, "NodesConnected.nodes")?;
                let nodes = connected.nodes.into_iter();
                let nodes = nodes.map(|node| node_name(node, "NodesConnected.nodes"));
                Ok(Self::Connected(nodes.collect::<Result<_, _>>()?))
            }
            Some(Message::Disconnected(disconnected)) => {
                at_most(&disconnected.nodes, PRESENCE_NODES_MAX, "NodesDisconnected.nodes")?;
                let nodes = disconnected.nodes.into_iter().map(TryInto::try_into);
                Ok(Self::Disconnected(nodes.collect::<Result<_, _>>()?))
            }
            Some(Message::Complete(wire::PresenceComplete {})) => Ok(Self::Complete),
            Some(Message::Beat(wire::PresenceBeat {})) => Ok(Self::Beat),
            Some(Message::Hello(_) | Message::Ask(_)) | None => {
                Err(WireFault::Missing.of("HubMessage.message"))
            }
        }
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

    #[test]
    fn updates_are_read_as_they_were_sent() {
        let silent_for = Duration::from_millis(1_234);
        for update in [
            PresenceUpdate::Connected(vec![node("a"), node("b")]),
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
        let connected = |nodes: Vec<String>| Message::Connected(wire::NodesConnected { nodes });
        let gone = wire::DisconnectedNode { node: "a/b".to_owned(), silent_ms: u64::MAX };
        for (message, field) in [
            (None, "HubMessage.message"),
            (Some(Message::Hello(wire::HubHello::default())), "HubMessage.message"),
            (Some(connected(vec!["UPPER".to_owned()])), "NodesConnected.nodes"),
            (Some(connected(vec!["a".to_owned(); PRESENCE_NODES_MAX + 1])), "NodesConnected.nodes"),
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
