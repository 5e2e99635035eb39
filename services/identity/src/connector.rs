//! The edge's end: whether it is a hub that answers.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::acceptor::ALPN;
use crate::clock::{Clock, TlsTime, rfc3339, system_time};
use crate::error::IdentityError;
use crate::files::{Material, TlsFiles};
use crate::principal::Principal;
use crate::reloading::Reloading;

/// Connects to hubs that a CA vouches for, by name. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    config: Arc<Reloading<ClientConfig>>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The own certificate cannot be used.
    #[error(transparent)]
    Own(#[from] IdentityError),
    /// What is to be connected to has no name that a certificate could hold.
    #[error("{host:?} is neither a DNS name nor an IP address")]
    Name {
        /// The name.
        host: String,
        /// Why not.
        source: InvalidDnsNameError,
    },
    /// The hub's certificate is not valid yet.
    #[error(
        "the hub's certificate is valid from {}, and this machine's clock says {}: set the clock",
        rfc3339(*.not_before), rfc3339(*.now)
    )]
    NotYetValid {
        /// From when it is valid.
        not_before: SystemTime,
        /// What the clock says.
        now: SystemTime,
    },
    /// The hub's certificate is not valid any more.
    #[error(
        "the hub's certificate was valid until {}, and this machine's clock says {}: issue the hub \
         a new one, or set the clock if it is wrong",
        rfc3339(*.not_after), rfc3339(*.now)
    )]
    Expired {
        /// Until when it was valid.
        not_after: SystemTime,
        /// What the clock says.
        now: SystemTime,
    },
    /// Another CA issued the hub's certificate.
    #[error(
        "the hub's certificate is not from the CA in {ca}: name the ca.crt of the CA that issued \
         it, or find out who answers at this address"
    )]
    Authority {
        /// The file of the CA.
        ca: PathBuf,
    },
    /// The hub has another name.
    #[error(
        "the hub's certificate is for {}, and the hub is called {host} here: call it by one of \
         its names, or issue it a certificate with this one (--dns, --ip)",
        names(.presented)
    )]
    OtherName {
        /// What the hub was called.
        host: String,
        /// What its certificate says.
        presented: Vec<String>,
    },
    /// The hub does not speak HTTP/2.
    #[error("what answers does not speak HTTP/2: it is no hub")]
    NoHttp2,
    /// Anything else.
    #[error("no TLS with the hub: {0}")]
    Failed(#[source] io::Error),
}

/// The peer closed the connection for what it thinks of our certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub refused this node's certificate: {why}")]
pub struct RefusedByPeer {
    /// What it said, and what to do.
    pub why: String,
}

impl Connector {
    /// A connector by these files. A certificate that is not valid now is no error: the clock
    /// may be set, and the file be replaced, while the edge runs.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn open(files: TlsFiles, clock: Clock) -> Result<Self, IdentityError> {
        Ok(Self { config: Arc::new(Reloading::open(files, clock, config)?) })
    }

    /// Checks that the certificate is of `wanted`.
    ///
    /// # Errors
    /// When it is of somebody else, or of nobody.
    pub fn check_owner(&self, wanted: &Principal) -> Result<(), IdentityError> {
        let (material, _) = self.config.current();
        let file = material.files.certificate.clone();
        match &material.certificate.principal {
            Ok(found) if found == wanted => Ok(()),
            Ok(found) => {
                let (found, wanted) = (found.clone(), wanted.clone());
                Err(IdentityError::SomebodyElse { file, found, wanted })
            }
            Err(source) => Err(IdentityError::Nobody { file, source: source.clone() }),
        }
    }

    /// Until when the present certificate is valid.
    pub fn not_after(&self) -> SystemTime {
        self.config.current().0.certificate.not_after
    }

    /// Shakes hands with `host`, a DNS name or an IP address. The deadline is the caller's.
    ///
    /// # Errors
    /// See [`ConnectError`]. That the peer refuses the own certificate shows only when something
    /// is read: see [`Judged`](crate::Judged).
    pub async fn connect<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (material, config) = self.config.current();
        material.check(self.config.now())?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|source| ConnectError::Name { host: host.to_owned(), source })?;
        let connected = TlsConnector::from(config).connect(name, stream).await;
        let stream = connected.map_err(|error| failed(error, host, &material))?;
        if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err(ConnectError::NoHttp2);
        }
        Ok(stream)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// Finds out of an error of an established connection whether the peer ended it because of our
/// certificate: with TLS 1.3 it says so only after the handshake.
pub(crate) fn refused_by_peer(error: &(dyn Error + 'static)) -> Option<RefusedByPeer> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(rustls::Error::AlertReceived(alert)) = tls(error) {
            return refusal(*alert).map(|why| RefusedByPeer { why: why.to_owned() });
        }
        cause = error.source();
    }
    None
}

/// The TLS error that an error is, or carries as an I/O error does: not as its source.
fn tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let carried = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
    let carried = carried.and_then(|error| error.downcast_ref::<rustls::Error>());
    error.downcast_ref().or(carried)
}

fn refusal(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateExpired => {
            "by the hub's clock it is not valid now: issue a new one, or set the clocks"
        }
        // The second where both CAs have one name.
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "another CA issued it than the hub asks: issue one with the hub's CA"
        }
        AlertDescription::CertificateRevoked => "it was revoked: enrol the node anew",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "it cannot be used for this: issue one for a node",
        AlertDescription::CertificateRequired => "it wants one: issue one for this node",
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
    if presented.is_empty() { "no address at all".to_owned() } else { presented.join(", ") }
}

fn config(material: &Material, clock: &Clock) -> Result<ClientConfig, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let key = SingleCertAndKey::from(material.key.clone());
    let time = Arc::new(TlsTime(clock.clone()));
    let mut config = ClientConfig::builder_with_details(provider, time)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(material.roots.clone())
        .with_client_cert_resolver(Arc::new(key));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Each connection looks at the certificates anew.
    config.resumption = Resumption::disabled();
    Ok(config)
}
