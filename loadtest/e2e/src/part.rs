//! A part of Headwater as a process with its own data directory, and the faults to inject into it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headwater_daemon::output_within;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::containers::kill_all;
use crate::memory;
use crate::running::{WAIT, headwater, output};

/// The polling interval.
const POLL: Duration = Duration::from_millis(100);

/// A data directory, and the process that owns it while it runs.
pub struct Part {
    data: PathBuf,
    log: PathBuf,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    process: Option<Child>,
    /// What the processes that have ended took at most, each for itself.
    peak_bytes: u64,
}

impl Part {
    /// Starts `headwater` with `args`; its data lies in `folder` under `name`, and so does what it
    /// says.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn start(folder: &Path, name: &str, args: Vec<String>) -> Self {
        let (data, log) = (folder.join(name), folder.join(format!("{name}.log")));
        let mut part =
            Self { data, log, args, variables: Vec::new(), process: None, peak_bytes: 0 };
        part.start_again();
        part
    }

    /// Starts it on the same data directory.
    ///
    /// # Panics
    /// When it runs already, or cannot be started.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let mut command = headwater();
        command.args(&self.args).arg("--data").arg(&self.data);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let command = command.stdout(log.try_clone().expect("the same log")).stderr(log);
        self.process = Some(command.spawn().expect("headwater starts"));
    }

    /// Says `after` instead of `before` on its command line from its next start on.
    pub fn say_instead(&mut self, before: &str, after: &str) {
        for arg in self.args.iter_mut().filter(|arg| *arg == before) {
            after.clone_into(arg);
        }
    }

    /// Sets a variable of its environment from its next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// What a file of its data directory says, where something is served: `hub.addr`.
    pub fn address(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.data.join(file)).ok()?;
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    }

    /// Its output so far, over all its starts.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process that runs, if one does.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Whether the process that was started last runs.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// What kind of part it is: `hub`, `edge`.
    pub fn kind(&self) -> &str {
        self.args.first().map_or("", String::as_str)
    }

    /// The most memory of its own that any of its processes had, in bytes; see
    /// [`memory::peak_bytes`].
    pub fn peak_bytes(&self) -> u64 {
        let now = self.process_id().and_then(memory::peak_bytes);
        self.peak_bytes.max(now.unwrap_or(0))
    }

    /// Asks it something.
    ///
    /// # Panics
    /// When the program cannot be started, or has not ended in [`WAIT`].
    pub fn ask(&self, args: &[&str]) -> Output {
        output(&mut self.command(args))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = headwater();
        command.args(args).arg("--data").arg(&self.data).stdin(Stdio::null());
        command
    }

    /// Asks it something and gives what it printed, if it was done in [`WAIT`].
    pub fn text(&self, args: &[&str]) -> Option<String> {
        let output = output_within(&mut self.command(args), WAIT).ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Asks it something that answers in JSON.
    pub fn json(&self, args: &[&str]) -> Option<Value> {
        serde_json::from_str(&self.text(args)?).ok()
    }

    /// Its status.
    pub fn status(&self) -> Option<Value> {
        self.json(&["status", "-o", "json"])
    }

    /// The events of a stream, as it reads them from the log.
    pub fn history(&self, stream: &str) -> Option<Vec<Value>> {
        let lines = self.text(&["history", stream, "-o", "json"])?;
        Some(lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Kills it at once, as `kill -9` does.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill(&mut self) {
        self.peak_bytes = self.peak_bytes();
        self.signal(Signal::SIGKILL);
        self.ended();
    }

    /// Stops it as a service manager does, and gives how it ended.
    ///
    /// # Panics
    /// When it does not end in [`WAIT`].
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Freezes it: it holds its connections and does nothing.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a frozen one go on.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Holds every thread of it still for as long as the answer lives; one that is frozen or has
    /// ended stays as it is.
    ///
    /// # Panics
    /// When it does not freeze in [`WAIT`].
    pub fn halt(&self) -> HaltedPart<'_> {
        if self.stands_still() {
            return HaltedPart(None);
        }
        self.freeze();
        let halted = HaltedPart(Some(self));
        let deadline = Instant::now() + WAIT;
        while !self.stands_still() {
            assert!(Instant::now() < deadline, "it does not freeze\n{}", self.output());
            thread::sleep(Duration::from_millis(1));
        }
        halted
    }

    /// Whether no thread of it does anything.
    pub(crate) fn stands_still(&self) -> bool {
        let Some(id) = self.process_id() else { return true };
        let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        let state = |thread: &Path| {
            let stat = fs::read_to_string(thread.join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(')')?;
            rest.trim_start().chars().next()
        };
        // Stopped, or ended.
        threads.into_iter().all(|t| state(&t.path()).is_none_or(|state| "TtZX".contains(state)))
    }

    /// Waits for its end, if it runs.
    ///
    /// # Panics
    /// When it does not end in [`WAIT`].
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let mut process = self.process.take()?;
        let deadline = Instant::now() + WAIT;
        loop {
            let peak_bytes = memory::peak_bytes(process.id());
            self.peak_bytes = self.peak_bytes.max(peak_bytes.unwrap_or(0));
            if let Some(status) = process.try_wait().expect("our own child") {
                return Some(status);
            }
            if Instant::now() >= deadline {
                let _ = process.kill();
                let _ = process.wait();
                panic!("it does not end\n{}", self.output());
            }
            thread::sleep(POLL);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.process_id().and_then(|id| i32::try_from(id).ok()) {
            // The process may have ended; its exit status shows that.
            let _ = kill(Pid::from_raw(id), signal);
        }
    }
}

/// A part whose threads are held; dropping it resumes them.
pub struct HaltedPart<'p>(Option<&'p Part>);

impl Drop for HaltedPart<'_> {
    fn drop(&mut self) {
        if let Some(part) = self.0 {
            part.thaw();
        }
    }
}

impl Drop for Part {
    /// Leaves nothing behind, however the test ended: a frozen one takes no other signal.
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
        kill_all(&self.data);
    }
}
