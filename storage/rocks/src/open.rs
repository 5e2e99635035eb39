//! The open of a database, and the checks before it.

use std::fs;
use std::io;
use std::path::Path;

use headwater_store::EngineError;
use rocksdb::{DB, DEFAULT_COLUMN_FAMILY_NAME, Options};

use crate::directory;
use crate::error;
use crate::memory::DatabaseMemory;
use crate::role::Role;

/// Opens the database in the directory `path`. Creates one if the directory is empty or missing.
pub(crate) fn open(path: &Path, role: Role, memory: &DatabaseMemory) -> Result<DB, EngineError> {
    directory::create_durably(path).map_err(|error| unreadable(path, &error))?;
    let mut options = role.options(memory);
    match find(path)? {
        DirectoryContent::Database => refuse_unknown_families(path, &options)?,
        DirectoryContent::Nothing => options.create_if_missing(true),
        DirectoryContent::Orphans => {
            let reason = format!(
                "{}: the directory has data files, but the file CURRENT is missing",
                path.display()
            );
            return Err(EngineError::Corrupt { reason });
        }
    }
    DB::open(&options, path).map_err(|error| error::of_open(&error))
}

/// The content of a directory.
enum DirectoryContent {
    Nothing,
    Database,
    /// Data without the file that names the valid manifest. RocksDB would treat the directory as
    /// empty and silently create a database.
    Orphans,
}

fn find(path: &Path) -> Result<DirectoryContent, EngineError> {
    let mut has_data = false;
    for entry in fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
        let entry = entry.map_err(|error| unreadable(path, &error))?.path();
        if entry.file_name().is_some_and(|name| name == "CURRENT") {
            return Ok(DirectoryContent::Database);
        }
        // A manifest alone is from an interrupted creation, before the first write.
        has_data |= entry.extension().is_some_and(|end| end == "sst" || end == "log");
    }
    Ok(if has_data { DirectoryContent::Orphans } else { DirectoryContent::Nothing })
}

/// Refuses a database with a second column family. We use one, so the other is data of another
/// build, which this build would silently ignore.
fn refuse_unknown_families(path: &Path, options: &Options) -> Result<(), EngineError> {
    let families = DB::list_cf(options, path).map_err(|error| error::of_open(&error))?;
    match families.iter().find(|name| *name != DEFAULT_COLUMN_FAMILY_NAME) {
        None => Ok(()),
        Some(name) => {
            let reason =
                format!("{}: the database has an unknown column family {name:?}", path.display());
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
