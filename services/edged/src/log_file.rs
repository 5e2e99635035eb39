//! The log files of containers, for what reads them.
//!
//! A log file must be a regular file. Containers may run as the user of this process, so they may put anything
//! at the path.
//!
//! A follower holds its file open and asks for what comes [`after`] it. A file is known by its inode, because a rotation
//! renames it. Where files are gone before a follower opened them, [`Later`] says so, and the follower says it to its client.

mod tail;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use tokio::fs::{File, OpenOptions};

use tail::last_rows;

use crate::disk::log_files::{run_files, run_files_from, run_of};

/// How often files are opened that are rotated meanwhile. To open them takes less than a millisecond; rows are lost where a
/// log is rotated that often in this time.
const OPEN_ATTEMPTS: u32 = 20;

/// An open log file. It stays the same file when it is rotated.
#[derive(Debug)]
pub struct LogFile {
    /// The file.
    pub file: File,
    /// What the system knew of it when it was opened.
    metadata: Metadata,
    /// The folder of the container, and the number of the run; `None` if the name is not that of a log file.
    run: Option<(Folder, u32)>,
    /// The folders that its reader has read and left: it does not read them twice.
    left: Vec<Folder>,
}

/// The folder of a container's logs. One that is made again under its path, as that of a static pod that comes back, is
/// another one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Folder {
    path: PathBuf,
    /// Its number and the time when it was made, as far as the file system has them.
    made: Option<(u64, Option<SystemTime>)>,
}

impl Folder {
    /// The folder that is at `path` now.
    fn at(path: PathBuf) -> Self {
        let metadata = path.symlink_metadata().ok();
        let made = metadata.map(|found| (found.ino(), found.created().ok()));
        Self { path, made }
    }

    /// Whether it was made before the other one, as far as the file system says so.
    fn is_before(&self, other: &Self) -> bool {
        let at = |folder: &Self| folder.made.and_then(|(_, at)| at);
        at(self).zip(at(other)).is_some_and(|(own, other)| own < other)
    }
}

/// What comes after a file that was read.
#[derive(Debug, Default)]
pub struct Later {
    /// The files, oldest first. Empty if the file is the newest one.
    pub files: Vec<LogFile>,
    /// Rows between the file and these may be gone: a file was removed before they were opened, by rotation or with its run.
    pub may_miss: bool,
}

impl LogFile {
    /// Whether both are the same file.
    pub fn is(&self, other: &Self) -> bool {
        self.id() == other.id()
    }

    /// Whether `path` is this file now; `None` if there is no file.
    fn is_at(&self, path: &Path) -> Option<bool> {
        let now = path.symlink_metadata().ok()?;
        Some((now.ino(), now.dev()) == self.id())
    }

    fn id(&self) -> (u64, u64) {
        (self.metadata.ino(), self.metadata.dev())
    }

    /// The files of its run, oldest first.
    fn of_its_run(&self) -> io::Result<Vec<PathBuf>> {
        self.run
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), |(dir, attempt)| run_files(&dir.path, *attempt))
    }
}

/// Opens the files that `list` names, oldest first. All are of one moment: a rotation in between would give one of them twice,
/// or leave one out. Missing files are left out.
///
/// # Errors
/// A file is not a regular one or cannot be opened, the files rotate faster than they are opened, and the errors of `list`.
pub async fn open_all(list: impl Fn() -> io::Result<Vec<PathBuf>>) -> io::Result<Vec<LogFile>> {
    for _ in 0..OPEN_ATTEMPTS {
        let mut opened = Vec::new();
        for path in list()? {
            opened.extend(open(&path).await?);
        }
        let there = |path: &PathBuf| path.symlink_metadata().is_ok();
        let now: Vec<PathBuf> = list()?.into_iter().filter(there).collect();
        let is_same = now.len() == opened.len()
            && now.iter().zip(&opened).all(|(path, file)| file.is_at(path) == Some(true));
        if is_same {
            return Ok(opened);
        }
    }
    Err(io::Error::other("the log rotates faster than its files are opened"))
}

