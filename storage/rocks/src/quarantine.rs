//! Moves a damaged database aside, so that a new one can be built in its place.
//!
//! A damaged database is never repaired, because repaired data cannot be distinguished from original
//! data. The files are kept under another name for an investigation.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::directory::parent;

/// The number of damaged databases of one name that stay: enough to see a pattern, and too few to
/// fill the disk. The oldest is deleted first.
pub const DAMAGED_KEPT_MAX: usize = 3;

/// Renames the directory `path` to `<path>.damaged-<n>`, where `n` is the next unused number, and
/// returns the new name. The database must be closed.
///
/// # Errors
/// The rename failed and nothing is changed, or the deletion of the oldest one failed after it.
pub fn move_aside(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let path = path.as_ref();
    let mut kept = numbers_aside(path)?;
    let number = kept.last().map_or(1, |last| last + 1);
    let target = name_aside(path, number);
    fs::rename(path, &target)?;
    // The new name must be durable before a new database is created under the old one.
    File::open(parent(path))?.sync_all()?;
    kept.push(number);
    let surplus = kept.len().saturating_sub(DAMAGED_KEPT_MAX);
    for number in &kept[..surplus] {
        fs::remove_dir_all(name_aside(path, *number))?;
    }
    Ok(target)
}

fn name_aside(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".damaged-{number}"));
    name.into()
}

/// The numbers in use beside `path`, ascending.
fn numbers_aside(path: &Path) -> io::Result<Vec<u64>> {
    let mut prefix = path.file_name().unwrap_or_default().to_owned();
    prefix.push(".damaged-");
    let prefix = prefix.to_string_lossy().into_owned();
    let mut numbers = Vec::new();
    for entry in fs::read_dir(parent(path))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix(&prefix).and_then(|rest| rest.parse().ok()) {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_damaged_database_gets_a_number_and_the_oldest_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state");
        for round in 1..=5_u64 {
            fs::create_dir(&path).expect("a directory");
            fs::write(path.join("round"), round.to_string()).expect("a file");
            let target = move_aside(&path).expect("moves");
            assert_eq!(target, dir.path().join(format!("state.damaged-{round}")));
            assert!(!path.exists());
        }
        assert_eq!(numbers_aside(&path).expect("reads"), [3, 4, 5]);
        let kept = fs::read_to_string(dir.path().join("state.damaged-4/round")).expect("reads");
        assert_eq!(kept, "4");
    }

    #[test]
    fn other_databases_stay_where_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["outbox", "state", "state2.damaged-7", "state.damaged-x"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        let target = move_aside(dir.path().join("state")).expect("moves");
        assert_eq!(target, dir.path().join("state.damaged-1"));
        assert!(dir.path().join("outbox").exists());
        move_aside(dir.path().join("absent")).expect_err("nothing to move");
    }
}
