//! The requests by which a part is known to be ready.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use headwater_daemon::Readiness;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::certificates::{Authority, Credentials};
use crate::error::ClusterError;

/// The time limit of a connection, and of each read and write on it.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The part of an answer that has its status: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;

/// What a client of the servers needs for TLS.
#[derive(Clone)]
pub(crate) struct TlsClient(Arc<ClientConfig>);

impl TlsClient {
    /// The holder of `credentials`, who trusts `authority`.
    pub(crate) fn new(
        authority: &Authority,
        credentials: &Credentials,
    ) -> Result<Self, ClusterError> {
        let unreadable = |_| rustls::Error::General("a file is no PEM".to_owned());
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority.certificate()).map_err(unreadable)?)?;
        let chain = vec![certificate(&credentials.certificate).map_err(unreadable)?];
        let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes()).map_err(unreadable)?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        Ok(Self(Arc::new(config)))
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient")
    }
}

/// A GET request that is answered by status 200 when its server is ready.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) port: u16,
    pub(crate) path: &'static str,
    /// `None`: in the clear.
    pub(crate) tls: Option<TlsClient>,
}

/// The probes of a part, which is ready when all of them succeed.
#[derive(Debug)]
pub(crate) struct Probes(pub(crate) Vec<Probe>);

impl Readiness for Probes {
    fn is_ready(&mut self) -> bool {
        self.0.iter().all(|probe| probe.succeeds().unwrap_or(false))
    }
}

impl Probe {
    fn succeeds(&self) -> io::Result<bool> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let Some(TlsClient(config)) = &self.tls else { return self.ask(stream) };
        let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let connection = ClientConnection::new(Arc::clone(config), name);
        self.ask(StreamOwned::new(connection.map_err(io::Error::other)?, stream))
    }

    fn ask(&self, mut stream: impl Read + Write) -> io::Result<bool> {
        let path = self.path;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        stream.flush()?;
        let mut status = [0; STATUS_BYTES];
        stream.read_exact(&mut status)?;
        Ok(&status == b"HTTP/1.1 200")
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A probe of a server that sends `answer`.
    fn probed(answer: &'static [u8]) -> io::Result<bool> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 12];
            stream.read_exact(&mut request).expect("a request");
            assert_eq!(&request, b"GET /readyz ");
            stream.write_all(answer).expect("sent");
        });
        let result = Probe { port, path: "/readyz", tls: None }.succeeds();
        server.join().expect("no panic");
        result
    }

    #[test]
    fn only_status_200_is_ready() {
        assert!(probed(b"HTTP/1.1 200 OK\r\n\r\nok").expect("an answer"));
        assert!(!probed(b"HTTP/1.1 500 Internal Server Error\r\n\r\n").expect("an answer"));
        assert!(probed(b"HTTP/1.1").is_err());
    }
}
