//! A CA for a start: makes itself, and issues certificates that name nodes, hubs and operators.
//!
//! Nothing that serves or connects needs it: its key may lie offline.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headwater_event::name::check_dns1123_subdomain;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::der::{self, Decode};

use crate::principal::Principal;

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when.
    pub from: SystemTime,
    /// Until when.
    pub until: SystemTime,
}

/// A CA with its key.
#[derive(Debug)]
pub struct Authority {
    certificate: String,
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate of the CA cannot be read.
    #[error("no certificate of a CA in PEM form")]
    Certificate(#[source] pem::Error),
    /// The certificate of the CA cannot be understood.
    #[error("the certificate of the CA cannot be understood")]
    Malformed(#[from] der::Error),
    /// The key cannot be read.
    #[error("no private key in PEM form")]
    Key(#[source] pem::Error),
    /// They are of two CAs.
    #[error("the certificate and the key are no pair: name the two files of one CA")]
    NoPair(#[source] rustls::Error),
    /// The CA was made by something else, and what is issued in its name would not be believed.
    #[error("the CA was not made by `headwater ca init`: issue certificates with what made it")]
    Foreign,
    /// A hub's address is neither a DNS name nor an IP address.
    #[error("{address:?} is neither a DNS name nor an IP address")]
    Address {
        /// The address.
        address: String,
    },
    /// The certificate cannot be made.
    #[error("the certificate cannot be made")]
    Make(#[from] rcgen::Error),
}

impl Authority {
    /// A new CA, called `name` for people.
    ///
    /// # Errors
    /// When there is no key to be had.
    pub fn create(name: &str, validity: Validity) -> Result<Self, AuthorityError> {
        let mut params = dated(validity);
        params.distinguished_name = called(name);
        // It issues to the parts themselves, and to no other CA.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let der = certificate.der().to_vec();
        Ok(Self { certificate: certificate.pem(), der, issuer: Issuer::new(params, key) })
    }

    /// The CA whose certificate and key these are.
    ///
    /// # Errors
    /// When they are not, or of a CA that something else made.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let der = der.map_err(AuthorityError::Certificate)?;
        let private = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(AuthorityError::Key)?;
        let provider = ring::default_provider();
        CertifiedKey::from_der(vec![der.clone()], private, &provider)
            .map_err(AuthorityError::NoPair)?;
        let parsed = x509_cert::Certificate::from_der(&der)?;
        let name = parsed.tbs_certificate().subject().common_name()?;
        let name = name.ok_or(AuthorityError::Foreign)?.value().to_string();
        let mut params = CertificateParams::default();
        params.distinguished_name = called(&name);
        let issuer = Issuer::new(params, KeyPair::from_pem(key)?);
        Ok(Self { certificate: certificate.to_owned(), der: der.to_vec(), issuer })
    }

    /// The certificate that everyone who trusts the CA is given, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The key that nobody but the CA has, PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate with a key of its own. Hubs are found at `addresses`, DNS names or IP
    /// addresses; nobody else has any, so that no node passes for a hub.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn issue(
        &self,
        to: &Principal,
        addresses: &[String],
        validity: Validity,
    ) -> Result<Issued, AuthorityError> {
        let mut params = dated(validity);
        params.distinguished_name = called(&to.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = vec![SanType::URI(to.uri().as_str().try_into()?)];
        params.extended_key_usages = match to {
            Principal::Hub(_) => {
                for address in addresses {
                    params.subject_alt_names.push(reached_at(address)?);
                }
                vec![ExtendedKeyUsagePurpose::ServerAuth]
            }
            Principal::Node(_) | Principal::Operator(_) => {
                vec![ExtendedKeyUsagePurpose::ClientAuth]
            }
        };
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let issued = x509_cert::Certificate::from_der(certificate.der())?;
        let own = x509_cert::Certificate::from_der(&self.der)?;
        if issued.tbs_certificate().issuer() != own.tbs_certificate().subject() {
            return Err(AuthorityError::Foreign);
        }
        Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

fn dated(validity: Validity) -> CertificateParams {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    // Certificates have whole seconds.
    let since = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Duration::from_secs(since.as_secs())
    };
    let mut params = CertificateParams::default();
    params.not_before = epoch + since(validity.from);
    params.not_after = epoch + since(validity.until);
    params
}

fn reached_at(address: &str) -> Result<SanType, AuthorityError> {
    let object = || AuthorityError::Address { address: address.to_owned() };
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    check_dns1123_subdomain(address).map_err(|_| object())?;
    Ok(SanType::DnsName(address.try_into().map_err(|_| object())?))
}
