//! The configuration of an edge.

use std::path::PathBuf;

use headwater_event::{Incarnation, NodeName};
use headwater_identity::Connector;

use crate::api::LocalSettings;
use crate::connection::address::HubAddress;
use crate::connection::session::SessionSettings;
use crate::replica::ReplicaSettings;
use crate::tunnel::TunnelSettings;
use crate::upstream::UpstreamSettings;

/// The configuration of an edge. Engines and dependencies are arguments of
/// [`Edge::start`](crate::Edge::start).
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// The node.
    pub node: NodeName,
    /// The number of the node's enrolment; a new enrolment has the next number.
    pub incarnation: Incarnation,
    /// The addresses of hubs; without TLS on loopback only. Empty: the edge stays offline.
    pub hubs: Vec<HubAddress>,
    /// The certificates that identify the edge and its hubs.
    pub tls: Option<Connector>,
    /// The path of the local API's unix socket.
    pub socket: PathBuf,
    /// A user to which the local API responds, besides the edge's own and root.
    pub local_user: Option<LocalUser>,
    /// The socket of the kubelet's server of the node, to which clients of a hub come; `None`: they do
    /// not.
    pub pod_socket: Option<PathBuf>,
    /// The bounds.
    pub settings: Settings,
}

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalUser {
    /// The user.
    pub user: u32,
    /// Its primary group.
    pub group: u32,
}

/// The bounds of an edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The session with a hub.
    pub session: SessionSettings,
    /// The replica and its watches.
    pub replica: ReplicaSettings,
    /// The outbox and MetaSync.
    pub upstream: UpstreamSettings,
    /// The local API.
    pub local: LocalSettings,
    /// The streams of clients of a hub.
    pub tunnel: TunnelSettings,
}

impl EdgeConfig {
    /// An edge of `node` in its first enrolment, without TLS, with the default bounds.
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
            local_user: None,
            pod_socket: None,
            settings: Settings::default(),
        }
    }
}
