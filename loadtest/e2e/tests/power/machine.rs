//! A machine whose power can be cut: a disk that forgets, and the processes that run on it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::containers;
use headwater_e2e::running::{Running, WAIT, processes_in};
use headwater_lossy::{Loss, LossyDisk, Survives};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

/// Between two looks.
const POLL: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct Machine {
    /// Before the folder, so that it is taken away before it.
    pub(crate) disk: LossyDisk,
    _folder: TempDir,
}

impl Machine {
    /// A machine with an empty disk. Without the right to mount it prints so and returns none; in CI it
    /// fails.
    pub(crate) fn new() -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        match LossyDisk::mount(folder.path()) {
            Ok(disk) => Some(Self { disk, _folder: folder }),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                let message = format!("NOT RUN: {error} ({})", source.unwrap_or_default());
                assert!(std::env::var_os("CI").is_none(), "{message}");
                eprintln!("{message}");
                None
            }
        }
    }

    /// Where the data directory is to lie: a directory of its own, that a cut can take.
    pub(crate) fn data(&self) -> PathBuf {
        self.disk.path().join("data")
    }

    /// Cuts the power: everything ends at once, and the disk forgets.
    pub(crate) fn power_cut(&mut self, running: &mut Running, survives: Survives) -> Loss {
        self.disk.freeze();
        running.strike();
        containers::kill_all(&self.data());
        self.disk.let_go();
        running.kill();
        self.kill_what_runs();
        self.disk.power_cut(survives).expect("everybody was killed")
    }

    /// Kills what runs below the data directory, until nothing does.
    pub(crate) fn kill_what_runs(&self) {
        let deadline = Instant::now() + WAIT;
        loop {
            let left = processes_in(self.disk.path());
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{left:?} do not end");
            for id in left {
                let _ = kill(id, Signal::SIGKILL);
            }
            thread::sleep(POLL);
        }
    }
}
