//! The peer of a connection: which node it may act for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater_event::NodeName;
use headwater_identity::{Certificate, Principal};
use tokio::time::Instant;

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
    Certificate { node: NodeName, valid_until: Instant },
    /// Its certificate names no node, or it has none; with the reason.
    NoNode(Arc<str>),
}

impl Peer {
    /// The peer that showed `certificate` in a TLS handshake; `left` is its remaining validity.
    pub(super) fn of(
        certificate: Option<Certificate>,
        left: impl FnOnce(&Certificate) -> Duration,
    ) -> Self {
        let identity = match certificate {
            None => PeerIdentity::NoNode(
                "the edge shows no certificate: give it one of its node".into(),
            ),
            Some(certificate) => match &certificate.principal {
                Ok(Principal::Node(node)) => {
                    let valid_until = Instant::now() + left(&certificate);
                    PeerIdentity::Certificate { node: node.clone(), valid_until }
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
            PeerIdentity::Certificate { node, .. } => Ok(node.clone()),
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

    /// Records that the peer has sent its hello.
    pub(super) fn set_hello_received(&self) {
        self.hello_received.store(true, Ordering::Relaxed);
    }

    /// Whether the peer has sent its hello.
    pub(super) fn is_hello_received(&self) -> bool {
        self.hello_received.load(Ordering::Relaxed)
    }
}
