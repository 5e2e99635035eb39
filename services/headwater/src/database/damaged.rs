//! Damaged databases that were moved aside. The list is read from disk, so that it survives a
//! restart.

use std::fs;
use std::path::Path;

/// The depth of databases below the data directory: `cloud/controller/picture`.
const DEPTH_MAX: usize = 3;

/// The part of a name that marks a database as moved aside.
const MARK: &str = ".damaged-";

/// Returns a sentence for each damaged database below `root`, in the order of their paths.
pub(crate) fn kept(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["cloud", "nodes", "controller", "hub"] {
        look(&root.join(folder), DEPTH_MAX - 1, &mut found);
    }
    found.sort();
    found
}

fn look(folder: &Path, depth: usize, found: &mut Vec<String>) {
    // A folder that cannot be read is skipped: the part that needs it reports the error.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().contains(MARK) {
            found.push(format!(
                "a database was damaged, and an empty one took its place: the damaged one is {}; \
                 examine it, then delete it",
                path.display()
            ));
        } else if depth > 1 && !path.join("CURRENT").exists() {
            look(&path, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_was_moved_aside_is_a_trouble_until_it_is_removed() {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["cloud/controller/picture", "nodes/a/state", "nodes/a/edged/pods"] {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        assert!(kept(root.path()).is_empty());
        for database in ["nodes/a/outbox.damaged-2", "cloud/controller/picture.damaged-1"] {
            fs::create_dir(root.path().join(database)).expect("a folder");
        }
        let sentences = kept(root.path());
        assert_eq!(sentences.len(), 2, "{sentences:?}");
        assert!(
            sentences[0].contains("picture.damaged-1") && sentences[1].contains("outbox.damaged-2")
        );
    }
}
