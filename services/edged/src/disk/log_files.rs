//! The log files of containers: their names, and the files of one run.
//!
//! A run writes to `0.log`; `0.log.1` is the file before it, `0.log.2` the one before that.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::paths::{Paths, entries};
use crate::pod::is_plain_name;

/// The log files of a container's latest run, or of the run before it, oldest first. Empty if
/// there is none. When several pods of the name have logs, the latest pod is chosen: the one whose folder was made last. The
/// removal of an earlier one changes its folder last.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn log_files(
    paths: &Paths,
    namespace: &str,
    pod: &str,
    container: &str,
    previous: bool,
) -> io::Result<Vec<PathBuf>> {
    if !is_plain_name(container) {
        return Ok(Vec::new());
    }
    let prefix = format!("{namespace}_{pod}_");
    let mut latest: Option<(SystemTime, PathBuf)> = None;
    for entry in entries(&paths.all_logs())? {
        let name = entry.file_name();
        // Kubernetes' names have no underscore: what follows the prefix is the UID.
        let is_pod = name.to_str().and_then(|name| name.strip_prefix(&prefix)).is_some();
        let path = entry.path().join(container);
        // A link may lead out of the pod's logs.
        let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        if !is_pod || !is_folder(&entry.path()) || !is_folder(&path) {
            continue;
        }
        let found = entry.metadata()?;
        // Some file systems do not keep when a folder was made.
        let made = found.created().or_else(|_| found.modified())?;
        if latest.as_ref().is_none_or(|(before, _)| *before <= made) {
            latest = Some((made, path));
        }
    }
    let Some((_, dir)) = latest else { return Ok(Vec::new()) };
    // A file that is being rotated has its second name alone until the runtime opens the next one.
    let attempt = |entry: &fs::DirEntry| -> Option<u32> {
        let name = entry.file_name();
        let (attempt, rest) = name.to_str()?.split_once(".log")?;
        (rest.is_empty() || rest == ".1").then(|| attempt.parse().ok()).flatten()
    };
    let files = entries(&dir)?;
    let mut attempts: Vec<u32> = files.iter().filter_map(attempt).collect();
    attempts.sort_unstable();
    attempts.dedup();
    let wanted = match (attempts.last(), previous) {
        (Some(latest), false) => *latest,
        // The run before may have been removed: then the latest one has ended, and waits to run again.
        (Some(latest), true) if *latest > 0 => match attempts.len() {
            1 => *latest,
            // A number may have been left out.
            count => attempts[count - 2],
        },
        _ => return Ok(Vec::new()),
    };
    Ok(files_of(&files, &dir, wanted))
}

/// The log files of one run in the folder `dir` of its container, oldest first.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn run_files(dir: &Path, attempt: u32) -> io::Result<Vec<PathBuf>> {
    Ok(files_of(&entries(dir)?, dir, attempt))
}

/// The log files of one run among those that were `found` in the folder `dir`, oldest first.
fn files_of(found: &[fs::DirEntry], dir: &Path, attempt: u32) -> Vec<PathBuf> {
    let current = dir.join(format!("{attempt}.log"));
    // A rotation that was cut off leaves a gap.
    let before = format!("{attempt}.log.");
    let number = |entry: &fs::DirEntry| -> Option<u32> {
        entry.file_name().to_str()?.strip_prefix(&before)?.parse().ok()
    };
    let mut numbers: Vec<u32> = found.iter().filter_map(number).collect();
    numbers.sort_unstable_by_key(|number| Reverse(*number));
    let mut paths: Vec<_> = numbers.into_iter().map(|number| rotated(&current, number)).collect();
    paths.extend(current.exists().then_some(current));
    paths
}

/// The log files of the runs from number `from` on in the folder `dir` of their container, by run, oldest first.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn run_files_from(dir: &Path, from: u32) -> io::Result<Vec<PathBuf>> {
    let found = entries(dir)?;
    let numbers = found.iter().filter_map(|entry| run_of(&entry.path())).map(|(_, run)| run);
    let runs: BTreeSet<u32> = numbers.filter(|run| *run >= from).collect();
    Ok(runs.into_iter().flat_map(|run| files_of(&found, dir, run)).collect())
}

/// The folder of a log file, and the number of the run that wrote it; `None` if the name is not that of a log file.
pub(crate) fn run_of(path: &Path) -> Option<(PathBuf, u32)> {
    let (attempt, _) = path.file_name()?.to_str()?.split_once(".log")?;
    Some((path.parent()?.to_owned(), attempt.parse().ok()?))
}

/// The path of the `number`th file before the current one.
pub(crate) fn rotated(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// The time limit of a clock that goes on.
    const WITHIN: Duration = Duration::from_secs(10);

    /// Makes folders, the second one by a later time of the file system; `false` if it keeps no such times.
    fn make_in_turn(first: &Path, second: &Path) -> bool {
        fs::create_dir_all(first).expect("folders");
        let made = |path: &Path| path.metadata().and_then(|found| found.created()).ok();
        let deadline = Instant::now() + WITHIN;
        while made(first).is_some() && Instant::now() < deadline {
            fs::create_dir_all(second).expect("folders");
            if made(second) > made(first) {
                return true;
            }
            fs::remove_dir(second).expect("it is empty");
        }
        false
    }

    #[test]
    fn the_latest_pod_has_the_log_also_while_an_earlier_one_is_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let paths = Paths::new(dir.path().to_owned());
        let [old, new] = ["shop_web_u1", "shop_web_u2"].map(|name| paths.all_logs().join(name));
        if !make_in_turn(&old, &new) {
            return;
        }
        for folder in [&old, &new] {
            fs::create_dir(folder.join("app")).expect("made");
            fs::write(folder.join("app/0.log"), "").expect("written");
        }
        // The folder of another container was removed just now.
        let later = SystemTime::now() + Duration::from_mins(1);
        fs::File::open(&old).and_then(|it| it.set_modified(later)).expect("set");
        let files = log_files(&paths, "shop", "web", "app", false).expect("listed");
        assert_eq!(files, [new.join("app/0.log")]);
    }

    #[test]
    fn a_gap_in_the_numbers_hides_no_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let paths = Paths::new(dir.path().to_owned());
        let logs = paths.all_logs().join("shop_web_u1/app");
        fs::create_dir_all(&logs).expect("folders");
        for name in ["1.log", "1.log.1", "4.log", "4.log.1", "4.log.3", "4.log.tmp"] {
            fs::write(logs.join(name), "").expect("written");
        }
        let names = |previous| {
            let files = log_files(&paths, "shop", "web", "app", previous).expect("listed");
            let name =
                |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            files.iter().filter_map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["4.log.3", "4.log.1", "4.log"]);
        assert_eq!(names(true), ["1.log.1", "1.log"]);
        let from = |run: u32| run_files_from(&logs, run).expect("listed").len();
        assert_eq!([0, 1, 2, 4, 5].map(from), [5, 5, 3, 3, 0]);
    }
}