/// The files that come after `read`, the last one that was read: the rest of its run, then the later runs in its folder, then
/// the runs in the folder that `list` names, if that is another one. A reader never returns to an earlier run, to a folder
/// that it has left, because it has read them, or to one that was made before its own. A folder that was made again is read
/// from its first run.
///
/// # Errors
/// Those of [`open_all`].
pub async fn after(
    list: impl Fn() -> io::Result<Vec<PathBuf>>,
    read: &LogFile,
) -> io::Result<Later> {
    if is_newest(&list, read)? {
        return Ok(Later::default());
    }
    let Some((dir, attempt)) = &read.run else {
        let newest = open_all(list).await?.into_iter();
        let files = newest.filter(|file| file.run.is_some()).collect();
        return Ok(Later { files, may_miss: false });
    };
    let is_same = Folder::at(dir.path.clone()) == *dir;
    let mut later = if is_same { after_in_run(read).await? } else { Later::default() };
    let next = if is_same { attempt.saturating_add(1) } else { 0 };
    let runs = open_all(|| run_files_from(&dir.path, next)).await?;
    // The last rows of a run that is removed may have gone with it.
    let is_removed = !runs.is_empty() && (!is_same || read.of_its_run()?.is_empty());
    later.may_miss |= is_removed || leaves_out(next, &runs);
    later.files.extend(runs);
    for file in &mut later.files {
        file.left.clone_from(&read.left);
    }
    let named = list()?.last().and_then(|path| run_of(path)).map(|(named, _)| named);
    let other = named.filter(|named| *named != dir.path).map(Folder::at);
    let is_new = |other: &Folder| !read.left.contains(other) && !other.is_before(dir);
    if let Some(other) = other.filter(is_new) {
        let runs = open_all(|| run_files_from(&other.path, 0)).await?;
        later.may_miss |= leaves_out(0, &runs);
        let left: Vec<Folder> = read.left.iter().chain([dir]).cloned().collect();
        later.files.extend(runs.into_iter().map(|file| LogFile { left: left.clone(), ..file }));
    }
    Ok(later)
}

/// Whether a number is missing among the runs of these files, the first of which is to be `next`.
fn leaves_out(mut next: u32, files: &[LogFile]) -> bool {
    let mut runs = files.iter().filter_map(|file| file.run.as_ref());
    runs.any(|(_, run)| {
        let is_left_out = *run > next;
        next = run.saturating_add(1);
        is_left_out
    })
}

/// The files of its run that come after `read`, the last one that was read.
///
/// # Errors
/// Those of [`open_all`].
pub async fn after_in_run(read: &LogFile) -> io::Result<Later> {
    let list = || read.of_its_run();
    if is_newest(list, read)? {
        return Ok(Later::default());
    }
    let mut files = open_all(list).await?;
    let at = files.iter().rposition(|file| file.is(read));
    let may_miss = at.is_none() && !files.is_empty();
    if let Some(at) = at {
        files.drain(..=at);
    }
    Ok(Later { files, may_miss })
}

/// Whether no file of `list` comes after `read`.
fn is_newest(list: impl Fn() -> io::Result<Vec<PathBuf>>, read: &LogFile) -> io::Result<bool> {
    // A file that is renamed at this moment has no successor yet.
    Ok(list()?.last().is_some_and(|newest| read.is_at(newest).unwrap_or(true)))
}

/// The files from which a log is read, each with its start offset: all of them, or those with the last `tail` rows.
/// `None`: `closed` was done first, because the reader has gone.
///
/// # Errors
/// The errors of the file system.
pub async fn beginning(
    files: Vec<LogFile>,
    tail: Option<u64>,
    closed: impl Future<Output = ()>,
) -> io::Result<Option<Vec<(LogFile, u64)>>> {
    let Some(rows) = tail else { return Ok(Some(from_their_starts(files))) };
    // A file without line ends is read from its end to its beginning.
    tokio::select! {
        found = last_rows(files, rows) => found.map(Some),
        () = closed => Ok(None),
    }
}

/// The files, to be read from their starts.
pub fn from_their_starts(files: Vec<LogFile>) -> Vec<(LogFile, u64)> {
    files.into_iter().map(|file| (file, 0)).collect()
}

