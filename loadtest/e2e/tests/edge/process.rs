//! A part of Headwater as a process, with a data directory of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Output};
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::containers::kill_all;
use headwater_e2e::running::{WAIT, headwater, output};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Between two looks.
const POLL: Duration = Duration::from_millis(100);

/// A data directory, and the process that owns it while it runs.
pub(crate) struct Process {
    folder: TempDir,
    data: PathBuf,
    args: Vec<String>,
    child: Option<Child>,
}

impl Process {
    /// Starts `headwater` with `args` on a fresh data directory.
    pub(crate) fn start(args: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let data = folder.path().join("data");
        Self::start_in(folder, &data, args)
    }

    /// Starts it on the data directory `data`.
    pub(crate) fn start_on(data: &Path, args: &[&str]) -> Self {
        Self::start_in(TempDir::new().expect("a temporary folder"), data, args)
    }

    fn start_in(folder: TempDir, data: &Path, args: &[&str]) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut process = Self { folder, data: data.to_owned(), args, child: None };
        process.start_again();
        process
    }

    /// Starts it on the same data directory.
    pub(crate) fn start_again(&mut self) {
        let log = File::options().create(true).append(true).open(self.log()).expect("a log");
        let mut command = headwater();
        command.args(&self.args).arg("--data").arg(&self.data);
        let command = command.stdout(log.try_clone().expect("the same log")).stderr(log);
        self.child = Some(command.spawn().expect("headwater starts"));
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// Its output so far, over all its starts.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Asks it something and gives what it printed, if it was done.
    pub(crate) fn text(&self, args: &[&str]) -> Option<String> {
        let output = self.ask(args);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Asks it something that answers in JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Option<Value> {
        serde_json::from_str(&self.text(args)?).ok()
    }

    /// Asks it something that it refuses, and gives its words.
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert!(!output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn ask(&self, args: &[&str]) -> Output {
        output(headwater().args(args).arg("--data").arg(&self.data))
    }

    /// Waits until `look` gives something.
    pub(crate) fn wait_for<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(found) = look() {
                return found;
            }
            let status = || self.text(&["status", "-o", "json"]).unwrap_or_default();
            assert!(
                Instant::now() < deadline,
                "{what}: not in time\n{}\n{}",
                self.output(),
                status()
            );
            thread::sleep(POLL);
        }
    }

    /// Sends it a signal and waits for its end.
    pub(crate) fn end(&mut self, signal: Signal) -> ExitStatus {
        let id = self.child.as_ref().expect("it runs").id();
        kill(Pid::from_raw(i32::try_from(id).expect("a process id")), signal).expect("it is ours");
        self.ended()
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(status) = child.try_wait().expect("our own child") {
                return status;
            }
            if Instant::now() >= deadline {
                let _ = child.kill();
                panic!("it does not end\n{}", self.output());
            }
            thread::sleep(POLL);
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Process {
    /// Leaves nothing behind, however the test ended.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        kill_all(&self.data);
    }
}
