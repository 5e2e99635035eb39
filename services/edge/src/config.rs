//! What an edge is told, and its bounds.

use std::path::PathBuf;

use headwater_event::{Incarnation, NodeName};
use headwater_identity::Connector;

use crate::api::LocalSettings;
use crate::connection::address::HubAddress;
use crate::connection::session::SessionSettings;
use crate::replica::ReplicaSettings;
use crate::upstream::UpstreamSettings;

/// What an edge is told. Its engines and its surroundings are arguments of
/// [`Edge::start`](crate::Edge::start).
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// The node.
    pub node: NodeName,
    /// The issue of the node's enrolment; a node that is enrolled anew gets the next one.
    pub incarnation: Incarnation,
    /// Where hubs listen. Without TLS on loopback only. None: the edge stays offline.
    pub hubs: Vec<HubAddress>,
    /// How it knows its hubs, and they it.
    pub tls: Option<Connector>,
    /// Where the local API listens: a unix socket, of mode 0600.
    pub socket: PathBuf,
    /// The bounds.
    pub settings: Settings,
}

/// The bounds of an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Of the session with a hub.
    pub session: SessionSettings,
    /// Of the replica and its watches.
    pub replica: ReplicaSettings,
    /// Of the outbox and MetaSync.
    pub upstream: UpstreamSettings,
    /// Of the local API.
    pub local: LocalSettings,
}

impl EdgeConfig {
    /// An edge of `node` in its first issue, without TLS, with the default bounds.
    pub fn new(
        node: NodeName,
        hubs: impl IntoIterator<Item = impl Into<HubAddress>>,
        socket: PathBuf,
    ) -> Self {
        Self {
            node,
            incarnation: Incarnation(1),
            hubs: hubs.into_iter().map(Into::into).collect(),
            tls: None,
            socket,
            settings: Settings::default(),
        }
    }
}
