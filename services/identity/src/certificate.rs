//! What a certificate says of its owner.

use std::time::SystemTime;

use x509_cert::der::{self, Decode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::principal::{Principal, PrincipalError};

/// What a certificate says. Who issued it is not looked at here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is, where it names exactly one.
    pub principal: Result<Principal, NameFault>,
    /// From when it is valid.
    pub not_before: SystemTime,
    /// Until when.
    pub not_after: SystemTime,
}

/// Why a certificate names nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// It has no such name.
    #[error("the certificate has no headwater:// URI among its subject alternative names")]
    Missing,
    /// It has several.
    #[error("the certificate names several: {first} and {second}")]
    Several {
        /// One.
        first: String,
        /// Another.
        second: String,
    },
    /// It has one that means nothing.
    #[error("the certificate names nobody")]
    Malformed(#[from] PrincipalError),
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// When it is none.
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
            not_before: body.validity().not_before.to_system_time(),
            not_after: body.validity().not_after.to_system_time(),
        })
    }
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
