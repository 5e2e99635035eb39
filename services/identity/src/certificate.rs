//! The owner and the validity of a certificate.

use std::time::SystemTime;

use x509_cert::der::asn1::{Any, ObjectIdentifier, PrintableStringRef, Utf8StringRef};
use x509_cert::der::{self, Decode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

use crate::principal::{Principal, PrincipalError};

/// The common name in a subject (RFC 4519).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// An organization in a subject (RFC 4519).
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// The content of a certificate. Its issuer is not checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its owner, if it names exactly one.
    pub principal: Result<Principal, NameFault>,
    /// Its subject, as Kubernetes reads it.
    pub subject: Subject,
    /// The start of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub not_after: SystemTime,
}

/// The subject of a certificate. To Kubernetes the common name is a user, and each organization a
/// group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The first common name; empty if there is none.
    pub common_name: String,
    /// The organizations.
    pub organizations: Vec<String>,
}

/// Why a certificate names no owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// It has no `headwater://` URI.
    #[error("the certificate has no headwater:// URI among its subject alternative names")]
    Missing,
    /// It has several `headwater://` URIs.
    #[error("the certificate names several owners: {first} and {second}")]
    Several {
        /// The first.
        first: String,
        /// The second.
        second: String,
    },
    /// Its `headwater://` URI is malformed.
    #[error("the certificate names no valid owner")]
    Malformed(#[from] PrincipalError),
}

impl Certificate {
    /// Whether its owner is a controller.
    pub fn is_of_controller(&self) -> bool {
        matches!(self.principal, Ok(Principal::Controller(_)))
    }

    /// Parses a certificate.
    ///
    /// # Errors
    /// When `der` is no certificate.
    pub fn parse(der: &[u8]) -> Result<Self, der::Error> {
        let certificate = x509_cert::Certificate::from_der(der)?;
        let body = certificate.tbs_certificate();
        let names = body.get_extension::<SubjectAltName>()?;
        let names = names.map(|(_, SubjectAltName(names))| names).unwrap_or_default();
        let uris = names.iter().filter_map(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.as_str()),
            _ => None,
        });
        Ok(Self {
            principal: one_of(uris.filter(|uri| Principal::claims(uri))),
            subject: Subject::of(body.subject()),
            not_before: body.validity().not_before.to_system_time(),
            not_after: body.validity().not_after.to_system_time(),
        })
    }
}

impl Subject {
    fn of(name: &Name) -> Self {
        let of =
            |oid| name.iter().filter(move |one| one.oid == oid).filter_map(|one| text(&one.value));
        Self {
            common_name: of(COMMON_NAME).next().unwrap_or_default(),
            organizations: of(ORGANIZATION).collect(),
        }
    }
}

/// The text of a value; `None` for a form that no CA writes today.
fn text(value: &Any) -> Option<String> {
    if let Ok(text) = value.decode_as::<Utf8StringRef<'_>>() {
        return Some(text.as_str().to_owned());
    }
    let text = value.decode_as::<PrintableStringRef<'_>>().ok()?;
    Some(text.as_str().to_owned())
}

fn one_of<'a>(mut uris: impl Iterator<Item = &'a str>) -> Result<Principal, NameFault> {
    let first = uris.next().ok_or(NameFault::Missing)?;
    match uris.next() {
        None => Ok(first.parse()?),
        Some(second) => {
            Err(NameFault::Several { first: first.to_owned(), second: second.to_owned() })
        }
    }
}
