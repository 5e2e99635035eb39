//! The client's end of TLS: an edge connects to a hub, or a hub to a controller, and verifies the
//! server's certificate.

use std::error::Error;
use std::fmt;
use std::io;
use std::iter::successors;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::acceptor::{ALPN, HTTP1};
use crate::certificate::Certificate;
use crate::clock::{Clock, TlsTime, rfc3339, system_time, unix_time};
use crate::config_reloader::ConfigReloader;
use crate::error::IdentityError;
use crate::files::{Material, TlsFiles};
use crate::peer_trust::{Distrust, PeerChain, PeerTrust, PeerVerifier, TrustVersion};
use crate::principal::Principal;

/// Opens TLS connections to hubs. A hub's certificate must come from a CA in the files and name
/// the host. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ConfigReloader<ClientSide>>,
}

/// A server, as the handshake verified it.
#[derive(Clone, Debug)]
pub struct ServerPeer {
    /// Its certificate, unless it cannot be parsed.
    pub certificate: Option<Certificate>,
    /// The trust in it.
    pub trust: PeerTrust,
}

/// The configuration of a client, and how it verifies servers.
struct ClientSide {
    tls: Arc<ClientConfig>,
    verifier: Arc<WebPkiServerVerifier>,
}

/// Verifies the server of one name.
struct ServerVerifier {
    config: Arc<ConfigReloader<ClientSide>>,
    name: ServerName<'static>,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The node's own certificate cannot be used.
    #[error(transparent)]
    Own(#[from] IdentityError),
    /// The host is no name that a certificate can hold.
    #[error("{host:?} is neither a DNS name nor an IP address")]
    Name {
        /// The host.
        host: String,
        /// The parse error.
        source: InvalidDnsNameError,
    },
    /// The hub's certificate is not valid yet.
    #[error(
        "the server's certificate is valid from {}, but this machine's clock shows {}: set the clock",
        rfc3339(*.not_before), rfc3339(*.now)
    )]
    NotYetValid {
        /// The start of its validity.
        not_before: SystemTime,
        /// The time of this machine's clock.
        now: SystemTime,
    },
    /// The hub's certificate has expired.
    #[error(
        "the server's certificate was valid until {}, but this machine's clock shows {}: issue a new \
         certificate for it, or set the clock if it is wrong",
        rfc3339(*.not_after), rfc3339(*.now)
    )]
    Expired {
        /// The end of its validity.
        not_after: SystemTime,
        /// The time of this machine's clock.
        now: SystemTime,
    },
    /// Another CA issued the server's certificate.
    #[error(
        "the server's certificate is not from the CA in {ca}: name the ca.crt of the CA that issued \
         it, or check which server answers at this address"
    )]
    Authority {
        /// The file of the CA.
        ca: PathBuf,
    },
    /// The hub's certificate names other hosts.
    #[error(
        "the server's certificate names {}, but this process connects to {host}: connect to a name in \
         the certificate, or issue one that names {host} (--dns, --ip)",
        names(.presented)
    )]
    OtherName {
        /// The host that the edge connected to.
        host: String,
        /// The hosts that the certificate names.
        presented: Vec<String>,
    },
    /// The server does not speak HTTP/2.
    #[error("the server does not speak HTTP/2: it is no hub")]
    NoHttp2,
    /// Any other failure of the handshake.
    #[error("TLS handshake with the server failed: {0}")]
    Failed(#[source] io::Error),
}

/// The hub closed the connection because it does not accept this node's certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub refused this node's certificate: {why}")]
pub struct PeerRefusal {
    /// The hub's reason, and what to do.
    pub why: String,
}

