//! What can be wrong with the files of an identity.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use rustls::pki_types::pem;
use x509_cert::der;

use crate::certificate::NameFault;
use crate::clock::rfc3339;
use crate::principal::Principal;

/// What is wrong with the files of an identity: which, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error(
        "{what} {file} cannot be read: put it there, let this user read it, or say where it is"
    )]
    Read {
        /// What it is to hold.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{file} holds no {what} in PEM form: another file was meant, or it was cut short")]
    Pem {
        /// What it is to hold.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// What is there.
        source: pem::Error,
    },
    /// A certificate cannot be read.
    #[error("{file} holds what is no certificate: issue it anew")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where it breaks off.
        source: der::Error,
    },
    /// A certificate cannot be the one of a CA.
    #[error("{file} holds no certificate of a CA that can be trusted: name the ca.crt of the CA")]
    Authority {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// Nothing can be trusted by it.
    #[error("{file} cannot be used to check who connects")]
    Unusable {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: rustls::server::VerifierBuilderError,
    },
    /// Key and certificate are of two pairs, or the key is of a kind that is not known.
    #[error("the key {key} and the certificate {certificate} are no pair: issue both together")]
    NoPair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// How it shows.
        source: rustls::Error,
    },
    /// The certificate is not valid yet: most often the clock is wrong.
    #[error(
        "the certificate {file} is valid from {}, and this machine's clock says {}: set the clock",
        rfc3339(*.not_before), rfc3339(*.now)
    )]
    NotYetValid {
        /// The file.
        file: PathBuf,
        /// From when it is valid.
        not_before: SystemTime,
        /// What the clock says.
        now: SystemTime,
    },
    /// The certificate is not valid any more.
    #[error(
        "the certificate {file} was valid until {}, and this machine's clock says {}: issue a new \
         one in its place, or set the clock if it is wrong",
        rfc3339(*.not_after), rfc3339(*.now)
    )]
    Expired {
        /// The file.
        file: PathBuf,
        /// Until when it was valid.
        not_after: SystemTime,
        /// What the clock says.
        now: SystemTime,
    },
    /// The certificate names nobody.
    #[error(
        "the certificate {file} does not say whose it is: `headwater ca issue` makes one that does"
    )]
    Nobody {
        /// The file.
        file: PathBuf,
        /// What it says instead.
        source: NameFault,
    },
    /// The certificate is of somebody else.
    #[error(
        "the certificate {file} is of {found}, and this is {wanted}: name the files of {wanted}"
    )]
    SomebodyElse {
        /// The file.
        file: PathBuf,
        /// Whose it is.
        found: Principal,
        /// Who uses it.
        wanted: Principal,
    },
    /// The TLS library cannot be set up as it must be: TLS 1.3 alone.
    #[error("TLS 1.3 cannot be set up")]
    Tls(#[from] rustls::Error),
}
