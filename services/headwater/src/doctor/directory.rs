//! Checks of the data directory: its owner, its permissions, its layout, and the process that uses
//! it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use headwater_operator::{as_owner, owner_of};

use super::Check;
use crate::data_dir::VERSION;

/// Others' permission bits.
const OF_OTHERS: u32 = 0o077;

/// Checks the data directory.
pub(super) fn look(data: &Path) -> Vec<Check> {
    let name = "data directory";
    let shown = data.display();
    let found = match fs::metadata(data) {
        Ok(found) if found.is_dir() => found,
        Ok(_) => {
            let advice = "name a directory with --data";
            return vec![Check::fail(name, format!("{shown} is not a directory"), advice)];
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return vec![Check::ok(name, format!("{shown} does not exist yet; `up` creates it"))];
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return vec![denied(data)],
        Err(error) => {
            let advice = "make it readable for this user, or name another directory with --data";
            return vec![Check::fail(name, format!("{shown}: {error}"), advice)];
        }
    };
    // Without its content every other check would be wrong.
    if data.read_dir().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        return vec![denied(data)];
    }
    let us = nix::unistd::geteuid().as_raw();
    vec![
        judge_owner(found.uid(), us),
        judge_mode(found.permissions().mode()),
        judge_layout(fs::read_to_string(data.join("version")).ok().as_deref(), is_empty(data)),
        judge_lock(lock_holder(data)),
    ]
}

fn denied(data: &Path) -> Check {
    let owner = owner_of(data);
    let found = format!("permission denied: {} belongs to {owner}", data.display());
    Check::fail("data directory", found, as_owner(&owner))
}

fn judge_owner(owner: u32, us: u32) -> Check {
    let found = format!("belongs to user {owner}");
    if owner == us || us == 0 {
        Check::ok("data directory", found)
    } else {
        let advice = format!("run headwater as user {owner}, or change the owner to user {us}");
        Check::fail("data directory", found, advice)
    }
}

fn judge_mode(mode: u32) -> Check {
    let found = format!("mode {:04o}", mode & 0o7777);
    if mode & OF_OTHERS == 0 {
        Check::ok("permissions", found)
    } else {
        let advice = "chmod 700: it has Secrets, and a socket that controls the running process";
        Check::warn("permissions", found, advice)
    }
}

fn judge_layout(version: Option<&str>, is_empty: bool) -> Check {
    let name = "layout version";
    match version.map(str::trim) {
        Some(VERSION) => Check::ok(name, VERSION),
        Some(other) => {
            let advice = format!(
                "this build reads version {VERSION}: use the build that wrote the directory"
            );
            Check::fail(name, format!("{other:?}"), advice)
        }
        None if is_empty => Check::ok(name, "none: the directory is empty"),
        None => Check::fail(
            name,
            "none",
            "this is not a data directory: name another directory with --data",
        ),
    }
}

fn judge_lock(holder: Option<u32>) -> Check {
    Check::ok(
        "running",
        match holder {
            Some(pid) => format!("yes, process {pid}"),
            None => "no".to_owned(),
        },
    )
}

fn is_empty(data: &Path) -> bool {
    data.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

/// Returns the process that has the lock. The check does not take the lock, because that would stop
/// a process that starts now.
fn lock_holder(data: &Path) -> Option<u32> {
    let inode = fs::metadata(data.join("lock")).ok()?.ino();
    holder_of(inode, &fs::read_to_string("/proc/locks").ok()?)
}

/// Returns the process that has a lock on the file with this inode number.
fn holder_of(inode: u64, locks: &str) -> Option<u32> {
    // 1: FLOCK  ADVISORY  WRITE 708 00:13:7421 0 EOF
    let number = format!(":{inode}");
    let line = locks.lines().find(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(1) == Some(&"FLOCK") && fields.get(5).is_some_and(|f| f.ends_with(&number))
    })?;
    line.split_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::data_dir::DataDir;

    #[test]
    fn a_data_directory_in_use_is_no_problem_and_names_its_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        assert_eq!(look(&data).len(), 1, "it does not exist yet");
        let owned = DataDir::open(&data, "up").expect("fresh");
        let checks = look(&data);
        assert!(checks.iter().all(|check| check.result == Verdict::Ok), "{checks:?}");
        let running = |checks: &[Check]| {
            checks.iter().find(|check| check.check == "running").map(|check| check.found.clone())
        };
        assert_eq!(running(&checks), Some(format!("yes, process {}", std::process::id())));
        drop(owned);
        assert_eq!(running(&look(&data)).as_deref(), Some("no"));
    }

    #[test]
    fn strangers_and_other_layouts_are_named() {
        assert_eq!(judge_owner(7, 8).result, Verdict::Fail);
        assert_eq!(judge_owner(7, 0).result, Verdict::Ok);
        assert_eq!(judge_mode(0o40755).result, Verdict::Warn);
        assert_eq!(judge_layout(Some("2\n"), false).result, Verdict::Fail);
        assert_eq!(judge_layout(None, false).result, Verdict::Fail);
        assert_eq!(judge_layout(None, true).result, Verdict::Ok);
        let locks = "1: POSIX  ADVISORY  WRITE 5 00:13:42 0 EOF\n2: FLOCK  ADVISORY  WRITE 708 00:13:42 0 EOF\n";
        assert_eq!(holder_of(42, locks), Some(708));
        assert_eq!(holder_of(2, locks), None);
    }
}