/// Opens the file; `None` if it is missing. Does not wait for a pipe, and does not follow a link.
///
/// # Errors
/// It is no regular file, or cannot be opened.
async fn open(path: &Path) -> io::Result<Option<LogFile>> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let named = |what: &str| io::Error::other(format!("the log {}: {what}", path.display()));
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
            return Err(named("it is a link, and links are not followed"));
        }
        Err(error) => return Err(named(&error.to_string())),
    };
    let metadata = file.metadata().await.map_err(|error| named(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(named("it is not a regular file"));
    }
    let run = run_of(path).map(|(dir, attempt)| (Folder::at(dir), attempt));
    Ok(Some(LogFile { file, metadata, run, left: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::time::{Duration, Instant};

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// The time limit of a clock that goes on.
    const WITHIN: Duration = Duration::from_secs(10);

    /// The most files of a log.
    const FILES_MAX: usize = 3;

    /// The names of a run's files, oldest first.
    fn names(attempt: u32) -> Vec<String> {
        let rotated = (1..FILES_MAX).rev().map(|number| format!("{attempt}.log.{number}"));
        rotated.chain([format!("{attempt}.log")]).collect()
    }

    /// The files of a run that are there, oldest first.
    fn present(dir: &Path, attempt: u32) -> Vec<PathBuf> {
        let paths = names(attempt).into_iter().map(|name| dir.join(name));
        paths.filter(|path| path.exists()).collect()
    }

    /// Moves the log file on, as its writer does: the newest one begins with `text`.
    fn rotate(dir: &Path, text: &str) {
        for pair in names(0).windows(2) {
            let _ = fs::rename(dir.join(&pair[1]), dir.join(&pair[0]));
        }
        fs::write(dir.join("0.log"), text).expect("written");
    }

    async fn texts(files: Vec<LogFile>) -> Vec<String> {
        let mut texts = Vec::new();
        for mut file in files {
            let mut text = String::new();
            file.file.read_to_string(&mut text).await.expect("read");
            texts.push(text);
        }
        texts
    }

    #[tokio::test]
    async fn a_rotation_between_list_and_open_gives_no_file_twice_and_leaves_none_out() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        fs::write(dir.join("0.log"), "1").expect("written");
        rotate(dir, "2");
        let lists = Cell::new(0);
        let list = || {
            let there = present(dir, 0);
            // Right after the first list, before any file of it is opened.
            if lists.replace(lists.get() + 1) == 0 {
                rotate(dir, "3");
            }
            Ok(there)
        };
        let files = open_all(list).await.expect("opened");
        assert_eq!(texts(files).await, ["1", "2", "3"]);
    }

    #[tokio::test]
    async fn a_reader_that_has_gone_ends_the_search_for_the_last_rows() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        // A hole without line ends: to search it takes minutes.
        let file = fs::File::create(&path).expect("made");
        file.set_len(1 << 40).expect("a hole");
        let opened = || open_all(|| Ok(vec![path.clone()]));
        let files = opened().await.expect("opened");
        let gone = beginning(files, Some(1), std::future::ready(())).await.expect("no error");
        assert!(gone.is_none());
        let files = opened().await.expect("opened");
        let all = beginning(files, None, std::future::ready(())).await.expect("no error");
        assert_eq!(all.expect("no search").iter().map(|(_, from)| *from).collect::<Vec<_>>(), [0]);
    }

    #[tokio::test]
    async fn a_log_that_rotates_at_every_look_is_an_error_and_no_log_with_a_hole() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        fs::write(dir.join("0.log"), "1").expect("written");
        let list = || {
            rotate(dir, "next");
            Ok(present(dir, 0))
        };
        let error = open_all(list).await.expect_err("it rotates too fast");
        assert!(error.to_string().contains("rotates faster"), "{error}");
        // A file that is named and not there is no rotation.
        let absent = || Ok(vec![dir.join("7.log")]);
        assert!(open_all(absent).await.expect("no file").is_empty());
    }

    #[tokio::test]
    async fn what_comes_after_a_file_is_known_after_it_was_renamed_and_a_loss_after_it_was_removed()
    {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let list = || Ok(present(dir, 0));
        fs::write(dir.join("0.log"), "1").expect("written");
        let read = open_all(list).await.expect("opened").pop().expect("one");
        let later = after(list, &read).await.expect("listed");
        assert!(later.files.is_empty() && !later.may_miss);
        for (text, newer, is_lost) in [
            ("2", &["2"][..], false),
            ("3", &["2", "3"], false),
            // The file that was read is gone, and what came right after it may be.
            ("4", &["2", "3", "4"], true),
            ("5", &["3", "4", "5"], true),
        ] {
            rotate(dir, text);
            for later in [after(list, &read).await, after_in_run(&read).await] {
                let later = later.expect("opened");
                assert_eq!(later.may_miss, is_lost, "{text}");
                assert_eq!(texts(later.files).await, newer);
            }
        }
    }

    #[tokio::test]
    async fn the_rest_of_a_run_is_read_before_the_next_run() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        fs::write(dir.join("0.log"), "1").expect("written");
        let read = open_all(|| Ok(present(dir, 0))).await.expect("opened").pop().expect("one");
        rotate(dir, "2");
        fs::write(dir.join("1.log"), "3").expect("written");
        let list = || Ok(present(dir, 1));
        let later = after(list, &read).await.expect("opened");
        assert!(!later.may_miss);
        assert_eq!(texts(later.files).await, ["2", "3"]);
        assert_eq!(texts(after_in_run(&read).await.expect("opened").files).await, ["2"]);
        // The last rows of a run whose files were removed may be gone.
        for path in present(dir, 0) {
            fs::remove_file(path).expect("removed");
        }
        let later = after(list, &read).await.expect("opened");
        assert!(later.may_miss);
        assert_eq!(texts(later.files).await, ["3"]);
    }

    #[tokio::test]
    async fn all_runs_in_between_are_read_and_one_that_is_missing_is_a_loss() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        for (name, text) in [("0.log", "0"), ("1.log", "1"), ("2.log.1", "2"), ("2.log", "3")] {
            fs::write(dir.join(name), text).expect("written");
        }
        let read = open_all(|| Ok(present(dir, 0))).await.expect("opened").pop().expect("one");
        let list = || Ok(present(dir, 2));
        let later = after(list, &read).await.expect("opened");
        assert!(!later.may_miss);
        assert_eq!(texts(later.files).await, ["1", "2", "3"]);
        fs::remove_file(dir.join("1.log")).expect("removed");
        let later = after(list, &read).await.expect("opened");
        assert!(later.may_miss);
        assert_eq!(texts(later.files).await, ["2", "3"]);
    }

    #[tokio::test]
    async fn a_reader_returns_to_no_earlier_run_and_to_no_folder_that_it_has_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
        for folder in [&old, &new] {
            fs::create_dir(folder).expect("made");
            fs::write(folder.join("0.log"), "0").expect("written");
        }
        fs::write(old.join("1.log"), "1").expect("written");
        let of = |folder: &Path, run: u32| {
            let folder = folder.to_owned();
            move || -> io::Result<Vec<PathBuf>> { Ok(present(&folder, run)) }
        };
        let read = open_all(of(&old, 1)).await.expect("opened").pop().expect("one");
        let later = after(of(&old, 0), &read).await.expect("opened");
        assert!(later.files.is_empty() && !later.may_miss, "an earlier run: {later:?}");

        let mut later = after(of(&new, 0), &read).await.expect("opened");
        assert!(!later.may_miss);
        let read = later.files.pop().expect("the log of the successor");
        assert!(later.files.is_empty(), "{later:?}");
        // What is left of the old pod is rotated, and its folder is the latest one.
        fs::write(old.join("2.log"), "2").expect("written");
        let later = after(of(&old, 2), &read).await.expect("opened");
        assert!(later.files.is_empty() && !later.may_miss, "{later:?}");
        fs::write(new.join("1.log"), "1").expect("written");
        let mut later = after(of(&old, 2), &read).await.expect("opened");
        let read = later.files.pop().expect("the next run of the successor");
        let later = after(of(&old, 2), &read).await.expect("opened");
        assert!(later.files.is_empty() && !later.may_miss, "{later:?}");
    }

    #[tokio::test]
    async fn a_reader_goes_to_no_folder_that_was_made_before_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
        fs::create_dir(&old).expect("made");
        fs::create_dir(&new).expect("made");
        let made = |path: &Path| path.metadata().and_then(|found| found.created()).ok();
        let deadline = Instant::now() + WITHIN;
        // The clock of the file system goes on in ticks.
        while made(&new).is_some() && made(&new) == made(&old) && Instant::now() < deadline {
            fs::remove_dir(&new).expect("it is empty");
            fs::create_dir(&new).expect("made");
        }
        if made(&new) <= made(&old) {
            return;
        }
        for folder in [&old, &new] {
            fs::write(folder.join("0.log"), "0").expect("written");
        }
        let read = open_all(|| Ok(present(&new, 0))).await.expect("opened").pop().expect("one");
        let later = after(|| Ok(present(&old, 0)), &read).await.expect("opened");
        assert!(later.files.is_empty() && !later.may_miss, "{later:?}");
        let read = open_all(|| Ok(present(&old, 0))).await.expect("opened").pop().expect("one");
        let later = after(|| Ok(present(&new, 0)), &read).await.expect("opened");
        assert_eq!(later.files.len(), 1, "the successor of its pod: {later:?}");
    }

    #[tokio::test]
    async fn a_folder_that_was_made_again_is_read_from_its_first_run() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [dir, again, other] = ["a", "again", "b"].map(|name| scratch.path().join(name));
        for folder in [&dir, &again, &other] {
            fs::create_dir(folder).expect("made");
        }
        fs::write(dir.join("2.log"), "2").expect("written");
        fs::write(again.join("0.log"), "0 again").expect("written");
        fs::write(other.join("0.log"), "other").expect("written");
        let read = open_all(|| Ok(present(&dir, 2))).await.expect("opened").pop().expect("one");
        fs::remove_dir_all(&dir).expect("removed");
        fs::rename(&again, &dir).expect("moved");
        let later = after(|| Ok(present(&dir, 0)), &read).await.expect("opened");
        assert!(later.may_miss);
        assert_eq!(texts(later.files).await, ["0 again"]);

        // A reader that was in another folder meanwhile reads it, too.
        let mut later = after(|| Ok(present(&other, 0)), &read).await.expect("opened");
        let read = later.files.pop().expect("the other folder");
        fs::create_dir(&again).expect("made");
        fs::write(again.join("0.log"), "0 once more").expect("written");
        fs::remove_dir_all(&dir).expect("removed");
        fs::rename(&again, &dir).expect("moved");
        let later = after(|| Ok(present(&dir, 0)), &read).await.expect("opened");
        assert_eq!(texts(later.files).await, ["0 once more"]);
    }
}
