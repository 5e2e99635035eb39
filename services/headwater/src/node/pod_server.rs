//! The kubelet's server of a node in this process: its doors, and the tasks that serve them.

use std::net::SocketAddr;
use std::path::PathBuf;

use headwater_edge::LocalUser;
use headwater_edged::NodePods;
use headwater_identity::{Acceptor, IdentityError, system_clock};
use headwater_kubelet::{Door, Kubelet, KubeletLimits, ListenError, listen_local, listen_shared};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::kubelet::Listen;

/// Why the server does not listen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodServerError {
    /// The local socket cannot be made.
    #[error(transparent)]
    Local(#[from] ListenError),
    /// The address is taken, or not of this machine.
    #[error("the kubelet's server cannot listen at {address}: set another kubelet.listen")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// A certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// A socket for an edge in another process, and the user of that.
pub(crate) struct SharedSocket {
    pub(crate) socket: PathBuf,
    pub(crate) user: LocalUser,
}

/// The doors of a server that is not served yet: the node states its port before its pods are known.
pub(crate) struct PodDoors {
    sockets: Vec<PathBuf>,
    doors: Vec<Door>,
    /// The port for API servers.
    pub(crate) port: Option<u16>,
}

/// A server that runs.
pub(crate) struct PodServer {
    sockets: Vec<PathBuf>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl PodDoors {
    /// Opens the doors.
    ///
    /// # Errors
    /// See [`PodServerError`].
    pub(crate) async fn open(
        socket: PathBuf,
        listen: &Listen,
        shared: Option<SharedSocket>,
    ) -> Result<Self, PodServerError> {
        let mut doors = vec![Door::Local(listen_local(&socket)?)];
        let mut sockets = vec![socket];
        if let Some(SharedSocket { socket, user }) = shared {
            doors.push(listen_shared(&socket, user.user, user.group)?);
            sockets.push(socket);
        }
        doors.extend(door(listen).await?);
        let port = doors.iter().find_map(Door::address).map(|address| address.port());
        Ok(Self { sockets, doors, port })
    }

    /// Serves these pods through all doors.
    pub(crate) fn serve(self, pods: NodePods) -> PodServer {
        let (kubelet, stop) =
            (Kubelet::new(pods, KubeletLimits::default()), CancellationToken::new());
        let serve = |door| tokio::spawn(kubelet.clone().serve(door, stop.clone()));
        let tasks = self.doors.into_iter().map(serve).collect();
        PodServer { sockets: self.sockets, stop, tasks }
    }
}

/// Opens the door for API servers; `None`: there is none.
///
/// # Errors
/// See [`PodServerError`].
pub(crate) async fn door(listen: &Listen) -> Result<Option<Door>, PodServerError> {
    let bind = async |address: SocketAddr| {
        let bound = TcpListener::bind(address).await;
        bound.map_err(|source| PodServerError::Address { address, source })
    };
    Ok(match listen {
        Listen::Off => None,
        Listen::Loopback(address) => Some(Door::Loopback(bind(*address).await?)),
        Listen::Tls(address, files, access) => {
            let acceptor = Acceptor::open_http1(files.clone(), system_clock())?;
            let listener = bind(*address).await?;
            Some(Door::Tls { listener, acceptor, access: access.clone() })
        }
    })
}

impl PodServer {
    /// Ends its streams and connections.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "the kubelet's server has failed");
            }
        }
        // A socket without a server would mislead clients.
        for socket in self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}
