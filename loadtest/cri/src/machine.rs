//! The namespaces of a lab: its processes, mounts and network are apart from those of the machine,
//! and end together.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use headwater_daemon::{Daemon, DaemonError, Readiness};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::LabError;

/// The script of the first process.
const SCRIPT: &str = include_str!("machine.sh");

/// Its last word before it waits.
const READY: &str = "ready";

/// The time limit of the end of a process that got SIGKILL: the kernel unmounts and ends hundreds
/// of processes meanwhile.
const END_WITHIN: Duration = Duration::from_secs(30);

/// The interval between two looks at an ending process.
const POLL: Duration = Duration::from_millis(5);

/// Namespaces with a first process; when it ends, the kernel ends every process in them.
#[derive(Debug)]
pub struct Machine {
    /// `unshare`, the parent of the first process.
    daemon: Daemon,
    first: Pid,
    /// The search path of programs in them.
    path: OsString,
}

impl Machine {
    /// Starts one, whose data lies in `data`, and whose programs are found by `path`.
    ///
    /// # Errors
    /// The kernel gives no namespaces.
    pub(crate) fn start(data: &Path, path: OsString) -> Result<Self, LabError> {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child=KILL", "--mount", "--mount-proc", "--net"]);
        command.args(["--", "sh", "-c", SCRIPT, "machine"]).arg(data);
        command.env("PATH", &path);
        let log = data.join("machine.log");
        let mut daemon = Daemon::new(
            "the machine of namespaces",
            command,
            log.clone(),
            LogLine::new(log, READY),
        );
        daemon.start()?;
        let first = only_child(&daemon, "the machine of namespaces")?;
        Ok(Self { daemon, first, path })
    }

    /// Its first process, as the machine outside counts.
    pub fn pid(&self) -> u32 {
        self.first.as_raw().cast_unsigned()
    }

    /// The path by which a process outside reaches `path` of the namespaces, such as a file in
    /// `/run`. Paths that the lab does not mount on are the same outside.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.first)).join(path.trim_start_matches('/'))
    }

    /// A command that runs `program` in the namespaces. The program ends with its starter.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.first.to_string());
        command.args(["--pid", "--mount", "--net", "--", "setpriv", "--pdeathsig", "KILL"]);
        command.arg(program).env("PATH", &self.path);
        command
    }

    /// Moves the calling thread, and every thread that it starts later, into the network
    /// namespace: it reaches the addresses of pods.
    ///
    /// # Errors
    /// The machine ended, or the user is not root.
    pub fn enter_network(&self) -> Result<(), LabError> {
        let pid = self.first.as_raw();
        let enter = |source| LabError::Enter { pid, source };
        let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(enter)?;
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).map_err(|error| enter(error.into()))
    }

    /// Ends every process at once, as a power cut does, and returns when all have ended.
    ///
    /// # Errors
    /// The first process cannot be signalled.
    pub(crate) fn kill(&mut self) -> Result<(), LabError> {
        if self.daemon.pid().is_some() {
            // The first process ends last, and `unshare` after it.
            end(self.first, Signal::SIGKILL);
            self.daemon.kill()?;
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Without its starter the first process is killed anyway.
        let _ = self.kill();
    }
}

/// A server in the namespaces; it is killed when dropped.
#[derive(Debug)]
pub struct Server {
    name: String,
    /// `nsenter`, the parent of the server.
    daemon: Daemon,
    process: Option<Pid>,
}

impl Server {
    pub(crate) fn new(name: &str, command: Command, log: PathBuf, readiness: LogLine) -> Self {
        Self {
            name: name.to_owned(),
            daemon: Daemon::new(name, command, log, readiness),
            process: None,
        }
    }

    /// Starts it on its data, and returns when it is ready.
    ///
    /// # Errors
    /// It ends again or is not ready in time.
    pub fn start(&mut self) -> Result<(), LabError> {
        self.daemon.start()?;
        self.process = Some(only_child(&self.daemon, &self.name)?);
        Ok(())
    }

    /// Kills it alone, as `kill -9` does; what it started runs on.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn kill(&mut self) -> Result<(), LabError> {
        self.end(Signal::SIGKILL)
    }

    /// Stops it alone in an orderly way.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn stop(&mut self) -> Result<(), LabError> {
        self.end(Signal::SIGTERM)
    }

    /// Freezes it: it keeps its connections and answers nothing.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn freeze(&self) -> Result<(), LabError> {
        self.signal(Signal::SIGSTOP)
    }

    /// Continues a frozen one.
    ///
    /// # Errors
    /// Its process cannot be signalled.
    pub fn thaw(&self) -> Result<(), LabError> {
        self.signal(Signal::SIGCONT)?;
        // It stopped with its child.
        Ok(self.daemon.thaw()?)
    }

    /// Its process, as the machine outside counts, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.map(|pid| pid.as_raw().cast_unsigned())
    }

    /// The end of its output since its last start.
    pub fn words(&self) -> String {
        self.daemon.words()
    }

    fn signal(&self, signal: Signal) -> Result<(), LabError> {
        let Some(pid) = self.process else { return Ok(()) };
        let sent = kill(pid, signal);
        Ok(sent.map_err(|source| DaemonError::Signal { what: self.name.clone(), source })?)
    }

    fn end(&mut self, signal: Signal) -> Result<(), LabError> {
        if let Some(pid) = self.process.take() {
            end(pid, signal);
        }
        Ok(self.daemon.kill()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that cannot be killed has ended.
        let _ = self.kill();
    }
}

/// A server is ready when its log has the words.
#[derive(Debug)]
pub(crate) struct LogLine {
    log: PathBuf,
    words: &'static str,
}

impl LogLine {
    pub(crate) fn new(log: PathBuf, words: &'static str) -> Self {
        Self { log, words }
    }
}

impl Readiness for LogLine {
    fn is_ready(&mut self) -> bool {
        fs::read_to_string(&self.log).is_ok_and(|text| text.contains(self.words))
    }
}

/// Signals `pid`, and returns when it has ended; a process that does not end in time is killed.
fn end(pid: Pid, signal: Signal) {
    for signal in [signal, Signal::SIGKILL] {
        let deadline = Instant::now() + END_WITHIN;
        // A process that ended needs no signal.
        let _ = kill(pid, signal);
        while Instant::now() < deadline {
            if has_ended(pid) {
                return;
            }
            thread::sleep(POLL);
        }
    }
}

/// Whether the process ended; its parent may not have noticed yet.
fn has_ended(pid: Pid) -> bool {
    let process = procfs::process::Process::new(pid.as_raw()).and_then(|process| process.stat());
    process.map_or(true, |stat| matches!(stat.state, 'Z' | 'X'))
}

/// The child of a program that starts only one.
fn only_child(daemon: &Daemon, what: &str) -> Result<Pid, LabError> {
    let lost = || LabError::NoProcess { what: what.to_owned() };
    let parent = daemon.pid().ok_or_else(lost)?.cast_signed();
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let mut children = processes.filter(|one| one.stat().is_ok_and(|stat| stat.ppid == parent));
    children.next().map(|child| Pid::from_raw(child.pid)).ok_or_else(lost)
}
