//! The socket of the local API.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::net::UnixListener;

use crate::exit::StartError;

/// `sockaddr_un` has 108 bytes for the path; the last one is zero.
const PATH_BYTES_MAX: usize = 107;

/// The suffix of a socket until its mode is set.
const UNREADY: &str = ".new";

/// Listens on `path`. The socket appears there when its mode admits only this user, and replaces one
/// that a killed process left behind.
pub(crate) fn bind(path: &Path) -> Result<UnixListener, StartError> {
    let mut unready = path.as_os_str().to_owned();
    unready.push(UNREADY);
    let bytes = unready.len();
    if bytes > PATH_BYTES_MAX {
        let path = path.to_owned();
        let (bytes, most) = (bytes - UNREADY.len(), PATH_BYTES_MAX - UNREADY.len());
        return Err(StartError::SocketPath { path, bytes, most });
    }
    let unready = Path::new(&unready);
    let listen = || {
        match fs::remove_file(unready) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(unready)?;
        fs::set_permissions(unready, Permissions::from_mode(0o600))?;
        fs::rename(unready, path)?;
        Ok(listener)
    };
    listen().map_err(|source| StartError::Socket { path: path.to_owned(), source })
}
