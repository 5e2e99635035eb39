//! Ballast: room kept back on a disk, so that a full one can be dealt with.
//!
//! A database whose disk is full must be closed and opened again, and opening writes its
//! write-ahead log into a table before it can delete the log. Without room for that it never
//! opens again. One ballast serves all databases on a disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::posix_fallocate;

/// A file that holds room and nothing else.
#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    bytes: u64,
}

impl Ballast {
    /// Ballast of `bytes` at `path`, which is made if there is room. For the size see
    /// [`Role::ballast_bytes`](crate::Role::ballast_bytes): the sum over the databases.
    ///
    /// # Errors
    /// There is no room ([`io::ErrorKind::StorageFull`]), or the file cannot be made.
    pub fn ensure(path: impl AsRef<Path>, bytes: u64) -> io::Result<Self> {
        let ballast = Self { path: path.as_ref().to_owned(), bytes };
        ballast.restore()?;
        Ok(ballast)
    }

    /// Gives the room free. Nothing to do if it is already.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn release(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the room back, as soon as there is some. Nothing to do if it is held already.
    ///
    /// # Errors
    /// As [`Ballast::ensure`]; then no room is held.
    pub fn restore(&self) -> io::Result<()> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
        let allocated = self.allocate(&file);
        if allocated.is_err() {
            // A part of the ballast would only make the disk fuller.
            drop(file);
            self.release()?;
        }
        allocated
    }

    fn allocate(&self, file: &File) -> io::Result<()> {
        let bytes =
            self.bytes.try_into().map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        file.set_len(self.bytes)?;
        if bytes > 0 {
            // Blocks, not a hole: a sparse file holds no room.
            posix_fallocate(file, 0, bytes)?;
        }
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn ballast_holds_blocks_not_a_hole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ballast");
        let ballast = Ballast::ensure(&path, 1 << 20).expect("room");
        let blocks = |path: &Path| fs::metadata(path).expect("there").blocks() * 512;
        assert!(blocks(&path) >= 1 << 20, "{} bytes are held", blocks(&path));

        ballast.release().expect("removes");
        ballast.release().expect("is released already");
        assert!(!path.exists());
        ballast.restore().expect("room again");
        ballast.restore().expect("is held already");
        assert!(blocks(&path) >= 1 << 20);

        // Another size after an upgrade: the file follows.
        Ballast::ensure(&path, 1 << 16).expect("room");
        assert_eq!(fs::metadata(&path).expect("there").len(), 1 << 16);
    }
}
