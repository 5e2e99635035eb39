//! The disk reserve of a node: room in which its databases open again, and its reports continue, on a
//! disk that something else has filled, most often a pod.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_rocks::{Ballast, Role};
use nix::sys::statvfs::statvfs;

/// The size of the reserve: what both databases of a node may need to open again, which is several
/// times what the outbox ever holds.
const RESERVE_BYTES: u64 = Role::State.ballast_bytes() + Role::Outbox.ballast_bytes();

/// The free space that a released reserve waits for: its own bytes, and as much beside it, so that it
/// does not fill the disk again by itself.
const FREE_BYTES_MIN: u64 = 2 * RESERVE_BYTES;

/// How often a node without its reserve looks for room.
pub(crate) const RESERVE_INTERVAL: Duration = Duration::from_secs(10);

/// The file of the reserve in a node's directory.
const FILE: &str = "reserve";

/// What `status` says of a node without its reserve. It begins as every trouble of a full disk does.
pub(crate) const NO_RESERVE: &str =
    "disk: full: no room for the node's reserve; its reports continue while anything fits";

/// The reserve of one node.
#[derive(Clone, Debug)]
pub(crate) struct DiskReserve {
    dir: PathBuf,
    ballast: Arc<Ballast>,
}

impl DiskReserve {
    /// The reserve of the node with this directory. Nothing is reserved yet.
    pub(crate) fn new(node: &Path) -> Self {
        Self::of(node, RESERVE_BYTES)
    }

    fn of(node: &Path, bytes: u64) -> Self {
        let ballast = Ballast::new(node.join(FILE), bytes);
        Self { dir: node.to_owned(), ballast: Arc::new(ballast) }
    }

    /// Reserves the space, if the disk has room beside it. Returns whether it is reserved.
    pub(crate) fn restore(&self) -> bool {
        if self.ballast.is_held() {
            return true;
        }
        self.has_room() && self.attempt("reserved", self.ballast.restore())
    }

    /// Frees the space. Returns whether there was any: a node without it can only wait for room.
    pub(crate) fn release(&self) -> bool {
        self.ballast.is_held() && self.attempt("released", self.ballast.release())
    }

    fn has_room(&self) -> bool {
        let free = statvfs(&self.dir)
            .map(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
        free.is_ok_and(|free| free >= FREE_BYTES_MIN)
    }

    fn attempt(&self, what: &str, outcome: io::Result<()>) -> bool {
        if let Err(error) = &outcome {
            tracing::warn!(node = %self.dir.display(), %error, "the disk reserve cannot be {what}");
        }
        outcome.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_released_once_and_restored() {
        let node = tempfile::tempdir().expect("a directory");
        let reserve = DiskReserve::of(node.path(), 1 << 20);
        assert!(!reserve.release(), "nothing is reserved yet");
        assert!(reserve.restore() && reserve.restore());
        assert!(node.path().join(FILE).exists());
        assert!(reserve.release());
        assert!(!reserve.release(), "it is released already");
        assert!(!node.path().join(FILE).exists());
        assert!(reserve.restore());
    }
}
