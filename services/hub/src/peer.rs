//! Who is at the other end of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater_event::NodeName;
use headwater_identity::{Certificate, Principal};
use tokio::time::Instant;

/// Who is at the other end of a connection. Part of each of its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    greeted: Arc<AtomicBool>,
    vouched: Vouched,
}

/// Who says who it is.
#[derive(Clone, Debug, Default)]
enum Vouched {
    /// Nobody: on loopback without TLS, and only there, the hello is believed.
    #[default]
    Nobody,
    /// A certificate.
    Certificate { node: NodeName, until: Instant },
    /// No certificate that names a node; why, in words.
    Nothing(Arc<str>),
}

impl Peer {
    /// Who showed `certificate` in a handshake. It is valid for `left` from now.
    pub(crate) fn of(
        certificate: Option<Certificate>,
        left: impl FnOnce(&Certificate) -> Duration,
    ) -> Self {
        let vouched = match certificate {
            None => {
                Vouched::Nothing("the edge shows no certificate: give it one of its node".into())
            }
            Some(certificate) => match &certificate.principal {
                Ok(Principal::Node(node)) => {
                    let until = Instant::now() + left(&certificate);
                    Vouched::Certificate { node: node.clone(), until }
                }
                Ok(other) => Vouched::Nothing(
                    format!("the certificate is of {other}: an edge shows one of its node").into(),
                ),
                Err(fault) => Vouched::Nothing(fault.to_string().into()),
            },
        };
        Self { greeted: Arc::default(), vouched }
    }

    /// The node that this peer speaks for, whatever it `claims`: what a session of it may read
    /// and write goes by the certificate, and the session refuses a hello that says otherwise.
    ///
    /// # Errors
    /// In words, when the peer is no node.
    pub(crate) fn node(&self, claims: &NodeName) -> Result<NodeName, Arc<str>> {
        match &self.vouched {
            Vouched::Nobody => Ok(claims.clone()),
            Vouched::Certificate { node, .. } => Ok(node.clone()),
            Vouched::Nothing(why) => Err(why.clone()),
        }
    }

    /// When nobody vouches for it any more.
    pub(crate) fn until(&self) -> Option<Instant> {
        match &self.vouched {
            Vouched::Certificate { until, .. } => Some(*until),
            Vouched::Nobody | Vouched::Nothing(_) => None,
        }
    }

    /// A hello came.
    pub(crate) fn greet(&self) {
        self.greeted.store(true, Ordering::Relaxed);
    }

    /// Whether a hello came.
    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted.load(Ordering::Relaxed)
    }
}
