//! A server on its data.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::error::DaemonError;
use crate::output::tail;
use crate::process::Process;

/// The time limit of a start. A start takes seconds on an idle machine; this is for a busy one.
const START_WITHIN: Duration = Duration::from_secs(90);

/// The interval between two looks at a starting daemon.
const POLL: Duration = Duration::from_millis(20);

/// The time limit until all threads of a frozen daemon have stopped.
const FROZEN_WITHIN: Duration = Duration::from_secs(5);

/// The interval between two looks at a daemon that is to stop.
const FROZEN_POLL: Duration = Duration::from_millis(1);

/// The time limit of a stop; then the daemon is killed. Java writes its class archive meanwhile.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// What decides that a daemon is ready.
pub trait Readiness: fmt::Debug + Send {
    /// Whether it is ready now.
    fn is_ready(&mut self) -> bool;
}

/// A server; it is killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    command: Command,
    log: PathBuf,
    readiness: Box<dyn Readiness>,
    start_within: Duration,
    running: Option<Process>,
}

impl Daemon {
    /// A daemon that does not run yet: errors call it `name`, and its output goes to the file
    /// `log`.
    pub fn new(
        name: impl Into<String>,
        command: Command,
        log: PathBuf,
        readiness: impl Readiness + 'static,
    ) -> Self {
        let readiness = Box::new(readiness);
        let name = name.into();
        Self { name, command, log, readiness, start_within: START_WITHIN, running: None }
    }

    /// Starts it on its data, and returns when it is ready.
    ///
    /// # Errors
    /// It ends again or is not ready in time; then it does not run.
    pub fn start(&mut self) -> Result<(), DaemonError> {
        self.begin()?;
        self.started()
    }

    /// Starts its process and waits for nothing, so that several daemons start at once.
    ///
    /// # Errors
    /// Its program cannot be started.
    pub fn begin(&mut self) -> Result<(), DaemonError> {
        if self.running.is_none() {
            // A line of an earlier start would count for this one.
            let _ = fs::rename(&self.log, self.log.with_extension("before.log"));
            self.running = Some(Process::start(&self.command, &self.log)?);
        }
        Ok(())
    }

    /// Returns when its process is ready.
    ///
    /// # Errors
    /// It ends or is not ready in time; then it does not run.
    pub fn started(&mut self) -> Result<(), DaemonError> {
        let end = self.wait_for_start();
        if end.is_err() {
            self.kill()?;
        }
        end
    }

    fn wait_for_start(&mut self) -> Result<(), DaemonError> {
        let Some(process) = &self.running else { return Ok(()) };
        let deadline = Instant::now() + self.start_within;
        while Instant::now() < deadline {
            // The end comes first: another process may answer at its address.
            if let Some(end) = process.ended_within(Duration::ZERO) {
                let what = self.name.clone();
                let status = end.map_or_else(|error| error.to_string(), |end| end.to_string());
                return Err(DaemonError::Failed { what, status, output: tail(&self.log) });
            }
            if self.readiness.is_ready() {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        let seconds = self.start_within.as_secs();
        Err(DaemonError::Late { what: self.name.clone(), seconds, output: tail(&self.log) })
    }

    /// Kills it at once, as `kill -9` does. Its data stays.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn kill(&mut self) -> Result<(), DaemonError> {
        self.end(Signal::SIGKILL)
    }

    /// Stops it in an orderly way. Its data stays.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn stop(&mut self) -> Result<(), DaemonError> {
        self.end(Signal::SIGTERM)
    }

    /// Freezes it: it keeps its connections and answers nothing. A signal stops a process after the call that sends
    /// it; when this returns, every thread has stopped, or did not within five seconds.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn freeze(&self) -> Result<(), DaemonError> {
        self.signal(Signal::SIGSTOP)?;
        let Some(pid) = self.pid() else { return Ok(()) };
        let deadline = Instant::now() + FROZEN_WITHIN;
        while !is_stopped(pid) && Instant::now() < deadline {
            thread::sleep(FROZEN_POLL);
        }
        Ok(())
    }

    /// Continues a frozen one.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn thaw(&self) -> Result<(), DaemonError> {
        self.signal(Signal::SIGCONT)
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Process::pid)
    }

    /// The end of its output since its last start.
    pub fn words(&self) -> String {
        tail(&self.log)
    }

    fn signal(&self, signal: Signal) -> Result<(), DaemonError> {
        let Some(process) = &self.running else { return Ok(()) };
        let sent = process.signal(signal);
        sent.map_err(|source| DaemonError::Signal { what: self.name.clone(), source })
    }

    fn end(&mut self, signal: Signal) -> Result<(), DaemonError> {
        let sent = self.signal(signal);
        let Some(process) = self.running.take() else { return Ok(()) };
        if sent.is_err() || process.ended_within(STOP_WITHIN).is_none() {
            // It may have ended by itself; then no process is left to kill.
            let _ = process.signal(Signal::SIGKILL);
            process.ended_within(STOP_WITHIN);
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // A frozen one takes no other signal; one that cannot be killed has ended.
        let _ = self.kill();
    }
}

/// Whether every thread of a process has stopped (`proc_pid_stat(5)`: state `T` follows the name in brackets).
fn is_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).all(|stat| {
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;

    #[derive(Debug)]
    struct Line(PathBuf);

    impl Readiness for Line {
        fn is_ready(&mut self) -> bool {
            fs::read_to_string(&self.0).is_ok_and(|text| text.contains("ready"))
        }
    }

    fn shell(script: &str) -> (TempDir, Daemon) {
        let scratch = tempfile::tempdir().expect("a folder");
        let log = scratch.path().join("daemon.log");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let daemon = Daemon::new("the shell", command, log.clone(), Line(log));
        (scratch, daemon)
    }

    fn lives(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_daemon_is_killed_and_starts_again_with_a_log_of_its_own() {
        let (_scratch, mut daemon) = shell("echo ready $$; exec sleep 60");
        daemon.start().expect("it starts");
        let first = daemon.pid().expect("it runs");
        assert_eq!(daemon.words(), format!("ready {first}\n"));
        daemon.kill().expect("it can be killed");
        assert_eq!(daemon.pid(), None);
        assert!(!lives(first));
        daemon.start().expect("it starts again");
        let second = daemon.pid().expect("it runs");
        assert_eq!(daemon.words(), format!("ready {second}\n"));
        daemon.freeze().expect("it can be frozen");
        drop(daemon);
        assert!(!lives(second), "a dropped daemon lives on");
    }

    #[test]
    fn a_daemon_that_ends_at_once_is_quoted() {
        let (_scratch, mut daemon) = shell("echo no such flag; exit 4");
        let error = daemon.start().expect_err("it ends").to_string();
        assert_eq!(error, "the shell failed (exit status: 4):\nno such flag\n");
        assert_eq!(daemon.pid(), None);
    }

    #[test]
    fn a_daemon_that_is_never_ready_is_killed_at_its_deadline() {
        let (_scratch, mut daemon) = shell("echo almost; exec sleep 60");
        daemon.begin().expect("it starts");
        let pid = daemon.pid().expect("it runs");
        // On a busy machine a shell takes longer than the time that it has then.
        let deadline = Instant::now() + START_WITHIN;
        while daemon.words().is_empty() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        daemon.start_within = Duration::from_secs(1);
        let error = daemon.started().expect_err("it is late").to_string();
        assert_eq!(error, "the shell did not come up within 1 s:\nalmost\n");
        assert!(!lives(pid), "a late daemon lives on");
    }
}
