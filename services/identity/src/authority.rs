//! A simple CA: creates itself, and issues certificates for nodes, hubs and operators.
//!
//! No running service needs it, so its key can stay offline.

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

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its start.
    pub from: SystemTime,
    /// Its end.
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
pub struct Credentials {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8.
    pub key: String,
}

/// Why the CA cannot be opened, or issues nothing.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The CA's certificate is not PEM.
    #[error("the CA's certificate is not in PEM form")]
    Certificate(#[source] pem::Error),
    /// The CA's certificate cannot be parsed.
    #[error("the CA's certificate cannot be parsed")]
    Malformed(#[from] der::Error),
    /// The key is not PEM.
    #[error("the CA's private key is not in PEM form")]
    Key(#[source] pem::Error),
    /// The certificate and the key belong to two CAs.
    #[error("the certificate and the key are no pair: name the two files of one CA")]
    NoPair(#[source] rustls::Error),
    /// Another program created the CA. Peers would not trust a certificate issued here in its name.
    #[error(
        "the CA was not created by `headwater ca init`: issue certificates with the program that created it"
    )]
    Foreign,
    /// A hub's address is neither a DNS name nor an IP address.
    #[error("{address:?} is neither a DNS name nor an IP address")]
    Address {
        /// The address.
        address: String,
    },
    /// The certificate cannot be created.
    #[error("the certificate cannot be created")]
    Make(#[from] rcgen::Error),
}

impl Authority {
    /// Creates a CA. `name` is its common name, for people.
    ///
    /// # Errors
    /// When no key can be generated.
    pub fn create(name: &str, validity: Validity) -> Result<Self, AuthorityError> {
        let mut params = params_valid(validity);
        params.distinguished_name = common_name(name);
        // It issues end certificates only, none for another CA.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let der = certificate.der().to_vec();
        Ok(Self { certificate: certificate.pem(), der, issuer: Issuer::new(params, key) })
    }

    /// Opens a CA from its certificate and key.
    ///
    /// # Errors
    /// When they are no pair, or another program created the CA.
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
        params.distinguished_name = common_name(&name);
        let issuer = Issuer::new(params, KeyPair::from_pem(key)?);
        Ok(Self { certificate: certificate.to_owned(), der: der.to_vec(), issuer })
    }

    /// The CA's certificate, PEM: every peer that trusts the CA gets it.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The CA's private key, PEM: it never leaves the CA.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate with a new key. The certificate of a hub or controller names `addresses`,
    /// DNS names or IP addresses. Other certificates name none, so that no node passes for a hub.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub fn issue(
        &self,
        to: &Principal,
        addresses: &[String],
        validity: Validity,
    ) -> Result<Credentials, AuthorityError> {
        let mut params = params_valid(validity);
        params.distinguished_name = common_name(&to.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.subject_alt_names = vec![SanType::URI(to.uri().as_str().try_into()?)];
        params.extended_key_usages = match to {
            Principal::Hub(_) | Principal::Controller(_) => {
                for address in addresses {
                    params.subject_alt_names.push(address_name(address)?);
                }
                // A hub is a client of the controller, too.
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth]
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
        Ok(Credentials { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn params_valid(validity: Validity) -> CertificateParams {
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

fn address_name(address: &str) -> Result<SanType, AuthorityError> {
    let object = || AuthorityError::Address { address: address.to_owned() };
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    check_dns1123_subdomain(address).map_err(|_| object())?;
    Ok(SanType::DnsName(address.try_into().map_err(|_| object())?))
}
