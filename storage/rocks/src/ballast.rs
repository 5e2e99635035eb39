//! Ballast: disk space that is reserved for the recovery from a full disk.
//!
//! When a disk is full, a database must be closed and opened again. The open writes the write-ahead
//! log into a table before it deletes the log, so it needs free space. One ballast serves all
//! databases on a disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::posix_fallocate;

/// A file whose only purpose is its size.
#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    bytes: u64,
}

impl Ballast {
    /// Space for `bytes` in a file at `path`, not reserved yet. The size is the sum of
    /// [`Role::ballast_bytes`](crate::Role::ballast_bytes) over the databases.
    pub fn new(path: impl AsRef<Path>, bytes: u64) -> Self {
        Self { path: path.as_ref().to_owned(), bytes }
    }

    /// Reserves `bytes` in a file at `path`.
    ///
    /// # Errors
    /// The disk is full ([`io::ErrorKind::StorageFull`]), or the file cannot be created.
    pub fn ensure(path: impl AsRef<Path>, bytes: u64) -> io::Result<Self> {
        let ballast = Self::new(path, bytes);
        ballast.restore()?;
        Ok(ballast)
    }

    /// Whether the space is reserved. An earlier version may have reserved less.
    pub fn is_held(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|file| file.len() >= self.bytes)
    }

    /// Frees the space. Does nothing if it is free already.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn release(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Reserves the space again. Does nothing if it is reserved already.
    ///
    /// # Errors
    /// As [`Ballast::ensure`]; then no space is reserved.
    pub fn restore(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&self.path)?;
        let allocated = self.allocate(&file);
        if allocated.is_err() {
            // An incomplete ballast has no use and fills the disk.
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
            // Allocates blocks: a sparse file reserves no space.
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
        assert!(blocks(&path) >= 1 << 20, "{} bytes are reserved", blocks(&path));

        ballast.release().expect("removes");
        ballast.release().expect("it is released already");
        assert!(!path.exists() && !ballast.is_held());
        ballast.restore().expect("room again");
        ballast.restore().expect("it is reserved already");
        assert!(ballast.is_held());
        assert!(blocks(&path) >= 1 << 20);

        // An upgrade may change the size: the file changes with it.
        Ballast::ensure(&path, 1 << 16).expect("room");
        assert_eq!(fs::metadata(&path).expect("there").len(), 1 << 16);
    }
}
