//! Who is who between the parts: certificates, and TLS made of them.
//!
//! A certificate names its owner by one URI among its subject alternative names,
//! `headwater://node/NAME` ([`Principal`]). Hubs accept connections with an [`Acceptor`], edges
//! make them with a [`Connector`]: TLS 1.3 and HTTP/2 only, each over three PEM files that are
//! read again when they change. What is wrong with a file, a certificate or a clock is said with
//! the file, both times, and what to do.

mod acceptor;
#[cfg(any(test, feature = "issue"))]
pub mod authority;
mod certificate;
mod clock;
mod connector;
mod error;
mod files;
mod principal;
mod reloading;
#[cfg(test)]
mod tests;
mod verdict;

pub use acceptor::{Acceptor, HandshakeError};
pub use certificate::{Certificate, NameFault};
pub use clock::{Clock, rfc3339, system_clock};
pub use connector::{ConnectError, Connector, RefusedByPeer};
pub use error::IdentityError;
pub use files::TlsFiles;
pub use principal::{Principal, PrincipalError};
pub use verdict::{Judged, Verdict};
