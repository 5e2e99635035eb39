//! Data directories of Headwater, which are never a source: pods write to their volumes there, and a
//! pod that writes a manifest must not create pods.

use std::fs;
use std::path::{Path, PathBuf};

/// The stamp of the layout, a number, and the lock of the process that uses the directory.
const VERSION: &str = "version";
const LOCK: &str = "lock";

/// The most bytes of a stamp; a longer file is something else.
const VERSION_BYTES_MAX: u64 = 16;

/// Returns whether `dir` is a data directory, of whatever version and part.
pub(crate) fn is_data_directory(dir: &Path) -> bool {
    let file_bytes = |name| {
        let file = fs::symlink_metadata(dir.join(name)).ok()?;
        file.is_file().then_some(file.len())
    };
    file_bytes(VERSION).is_some_and(|bytes| bytes <= VERSION_BYTES_MAX)
        && file_bytes(LOCK).is_some()
        && fs::read_to_string(dir.join(VERSION))
            .is_ok_and(|version| version.trim().parse::<u32>().is_ok())
}

/// Returns the data directory that `folder` is, or lies in.
pub fn data_directory_of(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    folder.ancestors().find(|dir| is_data_directory(dir)).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_is_known_by_its_stamp_and_its_lock() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        let inside = data.join("nodes/node-1/edged");
        fs::create_dir_all(&inside).expect("created");
        fs::write(data.join(VERSION), "7\n").expect("written");
        assert!(!is_data_directory(&data), "any project may have a version");
        fs::write(data.join(LOCK), "").expect("written");
        assert!(is_data_directory(&data) && !is_data_directory(folder.path()));
        let found = data.canonicalize().expect("there");
        assert_eq!(data_directory_of(&inside), Some(found.clone()));
        assert_eq!(data_directory_of(&data), Some(found));
        assert_eq!(data_directory_of(folder.path()), None);
        for no_version in ["1.4.2", "x", "", "12345678901234567"] {
            fs::write(data.join(VERSION), no_version).expect("written");
            assert!(!is_data_directory(&data), "{no_version:?}");
        }
    }
}
