//! Errors of an identity's files.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use rustls::pki_types::pem;
use x509_cert::der;

use crate::certificate::NameFault;
use crate::clock::rfc3339;
use crate::principal::Principal;

/// An error of an identity's files. The text names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error(
        "{what} {file} cannot be read: create the file, make it readable for this user, or name \
         another path"
    )]
    Read {
        /// Its expected content.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has other content.
    #[error(
        "{file} holds no {what} in PEM form: name the right file, or issue it again if it is cut short"
    )]
    Pem {
        /// Its expected content.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The parse error.
        source: pem::Error,
    },
    /// A certificate cannot be parsed.
    #[error("the certificate {file} cannot be parsed: issue a new one")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The parse error.
        source: der::Error,
    },
    /// A certificate is no CA's.
    #[error("{file} holds no CA certificate: name the ca.crt of the CA")]
    Authority {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The CA's certificates cannot verify peers.
    #[error("{file} cannot be used to verify peers: name the ca.crt of the CA")]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: rustls::server::VerifierBuilderError,
    },
    /// The key does not belong to the certificate, or its kind is unknown.
    #[error("the key {key} and the certificate {certificate} are no pair: issue both together")]
    NoPair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The certificate is not valid yet. Most often the clock is wrong.
    #[error(
        "the certificate {file} is valid from {}, but this machine's clock shows {}: set the clock",
        rfc3339(*.not_before), rfc3339(*.now)
    )]
    NotYetValid {
        /// The file.
        file: PathBuf,
        /// The start of its validity.
        not_before: SystemTime,
        /// The time of this machine's clock.
        now: SystemTime,
    },
    /// The certificate has expired.
    #[error(
        "the certificate {file} was valid until {}, but this machine's clock shows {}: issue a new \
         one in its place, or set the clock if it is wrong",
        rfc3339(*.not_after), rfc3339(*.now)
    )]
    Expired {
        /// The file.
        file: PathBuf,
        /// The end of its validity.
        not_after: SystemTime,
        /// The time of this machine's clock.
        now: SystemTime,
    },
    /// The certificate names no owner.
    #[error("the certificate {file} names no owner: issue one with `headwater ca issue`")]
    NoPrincipal {
        /// The file.
        file: PathBuf,
        /// The fault of its names.
        source: NameFault,
    },
    /// The certificate belongs to another principal.
    #[error(
        "the certificate {file} belongs to {found}, but this is {wanted}: name the files of {wanted}"
    )]
    WrongPrincipal {
        /// The file.
        file: PathBuf,
        /// Its owner.
        found: Principal,
        /// The principal that uses it.
        wanted: Principal,
    },
    /// The TLS library cannot be configured for TLS 1.3 alone.
    #[error("TLS 1.3 cannot be configured")]
    Tls(#[from] rustls::Error),
}
