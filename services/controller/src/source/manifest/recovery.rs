//! The recovery of a folder that looked like an accident: emptied, unreadable, or on another device.
//!
//! Files that come back come one after the other. An object whose file is not back yet must not be
//! taken for a deleted one, so the folder is followed again only when two looks have found the same
//! files.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::scan::Scan;

/// How long the files must stay the same before they are followed again: longer than a pause within a
/// copy or a checkout, and short for an operator.
pub(super) const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The interval of looks at a folder that is not in order: a watch on a folder that was replaced sees
/// nothing.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// What the looks since the accident have found.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    files: Option<blake3::Hash>,
}

impl Recovery {
    /// Whether the look before this one found the same files.
    pub(super) fn is_settled(&mut self, scan: &Scan) -> bool {
        let files = fingerprint(scan);
        self.files.replace(files) == Some(files)
    }

    /// Forgets the last look, which could not be taken.
    pub(super) fn reset(&mut self) {
        self.files = None;
    }
}

fn fingerprint(scan: &Scan) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&scan.device.to_le_bytes());
    for (path, text) in &scan.files {
        // No path has a zero byte.
        hasher.update(path.as_os_str().as_bytes()).update(&[0]);
        let content = match text {
            Ok(text) => blake3::hash(text.as_bytes()),
            Err(reason) => blake3::hash(reason.as_bytes()),
        };
        hasher.update(content.as_bytes());
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_settled_when_two_looks_have_found_the_same() {
        let scan = |files: &[(&str, &str)]| Scan {
            files: files.iter().map(|(path, text)| ((*path).into(), Ok((*text).into()))).collect(),
            ..Scan::default()
        };
        let mut recovery = Recovery::default();
        assert!(!recovery.is_settled(&scan(&[("a.yaml", "1")])));
        assert!(!recovery.is_settled(&scan(&[("a.yaml", "1"), ("b.yaml", "2")])), "one more");
        assert!(!recovery.is_settled(&scan(&[("a.yaml", "1"), ("b.yaml", "3")])), "it grew");
        assert!(recovery.is_settled(&scan(&[("a.yaml", "1"), ("b.yaml", "3")])));
        recovery.reset();
        assert!(!recovery.is_settled(&scan(&[("a.yaml", "1"), ("b.yaml", "3")])));
    }
}
