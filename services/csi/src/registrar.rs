//! The task that follows the folder of registrations: it asks each new socket which driver it is, and forgets a driver
//! whose socket has gone. A plugin that hangs delays no other.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::client::DriverClient;
use crate::registry::{Candidate, Driver};
use crate::sockets::{Change, SocketId, Sockets};
use crate::volumes::Inner;

/// The interval between two looks at the folder: a listing of a folder of a few files.
const LOOK: Duration = Duration::from_millis(500);

/// Follows the folder until cancelled.
pub(crate) async fn run(inner: Arc<Inner>, cancel: CancellationToken) {
    let folder = inner.layout.registrations();
    let mut sockets = Sockets::default();
    let mut tasks: JoinSet<(PathBuf, SocketId, Result<String, String>)> = JoinSet::new();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            Some(ended) = tasks.join_next() => {
                let Ok((path, id, result)) = ended else { continue };
                let is_known = sockets.end(&path, id, result.is_ok(), Instant::now());
                match result {
                    Ok(name) if is_known => {
                        if let Some(Driver { version, node_id, volumes_max, .. }) =
                            inner.registry().get(&name)
                        {
                            tracing::info!(driver = name, %version, node_id, volumes_max, "a storage driver is registered");
                        }
                        inner.on_registered();
                    }
                    // Its socket has gone meanwhile.
                    Ok(_) => drop(inner.registry().remove_at(&path)),
                    Err(error) => {
                        tracing::warn!(socket = %path.display(), error, "a plugin is not registered");
                    }
                }
            }
            _ = look.tick() => {
                let found = {
                    let folder = folder.clone();
                    tokio::task::spawn_blocking(move || list(&folder)).await
                };
                let found = match found {
                    Ok(Ok(found)) => found,
                    Ok(Err(error)) => {
                        tracing::warn!(folder = %folder.display(), %error, "the folder of plugins cannot be listed");
                        continue;
                    }
                    Err(_) => continue,
                };
                for change in sockets.look(&found, Instant::now()) {
                    match change {
                        Change::Forget(path) => {
                            if let Some(name) = inner.registry().remove_at(&path) {
                                tracing::info!(driver = name, "a storage driver has gone");
                            }
                        }
                        Change::Register(path, id) => {
                            let inner = inner.clone();
                            tasks.spawn(async move {
                                let result = register(&inner, &path).await;
                                (path, id, result)
                            });
                        }
                    }
                }
            }
        }
    }
}

/// Asks the plugin behind a socket who it is, and registers it. It gets the outcome.
async fn register(inner: &Inner, socket: &Path) -> Result<String, String> {
    let plugin = DriverClient::new(socket.to_owned(), None);
    let info = plugin.info().await.map_err(|error| error.to_string())?;
    let result = match Candidate::of(info, socket) {
        Ok(candidate) => accept(inner, candidate, socket).await,
        Err(why) => Err(why),
    };
    if let Err(error) = plugin.notify(result.as_ref().err().cloned()).await {
        // It is registered, and serves its own socket.
        tracing::warn!(socket = %socket.display(), %error, "a plugin does not take its answer");
    }
    result
}

async fn accept(inner: &Inner, candidate: Candidate, socket: &Path) -> Result<String, String> {
    inner.registry().check(&candidate, socket)?;
    let client = DriverClient::new(candidate.endpoint.clone(), None);
    let node = client.node_info().await.map_err(|error| error.to_string())?;
    let driver = candidate.driver(&node, socket)?;
    let mut registry = inner.registry();
    // Another one of this name may have registered meanwhile.
    registry.check(&candidate, socket)?;
    registry.insert(candidate.name.clone(), driver);
    Ok(candidate.name)
}

/// The sockets in the folder.
fn list(folder: &Path) -> io::Result<BTreeMap<PathBuf, SocketId>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // Without following links; it may have gone.
        let Ok(metadata) = entry.metadata() else { continue };
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if metadata.file_type().is_socket() && !is_hidden {
            // A change of its mode makes it no other socket.
            let made_ns =
                i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
            found.insert(entry.path(), SocketId { inode: metadata.ino(), made_ns });
        }
    }
    Ok(found)
}
