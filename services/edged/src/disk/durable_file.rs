//! Writes files and directories that survive a loss of power: a file is whole or absent.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Only the owner may read the files: they may contain secrets.
const MODE: u32 = 0o600;

/// Only the owner may enter the directories.
const DIR_MODE: u32 = 0o700;

/// Writes a value as JSON and syncs it. A reader sees the former content or the new one.
///
/// # Errors
/// The errors of the file system. The former content stays.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&temporary)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Makes the directory `path` below the existing `base`, with all directories between them. Each is
/// synced in the one above it, because a file is lost with any directory above it.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn create_dir(base: &Path, path: &Path) -> io::Result<()> {
    let below = path.strip_prefix(base).map_err(io::Error::other)?;
    let mut above = base.to_owned();
    for name in below {
        let dir = above.join(name);
        match DirBuilder::new().mode(DIR_MODE).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            made => made?,
        }
        // Also if it existed: a crash may have interrupted its creation before this sync.
        let here = if above.as_os_str().is_empty() { Path::new(".") } else { &above };
        File::open(here)?.sync_all()?;
        above = dir;
    }
    Ok(())
}

/// Reads a value; `None` if there is no file.
///
/// # Errors
/// The errors of the file system, and `InvalidData` for a file with other content.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_with_all_directories_above_it() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("a/b/c");
        create_dir(base.path(), &path).expect("makes three");
        create_dir(base.path(), &path).expect("are there already");
        assert!(path.is_dir());
        create_dir(&path, base.path()).expect_err("not below it");
        fs::write(path.join("file"), "").expect("a file");
        create_dir(base.path(), &path.join("file")).expect_err("a file is no directory");
    }
}
