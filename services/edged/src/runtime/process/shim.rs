//! The shim: the parent process of one run of a container, which outlives the pod worker.
//!
//! The shim reads the container's output, writes its log, reaps it, and writes its exit code to a
//! file. So a stop or crash of the edge affects neither the container nor its output. The shim also
//! starts the commands of probes and hooks, and reaps every process that the container starts: when
//! the container's process ends, the shim kills the rest, as in a container with its own process
//! namespace.
//!
//! | module | job |
//! |---|---|
//! | `child`, `stage` | the start of a command: the shim's side, and the process that becomes it |
//! | `view` | the container's own view of mounts |
//! | `reaper`, `commands` | the ends of children; commands of probes and hooks |
//! | `log` | the container's log |
//!
//! If the shim is killed, the container's process is killed with it. Processes that the container
//! started are found by the pod worker (`leftovers`).

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ExitCode};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::process_identity::ProcessIdentity;
use super::run_directory::{RunDirectory, RunProcess};
use super::run_spec::RunSpec;
use crate::runtime::Exit;

mod child;
pub(crate) mod commands;
pub(crate) mod log;
mod reaper;
mod stage;
mod view;

use child::LaunchStage;
use log::{LogFile, copy_lines};
use reaper::Reaper;
use stage::LaunchOrder;

/// The line on the shim's standard output that reports a running container.
pub(crate) const STARTED: &str = "started";

/// Every process of the container has been killed by then; this bounds the wait for a pipe that
/// another process still holds.
const LOG_DRAIN_MAX: Duration = Duration::from_secs(2);

/// The longest run, as JSON: the arguments and the environment of a process have 2 MiB together.
const RUN_BYTES_MAX: u64 = 16 << 20;

/// Runs one container to its end. `args` is what follows the shim's own arguments: the directory
/// of the run. Call it before any thread is started.
pub fn run(args: impl IntoIterator<Item = String>) -> ExitCode {
    // Its memory holds the secrets of the container's environment: no other process of this user
    // may read it.
    let _ = nix::sys::prctl::set_dumpable(false);
    let Some(dir) = args.into_iter().next() else {
        eprintln!("edged starts the shim: it needs the directory of a container's run");
        return ExitCode::from(2);
    };
    if dir == stage::ARGUMENT {
        return stage::run();
    }
    umask(Mode::from_bits_truncate(0o077));
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
    let spec = read_run()?;
    // Both ends, so that opening does not wait for a reader.
    let _alive = OpenOptions::new().read(true).write(true).open(dir.alive_path())?;
    // A signal to the edge's session or group, such as Ctrl-C, does not reach the shim. A shim that
    // leads its group already cannot leave its session, and needs not.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true)?;
    block_signals();
    let log =
        LogFile::open(&spec.log, spec.log_bytes_max, spec.log_files_max).map_err(|error| {
            let path = spec.log.display();
            io::Error::new(error.kind(), format!("cannot write the log {path}: {error}"))
        })?;
    let listener = dir.listen_for_commands()?;
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
    let process =
        ProcessIdentity::of(pid).map(|identity| RunProcess { identity, started_at, stop_signal });
    let process = match process.and_then(|process| dir.write_process(&process).map(|()| process)) {
        Ok(process) => process,
        Err(error) => {
            // No later pod worker would find it.
            end_descendants(pid);
            return Err(error);
        }
    };
    let reaper = Reaper::default();
    commands::serve(listener, spec.place, reaper.clone());
    end_on_request(dir.clone(), process, Duration::from_secs(spec.grace_seconds));
    let copied = copy_output(&mut child, log);
    // The container runs even if the pod worker has ended.
    let _ = writeln!(io::stdout(), "{STARTED}");
    let status = reaper.wait_for(pid);
    reaper.close();
    end_descendants(pid);
    while copied.recv_timeout(LOG_DRAIN_MAX).is_ok() {}
    let exit = exit(status, started_at);
    let left = spec.termination.message(&spec.log, exit.succeeded());
    let message = exit.message.clone().or(left);
    dir.write_exit(&Exit { message, ..exit })
}

/// Reads the run from the standard input.
fn read_run() -> io::Result<RunSpec> {
    let mut text = Vec::new();
    io::stdin().take(RUN_BYTES_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text)
        .map_err(|error| io::Error::other(format!("the run cannot be read: {error}")))
}

fn start(spec: &RunSpec) -> io::Result<Child> {
    let order = LaunchOrder {
        parent: own_id()?,
        argv: Cow::Borrowed(&spec.argv),
        place: Cow::Borrowed(&spec.place),
        layout: spec.layout.as_ref().map(Cow::Borrowed),
    };
    LaunchStage::start()?.become_command(&order).map_err(|mut failed| {
        // No reaper runs yet.
        let _ = failed.child.wait();
        failed.source
    })
}

/// The id of the shim, with which its commands end.
fn own_id() -> io::Result<i32> {
    i32::try_from(std::process::id()).map_err(io::Error::other)
}

/// Blocks the signals that ask programs to end: the shim ends with its container. Its children
/// inherit the mask, and the launch stage clears it.
fn block_signals() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE] {
        signals.add(signal);
    }
    // On failure such a signal ends the shim, and its container with it.
    let _ = signals.thread_block();
}

/// When the shim is asked to end, it ends its container within the pod's grace period. Such a request
/// comes from the machine's side, so the container starts again under any restart policy.
fn end_on_request(dir: RunDirectory, process: RunProcess, grace: Duration) {
    std::thread::spawn(move || {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        if signals.wait().is_err() {
            return;
        }
        // If the mark cannot be written, the end counts as the container's own.
        let _ = dir.mark_interrupted();
        let _ = process.identity.signal_group(process.stop_signal.signal());
        std::thread::sleep(grace);
        let _ = process.identity.signal_group(Signal::SIGKILL);
    });
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
