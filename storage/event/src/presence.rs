//! The presence of nodes: a hub sends the active controller which nodes are connected to it.
//!
//! Presence does not go through the log. It is about nodes that are connected now, which no later reader
//! needs, and it must not depend on the log. Every time in it is a duration, so that no clock of one
//! machine is compared with that of another: the receiver counts back from its own clock.
//!
//! ```text
//!  Connected*  Complete  { Connected | Disconnected | Beat }*
//! ```

use std::time::Duration;

use crate::name::NodeName;

/// How often at least a hub sends an update.
pub const PRESENCE_BEAT: Duration = Duration::from_secs(5);

/// After this time without an update, nothing is known of the nodes of a hub: three beats.
pub const PRESENCE_SILENCE_MAX: Duration = Duration::from_secs(15);

/// How often at least an edge sends a message. Two intervals fit into [`NODE_SILENCE_MAX`] with 5 s
/// to spare, so that a heartbeat that is lost, or late by as much as another one, ends no presence. An
/// idle edge pays 28 bytes for each, so twice as often would cost 5.6 bytes a second.
pub const NODE_BEAT: Duration = Duration::from_secs(10);

/// After this time without a message from a node, its hub no longer counts it as present. Its session
/// ends later. The node lifecycle controller waits for another 40 s.
pub const NODE_SILENCE_MAX: Duration = Duration::from_secs(25);

/// A message of a hub about its nodes. Each one also shows that the hub is alive and that all other
/// nodes are as it sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceUpdate {
    /// These nodes are connected. A node is named again when its state changes.
    Connected(Vec<ConnectedNode>),
    /// Every connected node has been named. This ends the first part of a stream; a node that was
    /// not named is not connected to the hub.
    Complete,
    /// These nodes are no longer connected.
    Disconnected(Vec<DisconnectedNode>),
    /// Nothing has changed.
    Beat,
}

/// A node that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectedNode {
    /// The node.
    pub node: NodeName,
    /// Its state; `None`: the hub is of a version that does not send it.
    pub state: Option<NodeState>,
}

/// The state of a connected node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// The edge lives, but the worker of its pods does not run.
    pub lacks_worker: bool,
    /// The edge has had no report that waited, at least once since it connected.
    pub has_drained: bool,
}

/// A node that is no longer connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisconnectedNode {
    /// The node.
    pub node: NodeName,
    /// How long ago the hub received its last message.
    pub silent_for: Duration,
}
