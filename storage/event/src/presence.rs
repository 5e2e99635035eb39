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

/// After this time without a message from a node, its hub no longer counts it as connected: a node
/// sends a heartbeat every 20 s. Its session ends later.
pub const NODE_SILENCE_MAX: Duration = Duration::from_secs(25);

/// A message of a hub about its nodes. Each one also shows that the hub is alive and that all other
/// nodes are as it sent before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PresenceUpdate {
    /// These nodes are connected.
    Connected(Vec<NodeName>),
    /// Every connected node has been named. This ends the first part of a stream; a node that was
    /// not named is not connected to the hub.
    Complete,
    /// These nodes are no longer connected.
    Disconnected(Vec<DisconnectedNode>),
    /// Nothing has changed.
    Beat,
}

/// A node that is no longer connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisconnectedNode {
    /// The node.
    pub node: NodeName,
    /// How long ago the hub received its last message.
    pub silent_for: Duration,
}
