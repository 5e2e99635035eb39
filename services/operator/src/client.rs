//! The client: it connects to a running process by the unix socket in its data directory.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use headwater_proto::operator::VersionRequest;
use headwater_proto::operator::operator_client::OperatorClient;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::owner::{as_owner, owner_of};

/// The file name of the operator API's socket in a data directory.
pub const SOCKET: &str = "headwater.sock";

/// The largest response, in bytes: a node's whole replica must fit.
pub const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// The time limit for a server to report its version.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// The keepalive interval: a stopped or hanging process is detected after twice this time.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// The version of this program and of its operator API.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The reason why the client cannot connect to the running process.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no socket.
    #[error(
        "nothing runs in {dir}: start it with `headwater up`, or name its directory with --data"
    )]
    NotRunning {
        /// The data directory.
        dir: String,
    },
    /// There is no such directory.
    #[error(
        "there is no directory {dir}: start `headwater up MANIFESTS --data {dir}`, or name with \
         --data the directory of what runs"
    )]
    NoDirectory {
        /// The data directory.
        dir: String,
    },
    /// The directory or the socket belongs to another user.
    #[error("permission denied: {path} belongs to {owner}; {}", as_owner(owner))]
    NotAllowed {
        /// The data directory, or the socket in it.
        path: String,
        /// Its owner.
        owner: String,
    },
    /// The socket accepts connections but does not respond.
    #[error(
        "the process that listens on {socket} does not answer within {}s: is it stopped, or \
         overloaded?", GREETING_MAX.as_secs()
    )]
    NoAnswer {
        /// The socket.
        socket: String,
    },
    /// The server uses another protocol.
    #[error(
        "the process that listens on {socket} is not headwater: name the data directory of \
         headwater with --data"
    )]
    Stranger {
        /// The socket.
        socket: String,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another build runs.
    #[error(
        "what runs in {dir} is headwater {found}, and this is {VERSION}: ask with the build that \
         runs, or stop it and start this one there"
    )]
    Version {
        /// The data directory.
        dir: String,
        /// The version of the running process.
        found: String,
    },
}

/// Connects to the process that runs in `data`.
///
/// # Errors
/// When nothing runs there.
pub async fn connect(data: &Path) -> Result<OperatorClient<Channel>, ConnectError> {
    let dir = || data.display().to_string();
    let path = data.join(SOCKET);
    let socket = || path.display().to_string();
    let not_allowed = |path: &Path| ConnectError::NotAllowed {
        path: path.display().to_string(),
        owner: owner_of(path),
    };
    for (path, missing) in [
        (data, ConnectError::NoDirectory { dir: dir() }),
        (&path, ConnectError::NotRunning { dir: dir() }),
    ] {
        match path.metadata() {
            Ok(_) => {}
            // A path that this user may not look at is not missing.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(not_allowed(path));
            }
            Err(_) => return Err(missing),
        }
    }
    let channel = channel(path.clone()).await.map_err(|source| match kind(&source) {
        // A killed process left the socket behind.
        Some(io::ErrorKind::ConnectionRefused) => ConnectError::NotRunning { dir: dir() },
        Some(io::ErrorKind::PermissionDenied) => not_allowed(&path),
        _ => ConnectError::Stranger { socket: socket(), source: source.into() },
    })?;
    let mut operator = OperatorClient::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX);
    let found = match tokio::time::timeout(GREETING_MAX, operator.version(VersionRequest {})).await
    {
        Err(_) => return Err(ConnectError::NoAnswer { socket: socket() }),
        Ok(Ok(answer)) => answer.into_inner().version,
        Ok(Err(status)) if status.code() == tonic::Code::Unimplemented => {
            "of an older version".to_owned()
        }
        Ok(Err(status)) => {
            return Err(ConnectError::Stranger { socket: socket(), source: status.into() });
        }
    };
    if found != VERSION {
        return Err(ConnectError::Version { dir: dir(), found });
    }
    Ok(operator)
}

/// Opens a channel over the unix socket at `socket`.
///
/// # Errors
/// When no process listens there.
pub async fn channel(socket: PathBuf) -> Result<Channel, tonic::transport::Error> {
    // The URI has no effect: the connector has the socket.
    Endpoint::from_static("http://headwater.local")
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true)
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
}

/// Returns the system's error of a failed connection.
fn kind(error: &tonic::transport::Error) -> Option<io::ErrorKind> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        source = cause.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use headwater_proto::FILE_DESCRIPTOR_SET;
    use tokio_stream::wrappers::UnixListenerStream;

    use super::*;

    fn text(error: &ConnectError) -> String {
        headwater_telemetry::error_chain(error)
    }

    #[tokio::test]
    async fn without_a_process_the_error_names_what_to_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let none = connect(&dir.path().join("none")).await.expect_err("there is none");
        assert!(text(&none).contains("headwater up MANIFESTS --data"), "{none}");
        let idle = connect(dir.path()).await.expect_err("nothing runs");
        assert!(matches!(idle, ConnectError::NotRunning { .. }), "{idle}");
        drop(UnixListener::bind(dir.path().join(SOCKET)).expect("a socket"));
        let left = connect(dir.path()).await.expect_err("the socket has no process");
        assert!(matches!(left, ConnectError::NotRunning { .. }), "{left}");
    }

    #[tokio::test]
    async fn a_foreign_server_is_recognised() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join(SOCKET)).expect("a socket");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                // The client may close first.
                let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
            }
        });
        let error = connect(dir.path()).await.expect_err("a mail server");
        assert!(matches!(error, ConnectError::Stranger { .. }), "{error}");
    }

    #[tokio::test]
    async fn another_build_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = tokio::net::UnixListener::bind(dir.path().join(SOCKET)).expect("a socket");
        // A server that knows none of our requests.
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("a service");
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(reflection)
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        let error = connect(dir.path()).await.expect_err("it is older");
        assert!(text(&error).contains("headwater of an older version, and this is"), "{error}");
    }
}
