//! The data directory. It belongs to one part, and one process at a time uses it. Its stamps record
//! the part and the version of the layout.
//!
//! ```text
//! DIR/version            the layout's version
//! DIR/owner              the part that it belongs to; for an edge, with the node
//! DIR/lock               locked by the process that uses the directory
//! DIR/headwater.sock     the operator API
//! DIR/metrics.addr       the address of metrics and health, while they are served
//! DIR/cloud/{log,controller,hub}/
//! DIR/nodes/NODE/{state,outbox,edged}/, edge.sock
//! ```
//!
//! A node's part that is a process of its own has only the node's directory. A part of the cloud
//! has, instead of `cloud` and `nodes`:
//!
//! ```text
//! DIR/controller/{published,picture}/
//! DIR/hub/store/, hub.addr    the address for edges, while the hub accepts them
//! ```

use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use headwater_event::NodeName;
use headwater_operator::{as_owner, owner_of};
use headwater_rocks::create_durably;

mod modes;

/// The version of the layout that this build writes and reads.
pub(crate) const VERSION: &str = "1";

/// The file with the version of the layout.
const VERSION_FILE: &str = "version";

/// The file with the owner of the directory.
const OWNER: &str = "owner";

/// The owner where everything runs in one process.
pub(crate) const OWNER_UP: &str = "up";

/// The suffix of a stamp file until it is complete.
const DRAFT: &str = ".new";

/// The longest path of a unix socket, in bytes (`sun_path` of unix(7) without its final zero).
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The file with the address of metrics and health.
pub(crate) const METRICS_ADDRESS: &str = "metrics.addr";

/// The file with the address at which edges connect to a hub.
pub(crate) const HUB_ADDRESS: &str = "hub.addr";

/// The file with the address at which hubs connect to a controller.
pub(crate) const CONTROLLER_ADDRESS: &str = "controller.addr";

/// A data directory that this process owns.
#[derive(Debug)]
pub(crate) struct DataDir {
    root: PathBuf,
    /// The lock file, locked while it is open.
    _lock: File,
}

/// The reason why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataDirError {
    /// It cannot be created or read.
    #[error("the data directory {} cannot be used", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It belongs to another user.
    #[error(
        "permission denied: the data directory {} belongs to {owner}; {}",
        dir.display(), as_owner(owner)
    )]
    Denied {
        /// The directory.
        dir: PathBuf,
        /// Its owner.
        owner: String,
    },
    /// Other users have rights in it that cannot be taken.
    #[error(
        "other users may read {}, and its mode cannot be changed: run as its owner, user {owner}, or \
         change the owner", path.display()
    )]
    Modes {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The cause.
        source: io::Error,
    },
    /// Another process uses it.
    #[error(
        "the data directory {} is in use by another headwater: stop that process, or name another \
         directory with --data", dir.display()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// Its layout has another version.
    #[error(
        "the data directory {} has layout version {found:?}, and this build reads {VERSION}: \
         use the build that wrote it, or name another directory with --data", dir.display()
    )]
    Version {
        /// The directory.
        dir: PathBuf,
        /// The version found.
        found: String,
    },
    /// It belongs to another part, or to the part of another node.
    #[error(
        "the data directory {} belongs to `{found}`, and this is `{wanted}`: name another \
         directory with --data", dir.display()
    )]
    OfAnother {
        /// The directory.
        dir: PathBuf,
        /// The owner in its stamp.
        found: String,
        /// The part that refuses it.
        wanted: String,
    },
    /// There is none.
    #[error("{} is not a data directory: name that of the edge with --data", dir.display())]
    Absent {
        /// The directory.
        dir: PathBuf,
    },
    /// It has other files.
    #[error(
        "{} is not a data directory, and it is not empty: name another directory with --data",
        dir.display()
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// The path of a socket in it would be too long.
    #[error(
        "{} is too long for a unix socket ({SOCKET_PATH_BYTES_MAX} bytes): \
         use a data directory with a shorter path", path.display()
    )]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
    },
}

