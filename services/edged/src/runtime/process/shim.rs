//! The shim: the parent process of one run of a container, which outlives the pod worker.
//!
//! The shim reads the container's output, writes its log, reaps it, and writes its exit code to a
//! file. So a stop or crash of the edge affects neither the container nor its output. The shim
//! also reaps every process that the container starts: when the container's process ends, the shim
//! kills the rest, as in a container with its own process namespace.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, ExitCode};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::process_identity::ProcessIdentity;
use super::run_directory::{RunDirectory, RunProcess, RunSpec};
use crate::runtime::Exit;

pub(crate) mod log;

use log::{LogFile, copy_lines};

/// The line on the shim's standard output that reports a running container.
pub(crate) const STARTED: &str = "started";

/// Every process of the container has been killed by then; this bounds the wait for a pipe that
/// another process still holds.
const LOG_DRAIN_MAX: Duration = Duration::from_secs(2);

/// Runs one container to its end. `args` is what follows the shim's own arguments: the directory
/// of the run. Call it before any thread is started.
pub fn run(args: impl IntoIterator<Item = String>) -> ExitCode {
    let Some(dir) = args.into_iter().next() else {
        eprintln!("edged starts the shim: it needs the directory of a container's run");
        return ExitCode::from(2);
    };
    match supervise(&RunDirectory::new(PathBuf::from(dir))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The pod worker reads this line, unless it has ended meanwhile.
            let _ = writeln!(io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn supervise(dir: &RunDirectory) -> io::Result<()> {
    let _lock = dir.try_lock()?.ok_or_else(|| io::Error::other("the run has a shim already"))?;
    if dir.exit()?.is_some() {
        return Err(io::Error::other("the pod worker has ended the run"));
    }
    let spec = dir.spec()?.ok_or_else(|| io::Error::other("the run has no spec"))?;
    // Both ends, so that opening does not wait for a reader.
    let _alive = OpenOptions::new().read(true).write(true).open(dir.alive_path())?;
    // A signal to the edge's session or group, such as Ctrl-C, does not reach the shim. A shim that
    // leads its group already cannot leave its session, and needs not.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true)?;
    let log =
        LogFile::open(&spec.log, spec.log_bytes_max, spec.log_files_max).map_err(|error| {
            let path = spec.log.display();
            io::Error::new(error.kind(), format!("cannot write the log {path}: {error}"))
        })?;
    let mut child = match start(&spec) {
        Ok(child) => child,
        Err(error) => {
            let program = spec.argv.first().map(String::as_str).unwrap_or_default();
            dir.write_exit(&Exit::start_error(format!("cannot start {program:?}: {error}")))?;
            return Err(io::Error::new(error.kind(), format!("cannot start {program:?}: {error}")));
        }
    };
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let (started_at, stop_signal) = (Timestamp::now(), spec.stop_signal);
    let state =
        ProcessIdentity::of(pid).map(|identity| RunProcess { identity, started_at, stop_signal });
    if let Err(error) = state.and_then(|state| dir.write_process(&state)) {
        // No later pod worker would find it.
        end_descendants(pid);
        return Err(error);
    }
    ignore_termination();
    let copied = copy_output(&mut child, log);
    // The container runs even if the pod worker has ended.
    let _ = writeln!(io::stdout(), "{STARTED}");
    let status = wait_for(pid);
    end_descendants(pid);
    while copied.recv_timeout(LOG_DRAIN_MAX).is_ok() {}
    let exit = exit(status, started_at);
    let left = spec.termination.and_then(|file| file.message(&spec.log, exit.succeeded()));
    let message = exit.message.clone().or(left);
    dir.write_exit(&Exit { message, ..exit })
}

fn start(spec: &RunSpec) -> io::Result<Child> {
    let Some((program, args)) = spec.argv.split_first() else {
        return Err(io::Error::other("no command"));
    };
    spec.command(program, args).spawn()
}

/// Blocks the signals that ask programs to end: the shim ends with its container. Call it after the
/// start of the container, which would inherit the mask.
fn ignore_termination() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE] {
        signals.add(signal);
    }
    // On failure such a signal ends the shim, and the run counts as lost.
    let _ = signals.thread_block();
}

/// Copies both outputs into the log. The channel closes when both have ended.
fn copy_output(child: &mut Child, log: LogFile) -> mpsc::Receiver<()> {
    let log = Arc::new(Mutex::new(log));
    let (done, copied) = mpsc::sync_channel::<()>(1);
    if let Some(stdout) = child.stdout.take() {
        let (log, done) = (log.clone(), done.clone());
        std::thread::spawn(move || {
            copy_lines(stdout, "stdout", &log);
            drop(done);
        });
    }
    if let Some(stderr) = child.stderr.take() {
        std::thread::spawn(move || {
            copy_lines(stderr, "stderr", &log);
            drop(done);
        });
    }
    copied
}

/// Reaps every child until the container's process ends.
fn wait_for(pid: i32) -> Option<WaitStatus> {
    loop {
        match waitpid(None, None) {
            Ok(status) if status.pid() == Some(Pid::from_raw(pid)) => match status {
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Some(status),
                _ => {}
            },
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
    }
}

/// Kills the rest of the container: its process group, and every child of the shim.
fn end_descendants(pid: i32) {
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    loop {
        for child in children() {
            let _ = kill(child, Signal::SIGKILL);
        }
        match waitpid(None, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)) == Some(&own)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .map(Pid::from_raw)
        .collect()
}

fn exit(status: Option<WaitStatus>, started_at: Timestamp) -> Exit {
    let (code, signal) = match status {
        Some(WaitStatus::Exited(_, code)) => (code, None),
        Some(WaitStatus::Signaled(_, signal, _)) => (128 + signal as i32, Some(signal as i32)),
        _ => return Exit::unobserved(Some(started_at)),
    };
    Exit::observed(code, signal, started_at)
}
