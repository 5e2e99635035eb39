//! The checks before and around opening a database.

use std::fs;
use std::io;
use std::path::Path;

use headwater_store::EngineError;
use rocksdb::{DB, DEFAULT_COLUMN_FAMILY_NAME, Options};

use crate::directory;
use crate::error;
use crate::memory::DatabaseMemory;
use crate::role::Role;

/// Opens the database in the directory `path`, or makes one if there is nothing.
pub(crate) fn open(path: &Path, role: Role, memory: &DatabaseMemory) -> Result<DB, EngineError> {
    directory::create_durably(path).map_err(|error| unreadable(path, &error))?;
    let mut options = role.options(memory);
    match find(path)? {
        DirectoryContent::Database => refuse_unknown_families(path, &options)?,
        DirectoryContent::Nothing => options.create_if_missing(true),
        DirectoryContent::Remains => {
            let reason = format!("{}: there are data files, but no CURRENT", path.display());
            return Err(EngineError::Corrupt { reason });
        }
    }
    DB::open(&options, path).map_err(|error| error::of_open(&error))
}

/// What a directory holds.
enum DirectoryContent {
    Nothing,
    Database,
    /// Data without the file that says which of it counts. RocksDB would take the directory
    /// for empty and begin anew, silently.
    Remains,
}

fn find(path: &Path) -> Result<DirectoryContent, EngineError> {
    let mut remains = false;
    for entry in fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
        let entry = entry.map_err(|error| unreadable(path, &error))?.path();
        if entry.file_name().is_some_and(|name| name == "CURRENT") {
            return Ok(DirectoryContent::Database);
        }
        // A manifest alone is a creation that was interrupted: nothing was ever written.
        remains |= entry.extension().is_some_and(|end| end == "sst" || end == "log");
    }
    Ok(if remains { DirectoryContent::Remains } else { DirectoryContent::Nothing })
}

/// We use one column family. Another one is another build's data, and opening the database
/// without it would go on as if it did not exist.
fn refuse_unknown_families(path: &Path, options: &Options) -> Result<(), EngineError> {
    let families = DB::list_cf(options, path).map_err(|error| error::of_open(&error))?;
    match families.iter().find(|name| *name != DEFAULT_COLUMN_FAMILY_NAME) {
        None => Ok(()),
        Some(name) => {
            let reason = format!("{}: it has a column family {name:?}", path.display());
            Err(EngineError::Unsupported { reason })
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> EngineError {
    let reason = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            EngineError::Write { reason, disk_full: true }
        }
        _ => EngineError::Read { reason },
    }
}
