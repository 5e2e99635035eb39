//! The peer of a connection: which node it may act for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater_event::NodeName;
use headwater_identity::{Certificate, ClientPeer, PeerTrust, Principal};
use tokio::time::Instant;

/// Why a node is refused whose certificate does not verify any more.
pub(crate) fn not_trusted(node: &NodeName) -> String {
    format!(
        "the hub's CA changed, and it did not issue the certificate of node {node}: issue a new one"
    )
}

/// The peer of a connection. An extension of each request on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    hello_received: Arc<AtomicBool>,
    identity: PeerIdentity,
}

/// How a peer proves its node.
#[derive(Clone, Debug, Default)]
enum PeerIdentity {
    /// Not at all: without TLS, which is for loopback only, the hub trusts the hello.
    #[default]
    Unverified,
    /// By a certificate.
    Certificate { node: NodeName, valid_until: Instant, trust: PeerTrust },
    /// Its certificate names no node, or it has none; with the reason.
    NoNode(Arc<str>),
}

impl Peer {
    /// The peer of a TLS handshake; `left` is the remaining validity of its certificate.
    pub(super) fn of(
        client: Option<ClientPeer>,
        left: impl FnOnce(&Certificate) -> Duration,
    ) -> Self {
        let identity = match client {
            None => PeerIdentity::NoNode(
                "the edge shows no certificate: give it one of its node".into(),
            ),
            Some(ClientPeer { certificate, trust }) => match &certificate.principal {
                Ok(Principal::Node(node)) => {
                    let valid_until = Instant::now() + left(&certificate);
                    PeerIdentity::Certificate { node: node.clone(), valid_until, trust }
                }
                Ok(other) => PeerIdentity::NoNode(
                    format!("the certificate is of {other}: an edge shows one of its node").into(),
                ),
                Err(fault) => PeerIdentity::NoNode(fault.to_string().into()),
            },
        };
        Self { hello_received: Arc::default(), identity }
    }

    /// The node that this peer may act for. The certificate decides what a session reads and
    /// writes; the session refuses a hello that `claims` another node.
    ///
    /// # Errors
    /// The reason, when the peer is no node.
    pub(super) fn node(&self, claims: &NodeName) -> Result<NodeName, Arc<str>> {
        match &self.identity {
            PeerIdentity::Unverified => Ok(claims.clone()),
            // A connection may outlive the trust in its peer: HTTP/2 can begin another session on it.
            PeerIdentity::Certificate { node, trust, .. } => match trust.clone().check() {
                Ok(()) => Ok(node.clone()),
                Err(_) => Err(not_trusted(node).into()),
            },
            PeerIdentity::NoNode(reason) => Err(reason.clone()),
        }
    }

    /// When the peer's certificate expires.
    pub(super) fn valid_until(&self) -> Option<Instant> {
        match &self.identity {
            PeerIdentity::Certificate { valid_until, .. } => Some(*valid_until),
            PeerIdentity::Unverified | PeerIdentity::NoNode(_) => None,
        }
    }

    /// The trust in the peer's certificate; `None`: it has shown none.
    pub(super) fn trust(&self) -> Option<PeerTrust> {
        match &self.identity {
            PeerIdentity::Certificate { trust, .. } => Some(trust.clone()),
            PeerIdentity::Unverified | PeerIdentity::NoNode(_) => None,
        }
    }

    /// Records that the peer has sent its hello.
    pub(super) fn set_hello_received(&self) {
        self.hello_received.store(true, Ordering::Relaxed);
    }

    /// Whether the peer has sent its hello.
    pub(super) fn is_hello_received(&self) -> bool {
        self.hello_received.load(Ordering::Relaxed)
    }
}
