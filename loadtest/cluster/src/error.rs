//! The failures of a control plane.

use std::io;

use headwater_daemon::DaemonError;

use crate::audit::AuditError;

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A part or its program fails.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A certificate cannot be issued.
    #[error("no certificate can be issued")]
    Certificate(#[from] rcgen::Error),
    /// The certificates serve no TLS client.
    #[error("the certificates of the control plane are unusable: remove its data")]
    Tls(#[from] rustls::Error),
    /// A service account gets no token.
    #[error("no token for the service account {account}: {complaint}")]
    NoToken {
        /// Its namespace and name.
        account: String,
        /// What kubectl writes.
        complaint: String,
    },
    /// The audit log cannot be read.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Another process listens on the port.
    #[error("port {port} of 127.0.0.1 is taken: choose another one")]
    PortTaken {
        /// The port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
}
