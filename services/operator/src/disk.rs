//! The disk of a node: free space, the size of its databases, and its problems.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headwater_proto::operator::DiskStatus;
use nix::sys::statvfs::statvfs;

/// The disk has no problem.
pub(super) const OK: &str = "ok";
/// The disk is full: the node cannot write.
pub(super) const FULL: &str = "full";
/// A damaged database was moved aside, and an empty one took its place.
pub(super) const MOVED_ASIDE: &str = "moved aside";
/// A database of the node cannot be used.
pub(super) const FAILED: &str = "failed";

/// A node's databases, by their directories' names.
const DATABASES: [&str; 2] = ["state", "outbox"];

/// The suffix of the directory of a damaged database.
const ASIDE: &str = ".damaged-";

/// The size of a block in `stat`, on every file system.
const STAT_BLOCK_BYTES: u64 = 512;

/// Below this free space, in bytes, a file system is full: a database can begin no new file.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// The texts in a trouble that mean a full disk.
const FULL_WORDS: [&str; 3] = ["disk: full", "No space left on device", "Disk quota exceeded"];

/// The texts in a trouble that mean a failed database.
const FAILED_WORDS: [&str; 2] = ["storage engine", "database"];

/// The findings in a node's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DiskUsage {
    /// `None`: the file system does not say.
    free_bytes: Option<u64>,
    store_bytes: u64,
    /// The newest database that was moved aside, and the time.
    aside: Option<(PathBuf, i64)>,
}

/// Reads a node's directory. A file that cannot be read counts as missing.
pub(super) fn look(node: &Path) -> DiskUsage {
    let free = statvfs(node).ok();
    let free_bytes = free.map(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
    let store_bytes = DATABASES.iter().map(|name| bytes_in(&node.join(name))).sum();
    DiskUsage { free_bytes, store_bytes, aside: newest_aside(node) }
}

/// Derives the state of the disk from the findings, and from the node's trouble and its start, if
/// it has one.
pub(super) fn judge(found: &DiskUsage, trouble: Option<(&str, i64)>) -> DiskStatus {
    let status = |state: &str, since_ms, advice: String| DiskStatus {
        state: state.to_owned(),
        since_ms,
        advice,
        free_bytes: found.free_bytes.unwrap_or(0),
        store_bytes: found.store_bytes,
    };
    let full = |since_ms| {
        let advice =
            "make room on the disk of the data directory; then the node continues by itself";
        status(FULL, since_ms, advice.to_owned())
    };
    match (trouble, &found.aside) {
        (Some((trouble, since_ms)), _) if is_full(trouble) => full(since_ms),
        (Some((trouble, since_ms)), _) if has_failed(trouble) => {
            status(FAILED, since_ms, format!("{trouble}; the node retries until it succeeds"))
        }
        // Nothing was written since the file system is full.
        _ if found.free_bytes.is_some_and(|free| free < FREE_BYTES_MIN) => full(0),
        (_, Some((path, since_ms))) => status(
            MOVED_ASIDE,
            *since_ms,
            format!(
                "a database was damaged, and an empty one took its place: the damaged one is {}; \
                 check the disk, then delete it",
                path.display()
            ),
        ),
        _ => status(OK, 0, String::new()),
    }
}

/// Whether a node's trouble is a full disk.
pub(super) fn is_full(trouble: &str) -> bool {
    FULL_WORDS.iter().any(|word| trouble.contains(word))
}

fn has_failed(trouble: &str) -> bool {
    FAILED_WORDS.iter().any(|word| trouble.contains(word))
}

/// The disk usage of a database, which is one directory without subdirectories.
fn bytes_in(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|file| file.blocks() * STAT_BLOCK_BYTES)
        .sum()
}

fn newest_aside(node: &Path) -> Option<(PathBuf, i64)> {
    let entries = std::fs::read_dir(node).ok()?.flatten();
    let aside = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        DATABASES
            .iter()
            .any(|database| name.strip_prefix(database).is_some_and(|rest| rest.starts_with(ASIDE)))
    });
    // The rename sets the directory's ctime, and nothing writes into it afterwards.
    let with_time = aside.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some((entry.path(), metadata.ctime() * 1_000 + metadata.ctime_nsec() / 1_000_000))
    });
    with_time.max_by_key(|(_, since_ms)| *since_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_room_what_is_stored_and_what_was_moved_aside() {
        let node = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(node.path().join("state")).expect("a directory");
        std::fs::write(node.path().join("state/000004.log"), [7; 10_000]).expect("written");
        let found = look(node.path());
        assert!(found.free_bytes > Some(0) && found.store_bytes >= 8_192, "{found:?}");
        assert_eq!(judge(&found, None).state, OK);
        for name in ["edged.damaged-1", "state.damaged-3", "outbox.damaged-1"] {
            std::fs::create_dir(node.path().join(name)).expect("a directory");
        }
        let status = judge(&look(node.path()), None);
        assert_eq!(status.state, MOVED_ASIDE);
        assert!(status.since_ms > 0 && status.advice.contains(".damaged-"), "{status:?}");
    }

    #[test]
    fn a_trouble_names_its_kind() {
        let found = DiskUsage::default();
        let full = "the State database failed: put: IO error: No space left on device";
        let status = judge(&found, Some((full, 7)));
        assert_eq!((status.state.as_str(), status.since_ms), (FULL, 7));
        assert!(status.advice.contains("make room"));
        let failed = judge(&found, Some(("the State database failed: fsync", 7)));
        assert_eq!(failed.state, FAILED);
        assert_eq!(judge(&found, Some(("a defect of the edge", 7))).state, OK);
    }

    #[test]
    fn a_full_file_system_is_full_before_a_write_fails() {
        let with_free = |free_bytes| DiskUsage { free_bytes, ..DiskUsage::default() };
        assert_eq!(judge(&with_free(Some(0)), None).state, FULL);
        assert_eq!(judge(&with_free(Some(FREE_BYTES_MIN)), None).state, OK);
        assert_eq!(judge(&with_free(None), None).state, OK, "unknown");
    }
}
