//! Directories that are there after a power cut.
//!
//! A database syncs its files and the directory they lie in, but not the one that names that
//! directory: without it, all of a database can be lost, however well it was synced.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes the directory `path` with all that lead to it, each durable in the one above it.
///
/// # Errors
/// One cannot be made, or not be synced.
pub fn create_durably(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let above = parent(path);
    if !above.is_dir() {
        create_durably(above)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    // Also if it exists: the process that created it may have been killed before the sync.
    File::open(above)?.sync_all()
}

/// The directory that names `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_there_is_made_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b/c");
        create_durably(&path).expect("makes three");
        create_durably(&path).expect("is there already");
        assert!(path.is_dir());
        fs::write(path.join("file"), "").expect("a file");
        create_durably(path.join("file")).expect_err("a file is no directory");
        create_durably(path.join("file/d")).expect_err("nor leads to one");
    }
}