impl Connector {
    /// Opens a connector over these files. A certificate that is not valid now is no error: an
    /// operator can set the clock or replace the file while the edge runs.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn open(files: TlsFiles, clock: Clock) -> Result<Self, IdentityError> {
        Ok(Self { config: Arc::new(ConfigReloader::open(files, clock, http2_config)?) })
    }

    /// Opens a connector of HTTP/1.1 over these files, for the server with a kubelet's paths: upgraded
    /// connections need it.
    ///
    /// # Errors
    /// As [`Connector::open`].
    pub fn open_http1(files: TlsFiles, clock: Clock) -> Result<Self, IdentityError> {
        Ok(Self { config: Arc::new(ConfigReloader::open(files, clock, http1_config)?) })
    }

    /// Checks that the certificate belongs to `wanted`.
    ///
    /// # Errors
    /// When it belongs to another principal, or names none.
    pub fn check_owner(&self, wanted: &Principal) -> Result<(), IdentityError> {
        let material = self.config.current().material;
        let file = material.files.certificate.clone();
        match &material.certificate.principal {
            Ok(found) if found == wanted => Ok(()),
            Ok(found) => {
                let (found, wanted) = (found.clone(), wanted.clone());
                Err(IdentityError::WrongPrincipal { file, found, wanted })
            }
            Err(source) => Err(IdentityError::NoPrincipal { file, source: source.clone() }),
        }
    }

    /// The end of the current certificate's validity.
    pub fn not_after(&self) -> SystemTime {
        self.config.current().material.certificate.not_after
    }

    /// Performs the handshake with `host`, a DNS name or an IP address. The caller sets the
    /// deadline.
    ///
    /// # Errors
    /// See [`ConnectError`]. A hub's refusal of the node's certificate arrives only with the first
    /// read: see [`RefusalDetector`](crate::RefusalDetector).
    pub async fn connect<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.connect_to(host, stream).await.map(|(stream, _)| stream)
    }

    /// As [`Connector::connect`]; also returns the server.
    ///
    /// # Errors
    /// As [`Connector::connect`].
    pub async fn connect_to<S>(
        &self,
        host: &str,
        stream: S,
    ) -> Result<(TlsStream<S>, ServerPeer), ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let current = self.config.current();
        current.material.check(self.config.now())?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|source| ConnectError::Name { host: host.to_owned(), source })?;
        let connector = TlsConnector::from(current.config.tls.clone());
        let connected = connector.connect(name.clone(), stream).await;
        let stream = connected.map_err(|error| failed(error, host, &current.material))?;
        let (_, connection) = stream.get_ref();
        // Any server that offers no choice speaks HTTP/1.1.
        let is_http2 = current.config.tls.alpn_protocols.iter().any(|protocol| protocol == ALPN);
        if is_http2 && connection.alpn_protocol() != Some(ALPN) {
            return Err(ConnectError::NoHttp2);
        }
        // TLS 1.3 verified a certificate, so there is one.
        let chain = PeerChain::of(connection.peer_certificates())
            .ok_or_else(|| ConnectError::Failed(io::ErrorKind::InvalidData.into()))?;
        let certificate = Certificate::parse(&chain.leaf).ok();
        let verifier = Arc::new(ServerVerifier { config: self.config.clone(), name });
        let trust = PeerTrust::new(verifier, chain, current.version);
        Ok((stream, ServerPeer { certificate, trust }))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl PeerVerifier for ServerVerifier {
    fn version(&self) -> TrustVersion {
        self.config.version()
    }

    fn verify(&self, chain: &PeerChain) -> Result<TrustVersion, Distrust> {
        let (current, now) = (self.config.current(), unix_time(self.config.now()));
        let PeerChain { leaf, intermediates } = chain;
        let verifier = &current.config.verifier;
        let verified = verifier.verify_server_cert(leaf, intermediates, &self.name, &[], now);
        let ca = || current.material.files.ca.clone();
        verified.map_err(|source| Distrust { ca: ca(), source })?;
        Ok(current.version)
    }

    fn refresh(&self) {
        self.config.refresh();
    }
}

/// Looks through an error of an established connection for the peer's refusal of our certificate.
/// With TLS 1.3 the peer's alert arrives only after the handshake.
pub(crate) fn peer_refusal(error: &(dyn Error + 'static)) -> Option<PeerRefusal> {
    let mut chain = successors(Some(error), |&error| error.source());
    let alert = chain.find_map(|error| match tls(error) {
        Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
        _ => None,
    })?;
    reason(alert).map(|why| PeerRefusal { why: why.to_owned() })
}

/// The TLS error that `error` is or wraps: an I/O error does not return the error that it wraps as
/// its source.
fn tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let carried = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
    let carried = carried.and_then(|error| error.downcast_ref::<rustls::Error>());
    error.downcast_ref().or(carried)
}

fn reason(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => {
            "it is not valid now by the hub's clock: issue a new one, or set the clocks"
        }
        // `DecryptError`: both CAs have the same name.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "another CA issued it: issue one with the hub's CA"
        }
        AlertDescription::CertificateRevoked => "it was revoked: enrol the node anew",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "it is not a node's certificate: issue one for a node",
        AlertDescription::CertificateRequired => "the hub requires one: issue one for this node",
        _ => return None,
    })
}

fn failed(error: io::Error, host: &str, material: &Material) -> ConnectError {
    let Some(rustls::Error::InvalidCertificate(why)) = tls(&error) else {
        return ConnectError::Failed(error);
    };
    match why {
        CertificateError::NotValidYetContext { time, not_before } => ConnectError::NotYetValid {
            not_before: system_time(*not_before),
            now: system_time(*time),
        },
        CertificateError::ExpiredContext { time, not_after } => {
            ConnectError::Expired { not_after: system_time(*not_after), now: system_time(*time) }
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ConnectError::Authority { ca: material.files.ca.clone() }
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            ConnectError::OtherName { host: host.to_owned(), presented: presented.clone() }
        }
        _ => ConnectError::Failed(error),
    }
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() { "no host".to_owned() } else { presented.join(", ") }
}

fn http2_config(material: &Material, clock: &Clock) -> Result<ClientSide, IdentityError> {
    config(material, clock, ALPN)
}

fn http1_config(material: &Material, clock: &Clock) -> Result<ClientSide, IdentityError> {
    config(material, clock, HTTP1)
}

fn config(
    material: &Material,
    clock: &Clock,
    protocol: &[u8],
) -> Result<ClientSide, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(material.roots.clone(), provider.clone())
            .build()
            .map_err(|source| IdentityError::Unusable {
                file: material.files.ca.clone(),
                source,
            })?;
    let key = SingleCertAndKey::from(material.key.clone());
    let time = Arc::new(TlsTime(clock.clone()));
    let mut config = ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(verifier.clone())
        .with_client_cert_resolver(Arc::new(key));
    config.alpn_protocols = vec![protocol.to_vec()];
    // A resumed connection would skip the check of the certificates.
    config.resumption = Resumption::disabled();
    Ok(ClientSide { tls: Arc::new(config), verifier })
}
