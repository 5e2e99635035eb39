//! Files that are whole or absent, and directories that are there, whenever the power goes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Only the owner reads what is written here: it may hold secrets.
const MODE: u32 = 0o600;

/// Likewise, of a directory.
const DIR_MODE: u32 = 0o700;

/// Writes a value as JSON; when this returns it is on the disk, and a reader never sees half.
///
/// # Errors
/// Those of the file system; the former content stays.
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

/// Makes the directory `path` below `base`, which is there, with all that lead to it. Each is
/// durable in the one above it when this returns: a file is lost with any directory above it.
/// Only the owner may enter those that are made.
///
/// # Errors
/// Those of the file system.
pub(crate) fn create_dir(base: &Path, path: &Path) -> io::Result<()> {
    let below = path.strip_prefix(base).map_err(io::Error::other)?;
    let mut above = base.to_owned();
    for name in below {
        let dir = above.join(name);
        match DirBuilder::new().mode(DIR_MODE).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            made => made?,
        }
        // Also if it was there: whoever made it need not have got this far.
        let here = if above.as_os_str().is_empty() { Path::new(".") } else { &above };
        File::open(here)?.sync_all()?;
        above = dir;
    }
    Ok(())
}

/// Reads such a value; `None` if there is none.
///
/// # Errors
/// Those of the file system, and `InvalidData` for a file that holds something else.
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
    fn a_directory_is_made_with_all_that_lead_to_it() {
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
