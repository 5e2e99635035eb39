//! The hub's end of TLS: accepts connections and reads the peer's certificate.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificate::Certificate;
use crate::clock::{Clock, TlsTime, unix_time};
use crate::config_reloader::{BuildConfig, ConfigReloader};
use crate::error::IdentityError;
use crate::files::{Material, TlsFiles};
use crate::peer_trust::{Distrust, PeerChain, PeerTrust, PeerVerifier, TrustVersion};

/// The application protocol between the parts: HTTP/2.
pub(crate) const ALPN: &[u8] = b"h2";

/// The protocol of a kubelet's server.
pub(crate) const HTTP1: &[u8] = b"http/1.1";

/// Accepts TLS connections. A peer's certificate must come from a CA in the files. A peer without
/// a certificate is accepted too: the service above refuses it with a readable message. Cheap to
/// clone.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<ConfigReloader<ServerSide>>,
}

/// A client that showed a certificate.
#[derive(Clone, Debug)]
pub struct ClientPeer {
    /// Its certificate.
    pub certificate: Certificate,
    /// The trust in it.
    pub trust: PeerTrust,
}

/// The configuration of a server, and how it verifies clients.
struct ServerSide {
    tls: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Whether a client must offer HTTP/2. One that offers nothing speaks HTTP/1.1.
    needs_http2: bool,
}

/// Why a connection was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The handshake failed, or the peer aborted it.
    #[error("TLS handshake failed: {0}")]
    Failed(#[source] io::Error),
    /// The peer does not offer HTTP/2.
    #[error("the peer does not offer HTTP/2")]
    NoHttp2,
    /// The peer's certificate comes from the CA, but cannot be parsed.
    #[error("the peer's certificate cannot be parsed: {0}")]
    Malformed(#[source] x509_cert::der::Error),
}

impl HandshakeError {
    /// The reasons of all errors, for metrics.
    pub const REASONS: [&str; 7] =
        ["broken", "expired", "malformed", "no_http2", "no_tls", "refused_by_peer", "untrusted"];

    /// The reason in a word, one of [`HandshakeError::REASONS`].
    pub fn reason(&self) -> &'static str {
        use rustls::{CertificateError, Error};
        let error = match self {
            Self::NoHttp2 => return "no_http2",
            Self::Malformed(_) => return "malformed",
            Self::Failed(error) => error.get_ref().and_then(|error| error.downcast_ref::<Error>()),
        };
        match error {
            Some(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => "expired",
            Some(Error::InvalidCertificate(_)) => "untrusted",
            Some(Error::NoApplicationProtocol) => "no_http2",
            Some(Error::AlertReceived(_)) => "refused_by_peer",
            Some(
                Error::InvalidMessage(_)
                | Error::PeerIncompatible(_)
                | Error::InappropriateMessage { .. },
            ) => "no_tls",
            _ => "broken",
        }
    }
}

impl Acceptor {
    /// Opens an acceptor over these files.
    ///
    /// # Errors
    /// When a file cannot be used, or the certificate is not valid now. A hub that no edge would
    /// trust must fail at its start.
    pub fn open(files: TlsFiles, clock: Clock) -> Result<Self, IdentityError> {
        Self::open_with(files, clock, http2_config)
    }

    /// Opens an acceptor of HTTP/1.1 over these files, for the clients of a kubelet: upgraded
    /// connections need it.
    ///
    /// # Errors
    /// As [`Acceptor::open`].
    pub fn open_http1(files: TlsFiles, clock: Clock) -> Result<Self, IdentityError> {
        Self::open_with(files, clock, http1_config)
    }

    fn open_with(
        files: TlsFiles,
        clock: Clock,
        config: BuildConfig<ServerSide>,
    ) -> Result<Self, IdentityError> {
        let config = ConfigReloader::open(files, clock, config)?;
        config.current().material.check(config.now())?;
        Ok(Self { config: Arc::new(config) })
    }

    /// The end of the current certificate's validity.
    pub fn not_after(&self) -> SystemTime {
        self.config.current().material.certificate.not_after
    }

    /// The current time of the clock that checks certificates.
    pub fn now(&self) -> SystemTime {
        self.config.now()
    }

    /// Reads the files again. A caller that does so every
    /// [`REFRESH_INTERVAL`](crate::REFRESH_INTERVAL) misses no change of them, even while no peer
    /// connects.
    pub fn refresh(&self) {
        self.config.refresh();
    }

    /// Performs the handshake; returns the connection and the peer, if it showed a certificate. The
    /// caller sets the deadline.
    ///
    /// # Errors
    /// See [`HandshakeError`]. The connection cannot be used afterwards.
    pub async fn accept<S>(
        &self,
        stream: S,
    ) -> Result<(TlsStream<S>, Option<ClientPeer>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let current = self.config.current();
        let accepted = TlsAcceptor::from(current.config.tls.clone()).accept(stream).await;
        let stream = accepted.map_err(HandshakeError::Failed)?;
        let (_, connection) = stream.get_ref();
        if current.config.needs_http2 && connection.alpn_protocol() != Some(ALPN) {
            return Err(HandshakeError::NoHttp2);
        }
        let Some(chain) = PeerChain::of(connection.peer_certificates()) else {
            return Ok((stream, None));
        };
        let certificate = Certificate::parse(&chain.leaf).map_err(HandshakeError::Malformed)?;
        let trust = PeerTrust::new(self.config.clone(), chain, current.version);
        Ok((stream, Some(ClientPeer { certificate, trust })))
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}

impl PeerVerifier for ConfigReloader<ServerSide> {
    fn version(&self) -> TrustVersion {
        self.version()
    }

    fn verify(&self, chain: &PeerChain) -> Result<TrustVersion, Distrust> {
        let (current, now) = (self.current(), unix_time(self.now()));
        let PeerChain { leaf, intermediates } = chain;
        let verified = current.config.verifier.verify_client_cert(leaf, intermediates, now);
        let ca = || current.material.files.ca.clone();
        verified.map_err(|source| Distrust { ca: ca(), source })?;
        Ok(current.version)
    }

    fn refresh(&self) {
        self.refresh();
    }
}

fn http2_config(material: &Material, clock: &Clock) -> Result<ServerSide, IdentityError> {
    config(material, clock, ALPN)
}

fn http1_config(material: &Material, clock: &Clock) -> Result<ServerSide, IdentityError> {
    config(material, clock, HTTP1)
}

fn config(
    material: &Material,
    clock: &Clock,
    protocol: &[u8],
) -> Result<ServerSide, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(material.roots.clone(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|source| IdentityError::Unusable {
                file: material.files.ca.clone(),
                source,
            })?;
    let key = SingleCertAndKey::from(material.key.clone());
    let time = Arc::new(TlsTime(clock.clone()));
    let mut config = ServerConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier.clone())
        .with_cert_resolver(Arc::new(key));
    config.alpn_protocols = vec![protocol.to_vec()];
    // A resumed session would skip the check of the certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(ServerSide { tls: Arc::new(config), verifier, needs_http2: protocol == ALPN })
}
