//! Identities of nodes, hubs and operators: certificates, and TLS over them.
//!
//! One URI among the subject alternative names of a certificate names its owner,
//! `headwater://node/NAME` ([`Principal`]). Hubs accept connections with an [`Acceptor`], edges
//! open them with a [`Connector`]. Both speak TLS 1.3 only, and HTTP/2; a kubelet's server speaks HTTP/1.1. Both load three PEM files
//! and reload them when the files change; then [`PeerTrust`] shows a live session whether its peer
//! still verifies. An error about a file, a certificate or a clock names the file, both times, and
//! what to do.

mod acceptor;
#[cfg(any(test, feature = "issue"))]
pub mod authority;
mod certificate;
mod clock;
mod config_reloader;
mod connector;
mod error;
mod files;
mod peer_trust;
mod principal;
mod refusal_detector;
#[cfg(test)]
mod tests;

pub use acceptor::{Acceptor, ClientPeer, HandshakeError};
pub use certificate::{Certificate, NameFault, Subject};
pub use clock::{Clock, rfc3339, system_clock};
pub use connector::{ConnectError, Connector, PeerRefusal, ServerPeer};
pub use error::IdentityError;
pub use files::TlsFiles;
pub use peer_trust::{Distrust, PeerTrust, REFRESH_INTERVAL};
pub use principal::{Principal, PrincipalError};
pub use refusal_detector::{PeerRefusalCell, RefusalDetector};
