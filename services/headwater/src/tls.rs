//! Which certificate a part shows, and which it believes: the flags, and what they make.

use std::path::PathBuf;

use clap::Args;
use headwater_identity::{Acceptor, Connector, IdentityError, TlsFiles, system_clock};

use crate::settings::{Flags, Unusable};

/// The flags of a part that speaks TLS.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TlsArgs {
    /// Certificate of the CA that the other end is checked by, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate to show, PEM; it is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Speak without TLS, on loopback only: whoever is on this machine may be anybody
    #[arg(long)]
    pub(crate) insecure_loopback: bool,
}

impl TlsArgs {
    /// `flags`, and those given here.
    pub(crate) fn flags(&self, flags: Flags) -> Flags {
        flags
            .with("tls_ca", self.tls_ca.as_ref())
            .with("tls_cert", self.tls_cert.as_ref())
            .with("tls_key", self.tls_key.as_ref())
            .switch("insecure_loopback", self.insecure_loopback)
    }
}

/// The settings that they set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tls<'a> {
    /// `tls_ca`.
    pub(crate) ca: Option<&'a PathBuf>,
    /// `tls_cert`.
    pub(crate) certificate: Option<&'a PathBuf>,
    /// `tls_key`.
    pub(crate) key: Option<&'a PathBuf>,
    /// `insecure_loopback`.
    pub(crate) insecure_loopback: bool,
}

/// Why there is neither TLS nor leave to go without.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// Nothing was said.
    #[error(
        "say who this is: --tls-ca FILE --tls-cert FILE --tls-key FILE (`headwater ca` makes \
         them), or --insecure-loopback to try things on one machine"
    )]
    Unsaid,
    /// Something was left out.
    #[error("tls_ca, tls_cert and tls_key go together: {key} is missing")]
    Missing {
        /// The setting.
        key: &'static str,
    },
    /// Both were said.
    #[error("--insecure-loopback is for a part without a certificate: leave one of them out")]
    Both,
    /// A file cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl From<TlsError> for Unusable {
    fn from(error: TlsError) -> Self {
        let key = match error {
            TlsError::Both => "insecure_loopback",
            TlsError::Missing { key } => key,
            TlsError::Unsaid | TlsError::Identity(_) => "tls_cert",
        };
        Self::new(key, error)
    }
}

impl Tls<'_> {
    /// The files; `None`: without TLS, and aloud.
    ///
    /// # Errors
    /// When that was not said clearly.
    pub(crate) fn files(self) -> Result<Option<TlsFiles>, TlsError> {
        match (self.ca, self.certificate, self.key) {
            (None, None, None) if self.insecure_loopback => Ok(None),
            (None, None, None) => Err(TlsError::Unsaid),
            _ if self.insecure_loopback => Err(TlsError::Both),
            (Some(ca), Some(certificate), Some(key)) => Ok(Some(TlsFiles {
                ca: ca.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
            })),
            (None, _, _) => Err(TlsError::Missing { key: "tls_ca" }),
            (_, None, _) => Err(TlsError::Missing { key: "tls_cert" }),
            (_, _, None) => Err(TlsError::Missing { key: "tls_key" }),
        }
    }

    /// For a hub.
    ///
    /// # Errors
    /// Names the file and what to do.
    pub(crate) fn acceptor(self) -> Result<Option<Acceptor>, TlsError> {
        let files = self.files()?;
        Ok(files.map(|files| Acceptor::open(files, system_clock())).transpose()?)
    }

    /// For an edge.
    ///
    /// # Errors
    /// Names the file and what to do.
    pub(crate) fn connector(self) -> Result<Option<Connector>, TlsError> {
        let files = self.files()?;
        Ok(files.map(|files| Connector::open(files, system_clock())).transpose()?)
    }
}
