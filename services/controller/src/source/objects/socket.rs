//! The listening socket: private from its first moment, and gone when it is dropped.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use super::SocketError;

/// Only the user of the source's process.
const SOCKET_MODE: u32 = 0o600;

/// A listening socket.
pub(super) struct SocketListener {
    path: PathBuf,
    listener: UnixListener,
}

impl SocketListener {
    /// Listens at `path`. A socket there without a listener is replaced.
    pub(super) fn bind(path: &Path) -> Result<Self, SocketError> {
        let name = || path.display().to_string();
        let failed = |source| SocketError::Open { socket: name(), source };
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                let reason = "there is a file of that name that is no socket";
                return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, reason)));
            }
            Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
                return Err(SocketError::InUse { socket: name() });
            }
            _ => {}
        }
        // It is bound beside its place and renamed, so that no client connects before the mode is
        // set.
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let bind = || {
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&beside)?;
            fs::set_permissions(&beside, Permissions::from_mode(SOCKET_MODE))?;
            fs::rename(&beside, path)?;
            Ok(listener)
        };
        let listener = bind().map_err(failed)?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        Ok(stream)
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}
