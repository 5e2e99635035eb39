//! The CAs of a control plane, and the certificates that they sign.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use headwater_daemon::DaemonError;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::error::ClusterError;

/// The names of the API inside a cluster.
const SERVICE_NAMES: [&str; 4] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// The user of requests that the API server passes on to other API servers.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// A certificate and its key, both PEM.
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A CA with its key.
#[derive(Debug)]
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The folder of the files that the parts read.
#[derive(Debug)]
pub(crate) struct Certificates {
    folder: PathBuf,
    /// It signs the servers, and the clients that the API knows.
    pub(crate) authority: Authority,
}

impl Certificates {
    /// Creates the CAs and the key of service accounts in `folder`, unless they are there, and
    /// issues all other certificates anew.
    ///
    /// # Errors
    /// The folder cannot be written, or its content is not ours.
    pub(crate) fn open(folder: PathBuf) -> Result<Self, ClusterError> {
        fs::create_dir_all(&folder).map_err(DaemonError::file(&folder))?;
        let authority = Authority::open(&folder, "ca")?;
        let front_proxy = Authority::open(&folder, "front-proxy-ca")?;
        let certificates = Self { folder, authority };
        certificates.open_service_accounts()?;
        let authority = &certificates.authority;
        certificates.write("server", &authority.issue_server()?)?;
        let kubelet_client = authority.issue_client("kube-apiserver", Some("system:masters"))?;
        certificates.write("kubelet-client", &kubelet_client)?;
        certificates.write("front-proxy", &front_proxy.issue_client(FRONT_PROXY, None)?)?;
        Ok(certificates)
    }

    /// Creates the key that signs the tokens of service accounts, unless it is there. The API server
    /// reads its public half from a file of its own.
    fn open_service_accounts(&self) -> Result<(), ClusterError> {
        let file = self.file("service-account.key");
        let key = if file.is_file() {
            let text = fs::read_to_string(&file).map_err(DaemonError::file(&file))?;
            KeyPair::from_pem(&text)?
        } else {
            let key = KeyPair::generate()?;
            write_private(&file, &key.serialize_pem())?;
            key
        };
        let file = self.file("service-account.pub");
        fs::write(&file, key.public_key_pem()).map_err(DaemonError::file(&file))?;
        Ok(())
    }

    /// The file of this name.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, credentials: &Credentials) -> Result<(), DaemonError> {
        let certificate = self.file(&format!("{name}.crt"));
        fs::write(&certificate, &credentials.certificate)
            .map_err(DaemonError::file(certificate))?;
        write_private(&self.file(&format!("{name}.key")), &credentials.key)
    }
}

impl Authority {
    /// The CA in `folder`, created if it is not there.
    fn open(folder: &Path, name: &str) -> Result<Self, ClusterError> {
        let certificate_file = folder.join(format!("{name}.crt"));
        let key_file = folder.join(format!("{name}.key"));
        let mut params = named(name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // The certificate is the last file: with it the CA is whole.
        if certificate_file.is_file() {
            let read = |path: &Path| fs::read_to_string(path).map_err(DaemonError::file(path));
            let certificate = read(&certificate_file)?;
            let key = KeyPair::from_pem(&read(&key_file)?)?;
            return Ok(Self { certificate, issuer: Issuer::new(params, key) });
        }
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        write_private(&key_file, &key.serialize_pem())?;
        fs::write(&certificate_file, &certificate).map_err(DaemonError::file(certificate_file))?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Its certificate, PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate by which the API knows `user`, in `group`.
    pub(crate) fn issue_client(
        &self,
        user: &str,
        group: Option<&str>,
    ) -> Result<Credentials, ClusterError> {
        let mut params = named(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    /// The certificate of every server on loopback.
    fn issue_server(&self) -> Result<Credentials, ClusterError> {
        let mut params = named("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
        for name in ["localhost"].iter().chain(&SERVICE_NAMES) {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<Credentials, ClusterError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Credentials { certificate, key: key.serialize_pem() })
    }
}

/// A subject as Kubernetes reads it: the user is the common name, the group the organization.
fn named(user: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, user);
    params
}

/// Writes a file that no other user may read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), DaemonError> {
    let mut options = File::options();
    let file = options.create(true).write(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(DaemonError::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authorities_stay_and_the_rest_is_issued_anew() {
        let scratch = tempfile::tempdir().expect("a folder");
        let open = || Certificates::open(scratch.path().to_owned()).expect("certificates");
        let read = |name: &str| fs::read_to_string(scratch.path().join(name)).expect(name);
        let certificates = open();
        let kept = ["ca.crt", "ca.key", "front-proxy-ca.crt", "service-account.pub"];
        let before = kept.map(read);
        let server = read("server.crt");
        let again = open();
        assert_eq!(kept.map(read), before);
        assert_ne!(read("server.crt"), server);
        assert_eq!(again.authority.certificate(), certificates.authority.certificate());
    }
}
