//! Where the server of pods listens: a socket of this machine, or the port of a hub.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use headwater_identity::{ConnectError, Connector};
use http::uri::Authority;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A connection, whatever carries it.
pub(super) type ByteStream = Box<dyn Carrier>;

/// What carries bytes both ways.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Carrier for C {}

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    /// A socket.
    Socket(PathBuf),
    /// A port; `None`: without TLS.
    Port { host: String, port: u16, tls: Option<Connector> },
}

/// The address of a hub cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubAddressError {
    /// It has no valid form.
    #[error("{0:?} is no address: name a host and a port, such as hub.example.org:10350")]
    Malformed(String),
    /// It leads beyond this machine.
    #[error(
        "{0} is beyond this machine: name the certificates of TLS (--tls-ca, --tls-cert, --tls-key)"
    )]
    NoTls(String),
}

/// A connection is not made.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The server does not accept it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The handshake fails.
    #[error(transparent)]
    Tls(#[from] ConnectError),
}

impl Endpoint {
    /// The port of a hub at `address`.
    pub(super) fn hub(address: &str, tls: Option<Connector>) -> Result<Self, HubAddressError> {
        let malformed = || HubAddressError::Malformed(address.to_owned());
        let authority: Authority = address.parse().map_err(|_| malformed())?;
        let port = authority.port_u16().ok_or_else(malformed)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_loopback =
            host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(malformed());
        }
        if tls.is_none() && !is_loopback {
            return Err(HubAddressError::NoTls(address.to_owned()));
        }
        Ok(Self::Port { host, port, tls })
    }

    pub(super) async fn connect(&self) -> Result<ByteStream, EndpointError> {
        match self {
            Self::Socket(socket) => Ok(Box::new(UnixStream::connect(socket).await?)),
            Self::Port { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                match tls {
                    Some(tls) => Ok(Box::new(tls.connect(host, stream).await?)),
                    None => Ok(Box::new(stream)),
                }
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(socket) => write!(f, "{}", socket.display()),
            Self::Port { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Port { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_is_a_host_and_a_port_and_without_tls_on_loopback_alone() {
        for address in ["127.0.0.1:10350", "localhost:1", "[::1]:10350"] {
            let endpoint = Endpoint::hub(address, None).expect(address);
            assert_eq!(endpoint.to_string(), address);
        }
        for address in ["", "hub", "hub:", ":1", "hub:x", "a@localhost:1", "localhost:99999"] {
            let malformed = HubAddressError::Malformed(address.to_owned());
            assert_eq!(Endpoint::hub(address, None).expect_err(address), malformed);
        }
        let beyond = "hub.example.org:10350";
        let error = Endpoint::hub(beyond, None).expect_err("no TLS");
        assert_eq!(error, HubAddressError::NoTls(beyond.to_owned()));
    }
}
