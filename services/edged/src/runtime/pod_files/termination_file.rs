//! The file in which a container leaves its termination message.
//!
//! The container controls everything below its root, and may put a link, a pipe or a huge file there.
//! So the path is walked part by part without following a link, and a plain file is read to a bound.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};
use serde::{Deserialize, Serialize};

/// The longest termination message, as under a kubelet.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// The longest message from a log, as under a kubelet.
const LOG_MESSAGE_BYTES_MAX: usize = 2 << 10;

/// The most lines of a message from a log, as under a kubelet.
const LOG_MESSAGE_LINES_MAX: usize = 80;

/// The part of a log in which those lines lie: one line has at most 16 KiB and a head.
const LOG_TAIL_BYTES: usize = 32 << 10;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::runtime) struct TerminationFile {
    /// The container's root directory.
    pub(in crate::runtime) root: PathBuf,
    /// The file, below the root.
    pub(in crate::runtime) path: PathBuf,
    /// When the container fails and the file is empty, the end of its log is the message.
    pub(in crate::runtime) falls_back_to_logs: bool,
}

impl TerminationFile {
    /// Replaces the message of the run before with an empty file, which belongs to the root's owner.
    ///
    /// # Errors
    /// The container has put something in the way. The run can start, and its message is not read.
    pub(in crate::runtime) fn prepare(&self) -> io::Result<()> {
        let owner = fs::symlink_metadata(&self.root)?;
        let give = |file: &OwnedFd| {
            let (user, group) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
            let is_own = user == Uid::effective() && group == Gid::effective();
            if is_own { Ok(()) } else { fchown(file, Some(user), Some(group)) }
        };
        let make = |dir: &OwnedFd, name: &OsStr| {
            mkdirat(dir, name, Mode::S_IRWXU)?;
            let made = open_dir(dir, name)?;
            give(&made).map(|()| made)
        };
        let (dir, name) = self.open_parent(|dir, name, error| match error {
            Errno::ENOENT => make(dir, name),
            _ => Err(error),
        })?;
        match unlinkat(&dir, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = openat(&dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        Ok(give(&file)?)
    }

    /// The message of a run that has ended, if it left one.
    pub(in crate::runtime) fn message(&self, log: &Path, succeeded: bool) -> Option<String> {
        let message = match self.read() {
            Ok(bytes) if bytes.is_empty() && self.falls_back_to_logs && !succeeded => {
                log_message(log).unwrap_or_else(|error| {
                    format!("Error on reading termination message from logs: {error}")
                })
            }
            Ok(bytes) => last_bytes(&String::from_utf8_lossy(&bytes), MESSAGE_BYTES_MAX),
            Err(error) => {
                format!("Error on reading termination log {}: {error}", self.path.display())
            }
        };
        Some(message).filter(|message| !message.is_empty())
    }

    /// The last bytes of the file; none if there is no file.
    fn read(&self) -> io::Result<Vec<u8>> {
        let opened = self
            .open_parent(|_, _, error| Err(error))
            .and_then(|(dir, name)| openat(&dir, name, FILE_FLAGS, Mode::empty()));
        let mut file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        // Another name of the file may lie outside of the root.
        if !metadata.is_file() || metadata.nlink() != 1 {
            return Err(io::Error::other("it is not a plain file of the container"));
        }
        tail(&mut file, metadata.len(), MESSAGE_BYTES_MAX)
    }

    /// Opens the directory of the file, and returns it with the file's name. `otherwise` decides what
    /// follows when a directory cannot be opened.
    fn open_parent(
        &self,
        otherwise: impl Fn(&OwnedFd, &OsStr, Errno) -> nix::Result<OwnedFd>,
    ) -> nix::Result<(OwnedFd, &OsStr)> {
        let name = self.path.file_name().ok_or(Errno::EINVAL)?;
        let mut dir = open(&self.root, DIR_FLAGS, Mode::empty())?;
        for part in self.path.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(part) = part else { return Err(Errno::EINVAL) };
            dir = open_dir(&dir, part).or_else(|error| otherwise(&dir, part, error))?;
        }
        Ok((dir, name))
    }
}

/// A directory is opened as such, and not through a link.
const DIR_FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// A file is opened without waiting for the other end of a pipe, and not through a link.
const FILE_FLAGS: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_NONBLOCK).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

fn open_dir(above: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    openat(above, name, DIR_FLAGS, Mode::empty())
}