impl DataDir {
    /// Opens `root`, or creates it, and locks it for this process until the drop. Its first open
    /// records the owner. No other user has rights in it afterwards, even if it was made beforehand.
    ///
    /// # Errors
    /// When it belongs to another owner, is in use, has another version, or is not a data
    /// directory. It is unchanged then.
    pub(crate) fn open(root: &Path, owner: &str) -> Result<Self, DataDirError> {
        let io = |source: io::Error| {
            let dir = root.to_owned();
            match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    DataDirError::Denied { owner: owner_of(&dir), dir }
                }
                _ => DataDirError::Io { dir, source },
            }
        };
        let fresh = !root.exists();
        if fresh {
            DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(io)?;
        }
        let root = root.canonicalize().map_err(io)?;
        // Its entry in the parent must be as durable as its content. A parent without read
        // permission belongs to another user and is older.
        match create_durably(&root) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(io(error)),
            _ => {}
        }
        let version = root.join(VERSION_FILE);
        match std::fs::read_to_string(&version) {
            Ok(found) if found.trim() == VERSION => {}
            Ok(found) => {
                return Err(DataDirError::Version { dir: root, found: found.trim().to_owned() });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let draft = format!("{VERSION_FILE}{DRAFT}");
                let stranger = |name: &std::ffi::OsStr| name != "lock" && name != &*draft;
                let mut entries = root.read_dir().map_err(io)?;
                if entries.any(|entry| entry.is_ok_and(|entry| stranger(&entry.file_name()))) {
                    return Err(DataDirError::Foreign { dir: root });
                }
            }
            Err(error) => return Err(io(error)),
        }
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join("lock"))
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataDirError::InUse { dir: root }),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        if !version.exists() {
            stamp(&root, VERSION_FILE, VERSION).map_err(io)?;
        }
        match std::fs::read_to_string(root.join(OWNER)) {
            Ok(found) if found.trim() == owner => {}
            Ok(found) => {
                let (found, wanted) = (found.trim().to_owned(), owner.to_owned());
                return Err(DataDirError::OfAnother { dir: root, found, wanted });
            }
            // It is new, or an older build without owners created it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if owner != OWNER_UP && root.join("cloud").exists() {
                    let (found, wanted) = (OWNER_UP.to_owned(), owner.to_owned());
                    return Err(DataDirError::OfAnother { dir: root, found, wanted });
                }
                stamp(&root, OWNER, owner).map_err(io)?;
            }
            Err(error) => return Err(io(error)),
        }
        let tightened = modes::tighten(&root).map_err(|(path, source)| DataDirError::Modes {
            owner: std::fs::symlink_metadata(&path).map_or(0, |found| found.uid()),
            path,
            source,
        })?;
        if tightened > 0 {
            tracing::info!(tightened, dir = %root.display(), "other users could read files; no more");
        }
        Ok(Self { root, _lock: lock })
    }

    /// Opens an existing data directory, whichever part it belongs to, and locks it.
    ///
    /// # Errors
    /// As [`DataDir::open`], and [`DataDirError::Absent`].
    pub(crate) fn open_present(root: &Path) -> Result<Self, DataDirError> {
        match std::fs::read_to_string(root.join(OWNER)) {
            Ok(owner) => Self::open(root, owner.trim()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(DataDirError::Absent { dir: root.to_owned() })
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(DataDirError::Denied { owner: owner_of(root), dir: root.to_owned() })
            }
            Err(source) => Err(DataDirError::Io { dir: root.to_owned(), source }),
        }
    }

    /// Returns the path of the operator API's socket.
    ///
    /// # Errors
    /// [`DataDirError::PathTooLong`].
    pub(crate) fn operator_socket(&self) -> Result<PathBuf, DataDirError> {
        fitting(self.root.join(headwater_operator::client::SOCKET))
    }

    /// Writes an address file, or removes it where nothing is served: [`METRICS_ADDRESS`],
    /// [`HUB_ADDRESS`], [`CONTROLLER_ADDRESS`].
    ///
    /// # Errors
    /// [`DataDirError::Io`].
    pub(crate) fn set_address(
        &self,
        file: &str,
        at: Option<SocketAddr>,
    ) -> Result<(), DataDirError> {
        let file = self.root.join(file);
        let written = match at {
            Some(address) => std::fs::write(&file, format!("{address}\n")),
            None => match std::fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        written.map_err(|source| DataDirError::Io { dir: self.root.clone(), source })
    }

    /// Returns the directory of a database of the cloud's parts: `log`, `hub`, `controller`.
    pub(crate) fn cloud(&self, part: &str) -> PathBuf {
        self.root.join("cloud").join(part)
    }

    /// Returns the directory of the databases of a part that is a process of its own.
    pub(crate) fn part(&self, part: &str) -> PathBuf {
        self.root.join(part)
    }

    /// Returns the directory of a node.
    pub(crate) fn node(&self, node: &NodeName) -> PathBuf {
        self.root.join("nodes").join(node.as_str())
    }

    /// Returns the path of a node's local API.
    ///
    /// # Errors
    /// [`DataDirError::PathTooLong`].
    pub(crate) fn edge_socket(&self, node: &NodeName) -> Result<PathBuf, DataDirError> {
        fitting(self.node(node).join("edge.sock"))
    }

    /// Returns the socket at which a person on the node reaches its pods: as long as that of the local
    /// API.
    ///
    /// # Errors
    /// [`DataDirError::PathTooLong`].
    pub(crate) fn pod_socket(&self, node: &NodeName) -> Result<PathBuf, DataDirError> {
        fitting(self.node(node).join(headwater_kubelet::client::SOCKET))
    }

    /// Returns the data directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

/// Writes a stamp, atomically and durably, before anything else is created. A power cut could
/// otherwise leave files without a version, and the next start would refuse the directory.
fn stamp(root: &Path, name: &str, content: &str) -> io::Result<()> {
    let draft = root.join(format!("{name}{DRAFT}"));
    let mut file = File::create(&draft)?;
    file.write_all(format!("{content}\n").as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, root.join(name))?;
    File::open(root)?.sync_all()
}

fn fitting(path: PathBuf) -> Result<PathBuf, DataDirError> {
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(DataDirError::PathTooLong { path });
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_data_directory_has_one_owner() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("data");
        let owned = DataDir::open(&root, OWNER_UP).expect("fresh");
        assert!(matches!(DataDir::open(&root, OWNER_UP), Err(DataDirError::InUse { .. })));
        let mode = root.metadata().expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "other users have no access");
        drop(owned);
        DataDir::open(&root, OWNER_UP).expect("free again");
    }

    #[test]
    fn another_part_and_another_node_are_refused_by_name() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("data");
        drop(DataDir::open(&root, "edge gw-7").expect("fresh"));
        drop(DataDir::open(&root, "edge gw-7").expect("its own"));
        for other in ["edge gw-8", "hub", OWNER_UP] {
            let error = DataDir::open(&root, other).expect_err(other).to_string();
            assert!(error.contains("`edge gw-7`") && error.contains(other), "{error}");
        }
        let old = dir.path().join("old");
        std::fs::create_dir_all(old.join("cloud")).expect("made");
        std::fs::write(old.join("version"), "1\n").expect("written");
        assert!(DataDir::open(&old, "hub").is_err(), "a build without owners had `up` only");
        DataDir::open(&old, OWNER_UP).expect("its own");
    }

    #[test]
    fn another_version_or_a_foreign_directory_is_left_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("letter.txt"), "dear").expect("written");
        assert!(matches!(DataDir::open(dir.path(), OWNER_UP), Err(DataDirError::Foreign { .. })));
        assert!(!dir.path().join("lock").exists(), "nothing was changed");

        let newer = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(newer.path().join("version"), "2\n").expect("written");
        assert!(matches!(
            DataDir::open(newer.path(), OWNER_UP),
            Err(DataDirError::Version { found, .. }) if found == "2"
        ));
    }

    #[test]
    fn what_a_power_cut_leaves_of_a_first_start_is_no_strangers() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        File::create(dir.path().join("lock")).expect("made");
        File::create(dir.path().join("version.new")).expect("created, but never written");
        drop(DataDir::open(dir.path(), OWNER_UP).expect("begins anew"));
        let version = std::fs::read_to_string(dir.path().join("version")).expect("stamped");
        assert_eq!(version.trim(), VERSION);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data = DataDir::open(&dir.path().join("d".repeat(100)), OWNER_UP).expect("fresh");
        assert!(matches!(data.operator_socket(), Err(DataDirError::PathTooLong { .. })));
    }
}
