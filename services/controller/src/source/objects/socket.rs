//! The listening socket: private from its first moment, and gone when it is dropped.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::source::SourceError;

/// Only the user who started the source.
const SOCKET_MODE: u32 = 0o600;

/// A listening socket.
pub(super) struct SocketListener {
    path: PathBuf,
    listener: UnixListener,
}

impl SocketListener {
    /// Listens at `path`, in place of a socket that nobody listens on any more.
    pub(super) fn bind(path: &Path) -> Result<Self, SourceError> {
        let name = || path.display().to_string();
        let failed = |source| SourceError::Socket { socket: name(), source };
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                let reason = "there is a file of that name that is no socket";
                return Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, reason)));
            }
            Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
                return Err(SourceError::SocketInUse { socket: name() });
            }
            _ => {}
        }
        // Bound beside its place and moved there: nobody can connect before the mode is set.
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
        // If it is gone already, so be it.
        let _ = fs::remove_file(&self.path);
    }
}
