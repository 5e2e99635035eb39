//! A small disk under a part of the data directory, and how it is filled.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::output_within;

use crate::running::{WAIT, output};

/// A tmpfs, taken away when dropped.
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Mounts one of `mib` MiB at `at`, which is created if it does not exist. Without the right to
    /// mount it prints so and returns none; in CI it fails.
    pub fn mount(at: &Path, mib: u64) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory");
        let size = format!("size={mib}m");
        let mut mount = Command::new("mount");
        let mounted = output(mount.args(["-t", "tmpfs", "-o", &size, "small"]).arg(at));
        if mounted.status.success() {
            return Some(Self { at: at.to_owned() });
        }
        let why = String::from_utf8_lossy(&mounted.stderr).into_owned();
        let message = format!("NOT RUN: no tmpfs can be mounted: {}", why.trim());
        assert!(std::env::var_os("CI").is_none(), "{message}");
        eprintln!("{message}");
        None
    }

    /// Fills the disk but for `left` bytes.
    pub fn fill(&self, left: u64) {
        let mut filler = File::create(self.filler()).expect("a file");
        // Until nothing more fits.
        for size in [1 << 20, 1 << 12] {
            while filler.write_all(&vec![7; size]).is_ok() {}
        }
        let length = filler.metadata().expect("there").len();
        filler.set_len(length.saturating_sub(left)).expect("a file shrinks");
    }

    /// Makes room.
    pub fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.at.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Its users have been asked to end.
        let _ = output_within(Command::new("umount").arg("--lazy").arg(&self.at), WAIT);
    }
}
