//! Connections and their bounds.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use headwater_identity::{Acceptor, ClientPeer, REFRESH_INTERVAL};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Access;
use crate::handler::{Answer, Client, KubeletLimits, Refusal};
use crate::stall::{WriteLimit, WriteTime};

/// The most bytes of a request's head: a command is in it, of at most 64 KiB, and the headers of a
/// client are a few hundred bytes.
const HEAD_BYTES_MAX: usize = 128 << 10;

/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// How long a response to a request in progress may take once the server stops.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// How long to wait after a connection could not be accepted: the process has too many files open.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Where clients come in, and who they are.
#[derive(Debug)]
pub enum Door {
    /// A socket that only the node's user and root can open: a person on the gateway.
    Local(UnixListener),
    /// A socket that one more user can open: the edge of the node, as a process with fewer rights.
    Shared {
        /// The listener.
        listener: UnixListener,
        /// The user.
        user: u32,
    },
    /// Without TLS, on loopback: every user of the machine may ask.
    Loopback(TcpListener),
    /// With TLS: clients prove who they are.
    Tls {
        /// The listener.
        listener: TcpListener,
        /// The certificates.
        acceptor: Acceptor,
        /// The clients that may ask.
        access: Access,
    },
}

/// What answers the requests of a door.
pub(crate) trait Server: Clone + Send + Sync + 'static {
    /// Its bounds.
    fn limits(&self) -> &KubeletLimits;

    /// The answer to a request. `time` is how long the client may take to read it: that of the bounds, unless this sets
    /// another one.
    fn answer(
        self,
        request: Request<Incoming>,
        client: Client,
        time: WriteTime,
        stop: CancellationToken,
    ) -> impl Future<Output = Answer> + Send;
}

/// The local socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("the socket {} of the kubelet's server cannot be created", socket.display())]
pub struct ListenError {
    socket: PathBuf,
    source: io::Error,
}

/// A connection of any door.
type Socket = Either<UnixStream, TcpStream>;

/// Makes the local socket, which only its owner and root can open. One that a killed process left is
/// replaced.
///
/// # Errors
/// See [`ListenError`].
pub fn listen_local(socket: &Path) -> Result<UnixListener, ListenError> {
    let failed = |source| ListenError { socket: socket.to_owned(), source };
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Makes a socket that the user and its primary group can open, besides its owner and root.
///
/// # Errors
/// See [`ListenError`].
pub fn listen_shared(socket: &Path, user: u32, group: u32) -> Result<Door, ListenError> {
    let failed = |source| ListenError { socket: socket.to_owned(), source };
    let listener = listen_local(socket)?;
    chown(socket, None, Some(group)).map_err(failed)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o660)).map_err(failed)?;
    Ok(Door::Shared { listener, user })
}

impl Door {
    /// The address of the listener; `None`: it is a socket in the file system.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Local(_) | Self::Shared { .. } => None,
            Self::Loopback(listener) | Self::Tls { listener, .. } => listener.local_addr().ok(),
        }
    }

    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Local(listener) => {
                listener.accept().await.map(|(stream, _)| Either::Left(stream))
            }
            Self::Shared { listener, user } => {
                let (stream, _) = listener.accept().await?;
                let own = nix::unistd::geteuid().as_raw();
                // Others are in the group of the socket, too.
                match stream.peer_cred()?.uid() {
                    peer if [0, own, *user].contains(&peer) => Ok(Either::Left(stream)),
                    peer => Err(io::Error::other(format!("user {peer} may not ask"))),
                }
            }
            Self::Loopback(listener) | Self::Tls { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                // Keystrokes of a terminal do not wait for one another.
                stream.set_nodelay(true)?;
                Ok(Either::Right(stream))
            }
        }
    }
}

/// Serves the clients of one door until `stop`. Streams end with it.
pub(crate) async fn serve(server: impl Server, door: Door, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(server.limits().connections));
    let connections = TaskTracker::new();
    let door = Arc::new(door);
    let mut refresh = tokio::time::interval(REFRESH_INTERVAL);
    loop {
        let accepted = async {
            let slot = slots.clone().acquire_owned().await;
            (slot, door.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accepted => accepted,
            // A client that keeps its connection is checked against the CAs of now.
            _ = refresh.tick() => {
                if let Door::Tls { acceptor, .. } = &*door {
                    acceptor.refresh();
                }
                continue;
            }
        };
        match (slot, accepted) {
            (Ok(slot), Ok(stream)) => {
                let (server, door, stop) = (server.clone(), door.clone(), stop.clone());
                connections.spawn(admit(server, door, stream, slot, stop));
            }
            (_, Err(error)) => {
                tracing::debug!(%error, "a connection to the kubelet's server was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
            (Err(_), _) => break,
        }
    }
    connections.close();
    connections.wait().await;
}

/// Finds out who the client is, and serves its connection.
async fn admit(
    server: impl Server,
    door: Arc<Door>,
    stream: Socket,
    slot: OwnedSemaphorePermit,
    stop: CancellationToken,
) {
    let Door::Tls { acceptor, access, .. } = &*door else {
        return connection(server, stream, Client::Local, slot, stop).await;
    };
    match timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
        Ok(Ok((stream, peer))) => {
            let (_, tls) = stream.get_ref();
            let server_name = tls.server_name().map(Into::into);
            let client = Client::Remote {
                server_name,
                peer: peer.map(|ClientPeer { certificate, trust }| (Arc::new(certificate), trust)),
                access: Arc::new(access.clone()),
            };
            connection(server, stream, client, slot, stop).await;
        }
        Ok(Err(error)) => {
            tracing::debug!(reason = error.reason(), %error, "a TLS handshake failed");
        }
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Serves one connection until the client closes it, it is upgraded, or the server stops.
async fn connection<S>(
    server: impl Server,
    stream: S,
    client: Client,
    slot: OwnedSemaphorePermit,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = *server.limits();
    let time = WriteTime::new(limits.write_within);
    let stream = WriteLimit::new(stream, time.clone());
    let service = service_fn(|request| {
        let (server, client, time) = (server.clone(), client.clone(), time.clone());
        let stop = stop.clone();
        async move {
            // An earlier answer of this connection may have had another one.
            time.set(limits.write_within);
            let answered = server.answer(request, client, time, stop).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(Refusal::response))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_within)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        // A client that disconnects or sends malformed requests is not an error.
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = timeout(DRAIN_TIME_MAX, connection).await;
        }
    }
    drop(slot);
}
