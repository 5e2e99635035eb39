//! The three files of an identity, and their content at one moment.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::certificate::Certificate;
use crate::error::IdentityError;

/// The paths of an identity's files, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates of the CAs that verify peers.
    pub ca: PathBuf,
    /// The certificate, then the intermediate certificates up to the CA.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The content of the files when they were read.
#[derive(Clone, Debug)]
pub(crate) struct Material {
    pub(crate) files: TlsFiles,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) certificate: Certificate,
}

/// Metadata that changes when a file changes, one entry a file; `None`: the file is missing.
pub(crate) type Stamp = [Option<FileStamp>; 3];

/// The metadata of one file. The change time covers the content, the owner and the mode: a file that
/// is copied first and made readable afterwards changes twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl TlsFiles {
    /// Reads the metadata of the files. A symbolic link is followed: its target counts.
    pub(crate) fn stamp(&self) -> Stamp {
        [&self.ca, &self.certificate, &self.key].map(|file| {
            let metadata = fs::metadata(file).ok()?;
            Some(FileStamp {
                device: metadata.dev(),
                inode: metadata.ino(),
                bytes: metadata.size(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            })
        })
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<Material, IdentityError> {
        let mut roots = RootCertStore::empty();
        for authority in certificates("the CA's certificate", &self.ca)? {
            let file = || self.ca.clone();
            roots
                .add(authority)
                .map_err(|source| IdentityError::Authority { file: file(), source })?;
        }
        let chain = certificates("the certificate", &self.certificate)?;
        let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
        let certificate = Certificate::parse(leaf).map_err(|source| {
            let file = self.certificate.clone();
            IdentityError::Malformed { file, source }
        })?;
        let key = PrivateKeyDer::from_pem_slice(&read("the private key", &self.key)?);
        let key = key.map_err(|source| {
            let file = self.key.clone();
            IdentityError::Pem { what: "private key", file, source }
        })?;
        let provider = ring::default_provider();
        let key = CertifiedKey::from_der(chain, key, &provider).map_err(|source| {
            let (certificate, key) = (self.certificate.clone(), self.key.clone());
            IdentityError::NoPair { certificate, key, source }
        })?;
        let (files, roots, key) = (self.clone(), Arc::new(roots), Arc::new(key));
        Ok(Material { files, roots, key, certificate })
    }
}

impl Material {
    /// Whether both have the same certificates. The key of a certificate is always the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert && self.has_same_authorities(other)
    }

    /// Whether both verify peers against the same CAs.
    pub(crate) fn has_same_authorities(&self, other: &Self) -> bool {
        self.roots.roots == other.roots.roots
    }

    /// Checks that the own certificate is valid at `now`.
    pub(crate) fn check(&self, now: SystemTime) -> Result<(), IdentityError> {
        let Certificate { not_before, not_after, .. } = self.certificate;
        let file = || self.files.certificate.clone();
        if now < not_before {
            return Err(IdentityError::NotYetValid { file: file(), not_before, now });
        }
        if now > not_after {
            return Err(IdentityError::Expired { file: file(), not_after, now });
        }
        Ok(())
    }
}

fn read(what: &'static str, file: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(file).map_err(|source| IdentityError::Read { what, file: file.to_owned(), source })
}

/// Reads the certificates in a file, at least one.
fn certificates(
    what: &'static str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let text = read(what, file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = match found {
        Ok(found) if found.is_empty() => Err(pem::Error::NoItemsFound),
        found => found,
    };
    let file = || file.to_owned();
    found.map_err(|source| IdentityError::Pem { what: "certificate", file: file(), source })
}
