//! The TLS flags of hub and edge, and of what connects to a hub.

use std::path::PathBuf;

use clap::Args;
use headwater_settings::Flags;

/// The flags of a part that uses TLS.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Certificate of the CA of the other end, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Certificate of this end, PEM; a change is loaded at once
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Do not use TLS, on loopback only: every process of this machine can connect then
    #[arg(long)]
    pub insecure_loopback: bool,
}

impl TlsArgs {
    /// Adds the flags given here to `flags`.
    pub fn flags(&self, flags: Flags) -> Flags {
        flags
            .with("tls_ca", self.tls_ca.as_ref())
            .with("tls_cert", self.tls_cert.as_ref())
            .with("tls_key", self.tls_key.as_ref())
            .switch("insecure_loopback", self.insecure_loopback)
    }
}
