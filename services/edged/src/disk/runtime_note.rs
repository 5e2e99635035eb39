//! The note of the runtime that a node's pods ran with last, in the pod worker's directory. Its content belongs to the program
//! that chooses the runtime.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::durable_file;
use super::file_error::FileError;

const FILE: &str = "runtime.json";

/// The note in a pod worker's directory.
#[derive(Clone, Debug)]
pub struct RuntimeNote {
    dir: PathBuf,
}

impl RuntimeNote {
    /// The note in the pod worker's directory `dir`.
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Its file.
    pub fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Reads it; `None` if there is none.
    ///
    /// # Errors
    /// The errors of the file system, and a file with other content.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, FileError> {
        durable_file::read(&self.path()).map_err(FileError::new("read", &self.path()))
    }

    /// Writes it durably, and makes the directory.
    ///
    /// # Errors
    /// The errors of the file system. The former note stays.
    pub fn write(&self, note: &impl Serialize) -> Result<(), FileError> {
        let above = self.dir.parent().unwrap_or(Path::new("."));
        durable_file::create_dir(above, &self.dir).map_err(FileError::new("create", &self.dir))?;
        durable_file::write(&self.path(), note).map_err(FileError::new("write", &self.path()))
    }

    /// Removes it. Succeeds if there is none.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn remove(&self) -> Result<(), FileError> {
        durable_file::remove(&self.path()).map_err(FileError::new("remove", self.path()))
    }
}
