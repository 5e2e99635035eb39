//! TLS of hub and edge: from settings to certificates.

use std::path::PathBuf;

use headwater_identity::{Acceptor, Connector, IdentityError, TlsFiles, system_clock};
use headwater_settings::InvalidSetting;

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
    /// No TLS setting is given.
    #[error(
        "name the certificate: --tls-ca FILE --tls-cert FILE --tls-key FILE (`headwater ca` makes \
         them), or --insecure-loopback to try things on one machine"
    )]
    Unset,
    /// Something was left out.
    #[error("tls_ca, tls_cert and tls_key go together: {key} is missing")]
    Missing {
        /// The setting.
        key: &'static str,
    },
    /// Both are given.
    #[error("--insecure-loopback is for a part without a certificate: leave one of them out")]
    Both,
    /// A file cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl From<TlsError> for InvalidSetting {
    fn from(error: TlsError) -> Self {
        let key = match error {
            TlsError::Both => "insecure_loopback",
            TlsError::Missing { key } => key,
            TlsError::Unset | TlsError::Identity(_) => "tls_cert",
        };
        Self::new(key, error)
    }
}

impl Tls<'_> {
    /// The files; `None`: without TLS, as the settings demand.
    ///
    /// # Errors
    /// When the settings are missing, incomplete or contradictory.
    pub(crate) fn files(self) -> Result<Option<TlsFiles>, TlsError> {
        match (self.ca, self.certificate, self.key) {
            (None, None, None) if self.insecure_loopback => Ok(None),
            (None, None, None) => Err(TlsError::Unset),
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
