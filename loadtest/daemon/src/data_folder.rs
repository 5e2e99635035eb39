//! The folder of a daemon's data.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::DaemonError;

/// A folder that stays, or one that is removed when it is dropped.
#[derive(Debug)]
pub enum DataFolder {
    /// It stays.
    Kept(PathBuf),
    /// It is removed.
    Scratch(TempDir),
}

impl DataFolder {
    /// The folder `data`, created if it is missing; else a new one that does not stay.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn open(data: Option<PathBuf>) -> Result<Self, DaemonError> {
        let Some(data) = data else {
            let scratch = tempfile::tempdir().map_err(DaemonError::file(env::temp_dir()))?;
            return Ok(Self::Scratch(scratch));
        };
        fs::create_dir_all(&data).map_err(DaemonError::file(&data))?;
        // The daemon, and a reader of the path, may have another working folder.
        let data = fs::canonicalize(&data).map_err(DaemonError::file(&data))?;
        Ok(Self::Kept(data))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Scratch(scratch) => scratch.path(),
        }
    }
}
