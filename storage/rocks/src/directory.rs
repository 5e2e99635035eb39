//! Durable creation of directories.
//!
//! A database syncs its files and its directory, but not the parent of its directory. Without a
//! sync of the parent, a power cut can lose the whole database.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Creates the directory `path` and its missing parents, and syncs the parent of each.
///
/// # Errors
/// A directory cannot be created or synced.
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
    // An existing directory is synced too: its creator may have died before the sync.
    File::open(above)?.sync_all()
}

/// The parent directory of `path`.
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
        create_durably(&path).expect("it exists already");
        assert!(path.is_dir());
        fs::write(path.join("file"), "").expect("a file");
        create_durably(path.join("file")).expect_err("a file is not a directory");
        create_durably(path.join("file/d")).expect_err("a file has no children");
    }
}
