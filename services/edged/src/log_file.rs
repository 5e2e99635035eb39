//! The log files of containers, for what reads them.
//!
//! A log file must be a regular file. Containers may run as the user of this process, so they may put anything
//! at the path.

mod tail;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use tokio::fs::{File, OpenOptions};

use tail::last_rows;

/// How often files are opened that are rotated meanwhile. A log that rotates faster than it is opened loses rows anyway.
const OPEN_ATTEMPTS: u32 = 5;

/// An open log file. It stays the same file when it is rotated.
#[derive(Debug)]
pub struct LogFile {
    /// The file.
    pub file: File,
    /// What the system knew of it when it was opened.
    metadata: Metadata,
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
}

/// Opens the files that `list` names, oldest first. All are of one moment: a rotation in between would give one of them twice,
/// or leave one out. Missing files are left out.
///
/// # Errors
/// A file is not a regular one or cannot be opened, and the errors of `list`.
pub async fn open_all(list: impl Fn() -> io::Result<Vec<PathBuf>>) -> io::Result<Vec<LogFile>> {
    let mut attempt = 1;
    loop {
        let mut opened = Vec::new();
        for path in list()? {
            if let Some((file, metadata)) = open(&path).await? {
                opened.push(LogFile { file, metadata });
            }
        }
        let now = list()?;
        let is_same = now.len() == opened.len()
            && now.iter().zip(&opened).all(|(path, file)| file.is_at(path) == Some(true));
        if is_same || attempt == OPEN_ATTEMPTS {
            return Ok(opened);
        }
        attempt += 1;
    }
}

/// Whether no file of `list` comes after `read`, the last one that was read.
///
/// # Errors
/// Those of `list`.
pub fn is_newest(list: impl Fn() -> io::Result<Vec<PathBuf>>, read: &LogFile) -> io::Result<bool> {
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

/// The files after `read`: all of them, if it is not there any more.
pub fn after(mut files: Vec<LogFile>, read: &LogFile) -> Vec<LogFile> {
    match files.iter().rposition(|file| file.is(read)) {
        Some(at) => files.split_off(at + 1),
        None => files,
    }
}

/// Opens the file; `None` if it is missing. Does not wait for a pipe, and does not follow a link.
///
/// # Errors
/// It is no regular file, or cannot be opened.
async fn open(path: &Path) -> io::Result<Option<(File, Metadata)>> {
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
    Ok(Some((file, metadata)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Moves the log file on, as its writer does: the newest one begins with `text`.
    fn rotate(dir: &Path, text: &str) {
        let path = |name: &str| dir.join(name);
        let _ = fs::rename(path("log.1"), path("log.2"));
        fs::rename(path("log"), path("log.1")).expect("renamed");
        fs::write(path("log"), text).expect("written");
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
        fs::write(dir.join("log"), "1").expect("written");
        rotate(dir, "2");
        let lists = Cell::new(0);
        let list = || {
            let names = ["log.2", "log.1", "log"].map(|name| dir.join(name));
            let there: Vec<_> = names.into_iter().filter(|path| path.exists()).collect();
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
    async fn what_comes_after_a_file_is_known_after_it_was_renamed_and_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let list = || {
            let names = ["log.2", "log.1", "log"].map(|name| dir.join(name));
            Ok(names.into_iter().filter(|path| path.exists()).collect::<Vec<_>>())
        };
        fs::write(dir.join("log"), "1").expect("written");
        let read = open_all(list).await.expect("opened").pop().expect("one");
        assert!(is_newest(list, &read).expect("listed"));
        for (text, newer) in [("2", &["2"][..]), ("3", &["2", "3"]), ("4", &["2", "3", "4"])] {
            rotate(dir, text);
            assert!(!is_newest(list, &read).expect("listed"));
            let files = open_all(list).await.expect("opened");
            assert_eq!(texts(after(files, &read)).await, newer);
        }
    }
}
