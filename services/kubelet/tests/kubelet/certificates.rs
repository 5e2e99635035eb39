//! Who may ask, by certificate.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater_identity::{Acceptor, TlsFiles, system_clock};
use headwater_kubelet::access::Access;
use headwater_kubelet::{Door, KubeletLimits};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::bench::{Bench, WITHIN};

pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub(crate) struct Credentials {
    certificate: String,
    key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn issue(&self, user: &str, group: &str, uri: Option<&str>) -> Credentials {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![
            SanType::IpAddress([127, 0, 0, 1].into()),
            SanType::DnsName("*.edges.test".try_into().expect("a name")),
        ];
        params
            .subject_alt_names
            .extend(uri.map(|uri| SanType::URI(uri.try_into().expect("a URI"))));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Credentials { certificate, key: key.serialize_pem() }
    }
}

pub(crate) fn tls_door(
    dir: &Path,
    authority: &Authority,
) -> impl FnOnce(tokio::net::TcpListener) -> Door {
    let server = authority.issue("gw-1", "servers", None);
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).expect("written");
        path
    };
    let files = TlsFiles {
        ca: file("ca.crt", &authority.certificate),
        certificate: file("tls.crt", &server.certificate),
        key: file("tls.key", &server.key),
    };
    let acceptor = Acceptor::open_http1(files, system_clock()).expect("certificates");
    move |listener| Door::Tls { listener, acceptor, access: Access::default() }
}

/// The answer to a client with these credentials; empty if there is none.
async fn ask(bench: &Bench, authority: &Authority, own: Option<Credentials>, path: &str) -> String {
    let stream = bench.connect().await;
    let asking = async {
        let mut stream = connect(stream, authority, own, "127.0.0.1").await;
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = Vec::new();
        // A client whose certificate is refused learns it late.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    timeout(WITHIN, asking).await.expect("in time")
}

/// TLS with these credentials to the server that is called `name`.
pub(crate) async fn connect(
    stream: TcpStream,
    authority: &Authority,
    own: Option<Credentials>,
    name: &str,
) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    roots.add(der(&authority.certificate)).expect("a CA");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(Credentials { certificate, key }) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(vec![der(&certificate)], key).expect("a pair")
        }
    };
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    stream.expect("the server is the right one")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_may_ask_and_a_node_or_a_stranger_may_not() {
    let (dir, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
    let bench = Bench::start(KubeletLimits::default(), tls_door(dir.path(), &authority)).await;
    let own = |user, group, uri| Some(authority.issue(user, group, uri));
    for (client, path, status) in [
        (own("kube-apiserver-kubelet-client", "kubeadm:cluster-admins", None), "/pods", "200"),
        (own("any", "system:masters", None), "/healthz", "200"),
        (own("any", "system:masters", None), "/no/such/path", "404"),
        (None, "/pods", "401"),
        (None, "/healthz", "401"),
        (None, "/no/such/path", "401"),
        (own("mallory", "shop", None), "/pods", "403"),
        (own("system:node:gw-2", "system:nodes", None), "/pods", "403"),
        (own("gw-2", "system:masters", Some("headwater://node/gw-2")), "/pods", "403"),
    ] {
        let who = client.is_some();
        let answer = ask(&bench, &authority, client, path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path} {who}: {answer}");
    }
    let words = ask(&bench, &authority, own("mallory", "shop", None), "/containerLogs/a/b/c").await;
    assert!(
        words
            .contains("Forbidden (user=mallory, verb=get, resource=nodes, subresource(s)=[proxy])")
    );
    // Of another CA.
    let stranger = Authority::new().issue("any", "system:masters", None);
    assert_eq!(ask(&bench, &authority, Some(stranger), "/pods").await, "");
    // Without TLS.
    assert!(!bench.get("/pods").await.contains("200"));
}
