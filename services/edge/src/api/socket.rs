//! The socket of the local API, and which users it admits.
//!
//! The mode of the socket keeps other users out where its directory does not. The kernel names the
//! user of every connection, and a connection of another user is closed before a byte is read.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use futures::{Stream, StreamExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;

use crate::config::LocalUser;
use crate::exit::StartError;

/// `sockaddr_un` has 108 bytes for the path; the last one is zero.
const PATH_BYTES_MAX: usize = 107;

/// The suffix of a socket until its mode is set.
const UNREADY: &str = ".new";

const ROOT: u32 = 0;

/// The socket of the local API.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    listener: UnixListener,
    admission: Admission,
}

/// The users that the local API admits, besides root.
#[derive(Clone, Copy, Debug)]
struct Admission {
    /// The edge's own user.
    own: u32,
    configured: Option<u32>,
}

impl LocalSocket {
    /// The connections of admitted users.
    pub(crate) fn connections(self) -> impl Stream<Item = std::io::Result<UnixStream>> + Send {
        let Self { listener, admission } = self;
        UnixListenerStream::new(listener).filter_map(move |accepted| {
            std::future::ready(match accepted {
                Ok(stream) => admission.admitted(stream).map(Ok),
                Err(error) => Some(Err(error)),
            })
        })
    }
}

impl Admission {
    /// The connection, if it is of an admitted user; else it is closed.
    fn admitted(self, stream: UnixStream) -> Option<UnixStream> {
        match stream.peer_cred() {
            Ok(peer) if self.admits(peer.uid()) => Some(stream),
            Ok(peer) => {
                let (user, process) = (peer.uid(), peer.pid());
                tracing::warn!(user, process, "the local API refused a connection: another user");
                None
            }
            // It has ended already.
            Err(error) => {
                tracing::debug!(%error, "a connection to the local API has no known user");
                None
            }
        }
    }

    fn admits(self, user: u32) -> bool {
        user == ROOT || user == self.own || Some(user) == self.configured
    }
}

/// Listens on `path`. The socket appears there when its mode admits only this user, or also the
/// group of `local_user`. It replaces one that a killed process left behind.
pub(crate) fn bind(path: &Path, local_user: Option<LocalUser>) -> Result<LocalSocket, StartError> {
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
        if let Some(LocalUser { group, .. }) = local_user {
            chown(unready, None, Some(group))?;
        }
        let mode = if local_user.is_some() { 0o660 } else { 0o600 };
        fs::set_permissions(unready, Permissions::from_mode(mode))?;
        let own = fs::metadata(unready)?.uid();
        fs::rename(unready, path)?;
        let admission = Admission { own, configured: local_user.map(|local| local.user) };
        Ok(LocalSocket { listener, admission })
    };
    listen().map_err(|source| StartError::Socket { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_edges_user_and_the_configured_one_are_admitted() {
        let admission = Admission { own: 990, configured: Some(1000) };
        let admitted: Vec<u32> = (0..2000).filter(|user| admission.admits(*user)).collect();
        assert_eq!(admitted, [0, 990, 1000]);
        assert!(!Admission { own: 990, configured: None }.admits(1000));
    }
}
