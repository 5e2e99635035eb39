//! Writes a container's log: lines in the form of the CRI, in files of bounded size and number.
//!
//! `2024-05-01T10:00:00.000000001Z stdout F text`: `F` ends a line, `P` is a part of one that is
//! longer than [`LINE_BYTES_MAX`]. The shim writes to `0.log`; `0.log.1` is the file before it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use nix::fcntl::OFlag;

use crate::disk::log_files::rotated;

/// A longer line is written in parts, as by containerd.
pub(super) const LINE_BYTES_MAX: usize = 16 << 10;

/// The files of one run's log.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    files_max: u32,
    /// The last line has no end, because the disk was full.
    is_torn: bool,
}

impl LogFile {
    /// Opens the log, to continue after an earlier writer.
    pub(super) fn open(path: &Path, bytes_max: u64, files_max: u32) -> io::Result<Self> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let is_torn = !ends_in_a_line(path, bytes)?;
        let files_max = files_max.max(1);
        Ok(Self { path: path.to_owned(), file, bytes, bytes_max, files_max, is_torn })
    }

    /// Appends one line, or a part of one. A line that cannot be written is lost: a full disk must
    /// not stop the container.
    pub(super) fn append(&mut self, now: Timestamp, stream: &str, is_whole: bool, text: &[u8]) {
        let tag = if is_whole { "F" } else { "P" };
        let mut line = format!("{now:.9} {stream} {tag} ").into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        let bytes = line.len() as u64;
        if self.bytes > 0 && self.bytes + bytes > self.bytes_max {
            // Without room for a new file, the old one grows.
            let _ = self.rotate();
        }
        if self.is_torn {
            line.insert(0, b'\n');
        }
        self.is_torn = self.file.write_all(&line).is_err();
        if self.is_torn {
            // A part of the line may be written.
            self.bytes = self.file.metadata().map_or(self.bytes, |metadata| metadata.len());
        } else {
            self.bytes += line.len() as u64;
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.files_max == 1 {
            self.file.set_len(0)?;
            (self.bytes, self.is_torn) = (0, false);
            return Ok(());
        }
        for number in (1..self.files_max - 1).rev() {
            match fs::rename(rotated(&self.path, number), rotated(&self.path, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, rotated(&self.path, 1))?;
        self.file = open(&self.path)?;
        (self.bytes, self.is_torn) = (0, false);
        Ok(())
    }
}

/// Opens a plain file, or creates it. The container may have put something else in its place: this
/// function neither waits for a pipe nor follows a link.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    Ok(file)
}

/// Whether a log file of this size ends with a whole line.
fn ends_in_a_line(path: &Path, bytes: u64) -> io::Result<bool> {
    if bytes == 0 {
        return Ok(true);
    }
    let mut last = [0];
    File::open(path)?.read_exact_at(&mut last, bytes - 1)?;
    Ok(last == *b"\n")
}

/// Copies the output of a stream to the log, line by line, until it ends.
pub(super) fn copy_lines(mut from: impl Read, stream: &str, log: &Mutex<LogFile>) {
    let mut buffer = Vec::with_capacity(LINE_BYTES_MAX);
    let mut chunk = [0; 8 << 10];
    loop {
        let bytes = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let now = Timestamp::now();
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        for &byte in &chunk[..bytes] {
            if byte == b'\n' {
                log.append(now, stream, true, &buffer);
                buffer.clear();
                continue;
            }
            if buffer.len() == LINE_BYTES_MAX {
                log.append(now, stream, false, &buffer);
                buffer.clear();
            }
            buffer.push(byte);
        }
    }
    if !buffer.is_empty() {
        // A last line without a line end is a part, as containerd writes it.
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.append(Timestamp::now(), stream, false, &buffer);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("a log file")
    }

    #[test]
    fn lines_have_the_form_of_the_cri() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        let log = Mutex::new(LogFile::open(&path, 1 << 20, 5).expect("opens"));
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        copy_lines(format!("hello\n\n{long}\nlast").as_bytes(), "stdout", &log);
        let text = text(&path);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.splitn(4, ' ').collect()).collect();
        let columns: Vec<_> = lines.iter().map(|l| (l[1], l[2], l[3].len())).collect();
        let whole = [("stdout", "F", 5), ("stdout", "F", 0)];
        let parts = [("stdout", "P", LINE_BYTES_MAX), ("stdout", "F", 1), ("stdout", "P", 4)];
        assert_eq!(columns, [&whole[..], &parts[..]].concat());
        for line in &lines {
            let time: Result<Timestamp, _> = line[0].parse();
            assert!(time.is_ok(), "{:?}", line[0]);
            assert_eq!(line[0].len(), "2024-05-01T10:00:00.000000001Z".len(), "{:?}", line[0]);
        }
    }

    #[test]
    fn a_log_keeps_its_newest_files_and_no_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        // Each line is 30 + 10 + 7 bytes: two fit a file.
        let mut log = LogFile::open(&path, 100, 3).expect("opens");
        for number in 0..9 {
            let text = format!("line-{number}.");
            log.append(Timestamp::UNIX_EPOCH, "stdout", true, text.as_bytes());
        }
        assert!(text(&path).contains("line-8."), "the newest line is in the current file");
        assert!(text(&rotated(&path, 1)).contains("line-7."));
        assert!(text(&rotated(&path, 2)).contains("line-5."));
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 3);
        assert!(!text(&path).contains("line-6."));
    }

    #[test]
    fn a_line_that_was_torn_ends_before_the_next_begins() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log");
        fs::write(&path, "2026-01-01T00:00:00Z stdout F to").expect("written");
        let mut log = LogFile::open(&path, 1 << 20, 3).expect("opens");
        log.append(Timestamp::UNIX_EPOCH, "stdout", true, b"next");
        log.append(Timestamp::UNIX_EPOCH, "stdout", true, b"last");
        let text = text(&path);
        let lines: Vec<&str> = text.lines().map(|line| &line[line.len() - 4..]).collect();
        assert_eq!(lines, ["F to", "next", "last"]);
    }

    #[test]
    fn only_a_plain_file_is_written_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let (pipe, link, folder) =
            (dir.path().join("pipe"), dir.path().join("link"), dir.path().join("folder"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let outside = dir.path().join("outside");
        fs::write(&outside, "").expect("written");
        std::os::unix::fs::symlink(&outside, &link).expect("a link");
        fs::create_dir(&folder).expect("a folder");
        for path in [&pipe, &link, &folder, Path::new("/dev/null")] {
            LogFile::open(path, 100, 3).expect_err("no plain file");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn whatever_a_container_writes_is_in_its_log(
            written in proptest::collection::vec(
                prop_oneof![8 => any::<u8>(), 4 => Just(b'\n'), 1 => Just(0)], 0..200,
            ),
            repeat in 1_usize..400,
        ) {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("0.log");
            let log = Mutex::new(LogFile::open(&path, u64::MAX, 2).expect("opens"));
            let written = written.repeat(repeat);
            copy_lines(written.as_slice(), "stdout", &log);
            let mut read = Vec::new();
            let bytes = fs::read(&path).expect("a log file");
            for row in bytes.split_inclusive(|byte| *byte == b'\n') {
                let columns: Vec<&[u8]> = row.splitn(4, |byte| *byte == b' ').collect();
                let text = columns[3].strip_suffix(b"\n").expect("a row ends");
                prop_assert!(text.len() <= LINE_BYTES_MAX);
                read.extend_from_slice(text);
                if columns[2] == b"F" {
                    read.push(b'\n');
                }
            }
            prop_assert_eq!(read, written);
        }
    }
}
