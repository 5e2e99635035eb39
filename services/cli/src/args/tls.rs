//! The TLS flags of hub and edge.

use std::path::PathBuf;

use clap::Args;
use headwater_settings::Flags;

/// The flags of a part that speaks TLS.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Certificate of the CA that the other end is checked by, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate to show, PEM; it is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Go without TLS, on loopback only: any process of this machine can then connect
    #[arg(long)]
    pub insecure_loopback: bool,
}

impl TlsArgs {
    /// `flags`, and those given here.
    pub fn flags(&self, flags: Flags) -> Flags {
        flags
            .with("tls_ca", self.tls_ca.as_ref())
            .with("tls_cert", self.tls_cert.as_ref())
            .with("tls_key", self.tls_key.as_ref())
            .switch("insecure_loopback", self.insecure_loopback)
    }
}
