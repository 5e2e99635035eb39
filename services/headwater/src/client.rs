//! The connection of an asking command to what runs: the unix socket of its data directory.

use std::path::{Path, PathBuf};

use headwater_proto::operator::operator_client::OperatorClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// The file name of the operator API's socket in a data directory.
pub(crate) const SOCKET: &str = "headwater.sock";

/// The largest answer taken, in bytes: a node's whole replica must fit.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why what runs cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// There is no socket.
    #[error(
        "nothing runs in {dir}: start it with `headwater up`, or name its directory with --data"
    )]
    NotRunning {
        /// The data directory.
        dir: String,
    },
    /// There is a socket, but nobody answers.
    #[error("{socket} does not answer")]
    NoAnswer {
        /// The socket.
        socket: String,
        /// What happened.
        source: tonic::transport::Error,
    },
}

/// Connects to what runs in `data`.
///
/// # Errors
/// When nothing runs there.
pub(crate) async fn connect(data: &Path) -> Result<OperatorClient<Channel>, ConnectError> {
    let socket = data.join(SOCKET);
    if !socket.exists() {
        return Err(ConnectError::NotRunning { dir: data.display().to_string() });
    }
    let channel = channel(socket.clone()).await.map_err(|source| {
        if is_refused(&source) {
            ConnectError::NotRunning { dir: data.display().to_string() }
        } else {
            ConnectError::NoAnswer { socket: socket.display().to_string(), source }
        }
    })?;
    Ok(OperatorClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
}

/// A channel over the unix socket at `socket`.
///
/// # Errors
/// When nobody answers there.
pub(crate) async fn channel(socket: PathBuf) -> Result<Channel, tonic::transport::Error> {
    // The URI is not used: the connector knows the socket.
    Endpoint::from_static("http://headwater.local")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
}

/// A socket left behind by a killed process refuses: nothing runs.
fn is_refused(error: &tonic::transport::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        source = cause.source();
    }
    false
}