/// The last lines of a log, without their heads.
fn log_message(log: &Path) -> io::Result<String> {
    let mut file = File::from(open(log, FILE_FLAGS, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let bytes = metadata.len();
    let tail = tail(&mut file, bytes, LOG_TAIL_BYTES)?;
    let lines: Vec<&[u8]> = tail.split_inclusive(|byte| *byte == b'\n').collect();
    // The tail begins in the middle of a line.
    let partial = usize::from(bytes > LOG_TAIL_BYTES as u64);
    let first = lines.len().saturating_sub(LOG_MESSAGE_LINES_MAX).max(partial);
    let mut message = Vec::new();
    for line in lines.get(first..).unwrap_or_default() {
        let columns: Vec<&[u8]> = line.splitn(4, |byte| *byte == b' ').collect();
        let [_, _, tag, text] = columns[..] else { continue };
        let is_part = tag == b"P";
        message.extend_from_slice(if is_part {
            text.strip_suffix(b"\n").unwrap_or(text)
        } else {
            text
        });
    }
    Ok(last_bytes(&String::from_utf8_lossy(&message), LOG_MESSAGE_BYTES_MAX))
}

fn tail(file: &mut File, bytes: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
    let bytes_max = bytes_max as u64;
    file.seek(SeekFrom::Start(bytes.saturating_sub(bytes_max)))?;
    let mut tail = Vec::new();
    file.take(bytes_max).read_to_end(&mut tail)?;
    Ok(tail)
}

/// The end of a text, from the start of a character.
fn last_bytes(text: &str, bytes_max: usize) -> String {
    text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..].to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A container's root, a file outside of it, and a log.
    struct Files {
        dir: tempfile::TempDir,
        file: TerminationFile,
    }

    impl Files {
        fn new(falls_back_to_logs: bool) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let root = dir.path().join("rootfs");
            fs::create_dir(&root).expect("a root");
            fs::write(dir.path().join("outside"), "secret").expect("a file");
            let path = "dev/termination-log".into();
            Self { file: TerminationFile { root, path, falls_back_to_logs }, dir }
        }

        fn path(&self) -> PathBuf {
            self.file.root.join(&self.file.path)
        }

        fn log(&self) -> PathBuf {
            self.dir.path().join("0.log")
        }

        fn message(&self, succeeded: bool) -> Option<String> {
            self.file.message(&self.log(), succeeded)
        }
    }

    #[test]
    fn a_message_is_the_end_of_the_file_and_of_the_latest_run_only() {
        let files = Files::new(false);
        assert_eq!(files.message(false), None, "there is no file");
        files.file.prepare().expect("an empty file");
        assert_eq!(files.message(false), None);
        fs::write(files.path(), "the end").expect("written");
        assert_eq!(files.message(true).as_deref(), Some("the end"));
        files.file.prepare().expect("the next run");
        assert_eq!(files.message(true), None, "the message of the run before is gone");
        fs::write(files.path(), format!("head{}", "ä".repeat(2_048))).expect("written");
        assert_eq!(files.message(true), Some("ä".repeat(2_048)));
        fs::write(files.path(), vec![0xff; 8_192]).expect("written");
        assert!(files.message(true).is_some_and(|message| message.len() <= MESSAGE_BYTES_MAX));
    }

    #[test]
    fn nothing_outside_of_the_root_is_read_or_removed() {
        let is_refused = |files: &Files| {
            let message = files.message(false).expect("an error");
            assert!(message.starts_with("Error on reading termination log"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        };
        let outside = |files: &Files| files.dir.path().join("outside");
        let links: [&dyn Fn(&Files); 4] = [
            &|files| symlink(outside(files), files.path()).expect("a link"),
            &|files| fs::hard_link(outside(files), files.path()).expect("another name"),
            &|files| nix::unistd::mkfifo(&files.path(), Mode::S_IRWXU).expect("a pipe"),
            &|files| fs::create_dir(files.path()).expect("a directory"),
        ];
        for link in links {
            let files = Files::new(false);
            fs::create_dir(files.file.root.join("dev")).expect("a directory");
            link(&files);
            is_refused(&files);
        }
        let mut files = Files::new(false);
        symlink(files.dir.path(), files.file.root.join("dev")).expect("a link");
        files.file.path = "dev/outside".into();
        is_refused(&files);
        files.file.prepare().expect_err("a link is in the way");
        assert!(outside(&files).exists());
    }

    #[test]
    fn a_container_that_fails_in_silence_has_the_end_of_its_log_as_its_message() {
        let files = Files::new(true);
        let line = |n: usize| format!("2026-01-01T00:00:00Z stdout F line {n}\n");
        let log: String = (0..3_000).map(line).collect();
        fs::write(files.log(), log + "2026-01-01T00:00:00Z stderr P no end\n").expect("a log");
        files.file.prepare().expect("an empty file");
        assert_eq!(files.message(true), None, "it did not fail");
        let message = files.message(false).expect("a message");
        assert!(message.ends_with("line 2999\nno end"), "{message}");
        assert_eq!(message.lines().count(), LOG_MESSAGE_LINES_MAX);
        assert!(message.len() <= LOG_MESSAGE_BYTES_MAX);
        fs::write(files.path(), "the end").expect("written");
        assert_eq!(files.message(false).as_deref(), Some("the end"));
        let piped = Files::new(true);
        nix::unistd::mkfifo(&piped.log(), Mode::S_IRWXU).expect("a pipe");
        let message = piped.message(false).expect("an error, and no wait for a writer");
        assert!(message.contains("not a plain file"), "{message}");
        let silent = Files::new(false);
        fs::write(silent.log(), line(1)).expect("a log");
        assert_eq!(silent.message(false), None, "its policy is File");
    }
}
