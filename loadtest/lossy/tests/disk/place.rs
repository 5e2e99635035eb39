//! A mounted disk and the folder it is mounted on.

use std::path::PathBuf;

use headwater_lossy::LossyDisk;
use tempfile::TempDir;

/// A disk on a folder of its own.
pub(crate) struct Place {
    /// Before the folder, so that it is taken away before it.
    pub(crate) disk: LossyDisk,
    _folder: TempDir,
}

impl Place {
    /// A fresh disk. Without the right to mount it prints so and returns none; in CI it fails.
    pub(crate) fn new() -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        match LossyDisk::mount(folder.path()) {
            Ok(disk) => Some(Self { disk, _folder: folder }),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                let message = format!("NOT RUN: {error} ({})", source.unwrap_or_default());
                assert!(std::env::var_os("CI").is_none(), "{message}");
                eprintln!("{message}");
                None
            }
        }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.disk.path().to_owned()
    }
}
