//! TLS of hub and edge: it turns settings into certificates.

use std::path::PathBuf;

use headwater_identity::{Acceptor, Connector, IdentityError, TlsFiles, system_clock};
use headwater_settings::InvalidSetting;

/// The TLS settings of a part.
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

/// The reason why the TLS settings are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    /// No TLS setting is given.
    #[error(
        "name the certificate: --tls-ca FILE --tls-cert FILE --tls-key FILE (`headwater ca` makes \
         them), or --insecure-loopback for experiments on one machine"
    )]
    Unset,
    /// One of the three settings is missing.
    #[error("tls_ca, tls_cert and tls_key go together: {key} is missing")]
    Missing {
        /// The missing setting.
        key: &'static str,
    },
    /// Both are given.
    #[error("--insecure-loopback excludes a certificate: remove one of them")]
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
    /// Returns the files; `None`: no TLS, as the settings demand.
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

    /// Loads the certificates of a hub.
    ///
    /// # Errors
    /// When a file is invalid. The error names the file and the remedy.
    pub(crate) fn acceptor(self) -> Result<Option<Acceptor>, TlsError> {
        let files = self.files()?;
        Ok(files.map(|files| Acceptor::open(files, system_clock())).transpose()?)
    }

    /// Loads the certificates of an edge.
    ///
    /// # Errors
    /// When a file is invalid. The error names the file and the remedy.
    pub(crate) fn connector(self) -> Result<Option<Connector>, TlsError> {
        let files = self.files()?;
        Ok(files.map(|files| Connector::open(files, system_clock())).transpose()?)
    }
}
