//! The disk of a node: room, what its databases take, and what is wrong with it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headwater_proto::operator::DiskStatus;
use nix::sys::statvfs::statvfs;

/// Nothing is wrong.
pub(super) const OK: &str = "ok";
/// The node cannot write until there is room again.
pub(super) const FULL: &str = "full";
/// A damaged database was kept under another name, and begun anew.
pub(super) const MOVED_ASIDE: &str = "moved aside";
/// A database of the node cannot be used.
pub(super) const FAILED: &str = "failed";

/// A node's databases, by their directories' names.
const DATABASES: [&str; 2] = ["state", "outbox"];

/// What a directory is called that holds a damaged database, behind the database's name.
const ASIDE: &str = ".damaged-";

/// The size of a block as `stat` counts them, whatever the file system's own is.
const STAT_BLOCK_BYTES: u64 = 512;

/// What words in a trouble mean that a disk is full.
const FULL_WORDS: [&str; 3] = ["disk: full", "No space left on device", "Disk quota exceeded"];

/// What words in a trouble mean that a database cannot be used.
const FAILED_WORDS: [&str; 2] = ["storage engine", "database"];

/// What a look at a node's directory found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DiskUsage {
    free_bytes: u64,
    store_bytes: u64,
    /// The newest database that was moved aside, and when.
    aside: Option<(PathBuf, i64)>,
}

/// Looks at a node's directory. What cannot be read counts as nothing: a look is no test.
pub(super) fn look(node: &Path) -> DiskUsage {
    let free_bytes = statvfs(node)
        .map_or(0, |disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
    let store_bytes = DATABASES.iter().map(|name| bytes_in(&node.join(name))).sum();
    DiskUsage { free_bytes, store_bytes, aside: newest_aside(node) }
}

/// The state of the disk from a look at it, and from why the node does not work, if so, with
/// since when.
pub(super) fn judge(found: &DiskUsage, trouble: Option<(&str, i64)>) -> DiskStatus {
    let status = |state: &str, since_ms, advice: String| DiskStatus {
        state: state.to_owned(),
        since_ms,
        advice,
        free_bytes: found.free_bytes,
        store_bytes: found.store_bytes,
    };
    match (trouble, &found.aside) {
        (Some((trouble, since_ms)), _) if is_full(trouble) => status(
            FULL,
            since_ms,
            "make room on the disk of the data directory; the node goes on by itself".to_owned(),
        ),
        (Some((trouble, since_ms)), _) if has_failed(trouble) => {
            status(FAILED, since_ms, format!("{trouble}; it is tried again and again"))
        }
        (_, Some((path, since_ms))) => status(
            MOVED_ASIDE,
            *since_ms,
            format!(
                "a database was damaged and is begun anew; what it was lies in {}: look at the \
                 disk, then remove it",
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

/// What the files of a database take on disk. A database is one directory without others in it.
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
    // A rename changes the directory's ctime, and nothing writes into it afterwards.
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
        assert!(found.free_bytes > 0 && found.store_bytes >= 8_192, "{found:?}");
        assert_eq!(judge(&found, None).state, OK);
        for name in ["edged.damaged-1", "state.damaged-3", "outbox.damaged-1"] {
            std::fs::create_dir(node.path().join(name)).expect("a directory");
        }
        let status = judge(&look(node.path()), None);
        assert_eq!(status.state, MOVED_ASIDE);
        assert!(status.since_ms > 0 && status.advice.contains(".damaged-"), "{status:?}");
    }

    #[test]
    fn a_trouble_says_what_kind_it_is() {
        let found = DiskUsage::default();
        let full = "the State database failed: put: IO error: No space left on device";
        let status = judge(&found, Some((full, 7)));
        assert_eq!((status.state.as_str(), status.since_ms), (FULL, 7));
        assert!(status.advice.contains("make room"));
        let failed = judge(&found, Some(("the State database failed: fsync", 7)));
        assert_eq!(failed.state, FAILED);
        assert_eq!(judge(&found, Some(("a defect of the edge", 7))).state, OK);
    }
}
