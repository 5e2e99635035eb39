//! The shim: one small process per run of a container, its parent, which outlives the pod worker.
//!
//! It holds the container's output and writes its log, reaps it, and leaves its exit code in a
//! file; so a stop or crash of the edge touches neither the container nor what it says. The shim
//! is the reaper of everything the container starts: when the container's process ends, what it
//! left running ends too, as in a container with its own process namespace.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::process_identity::ProcessIdentity;
use super::run_directory::{RunDirectory, Spec, State};
use crate::runtime::Exit;

pub(crate) mod log;

use log::{LogFile, copy_lines};

/// What the shim says on its standard output once the container runs.
pub(crate) const STARTED: &str = "started";

/// As Docker and containerd say it of a command that cannot be started.
const START_ERROR_CODE: i32 = 128;

/// Everything that wrote to the log has been killed by then; this only bounds a pipe that went
/// to somebody else.
const LOG_DRAIN_MAX: Duration = Duration::from_secs(2);

/// Runs one container to its end. `args` is what follows the shim's own arguments: the directory
/// of the run. Call it before any thread is started.
pub fn run(args: impl IntoIterator<Item = String>) -> ExitCode {
    let Some(dir) = args.into_iter().next() else {
        eprintln!("the shim is started by edged: it needs the directory of a container's run");
        return ExitCode::from(2);
    };
    match supervise(&RunDirectory::new(PathBuf::from(dir))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The pod worker reads this; it may be gone, and then nobody does.
            let _ = writeln!(io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn supervise(dir: &RunDirectory) -> io::Result<()> {
    let _lock = dir.try_lock()?.ok_or_else(|| io::Error::other("the run has a shim already"))?;
    if dir.exit()?.is_some() {
        return Err(io::Error::other("the run was given up"));
    }
    let spec = dir.spec()?.ok_or_else(|| io::Error::other("the run has no spec"))?;
    // Both ends, so that opening does not wait for a reader.
    let _alive = OpenOptions::new().read(true).write(true).open(dir.alive_path())?;
    // A signal to the edge's session or group, such as Ctrl-C, is none to this. A shim that leads
    // its group already is in no session worth leaving.
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
            dir.write_exit(&start_error(format!("cannot start {program:?}: {error}")))?;
            return Err(io::Error::new(error.kind(), format!("cannot start {program:?}: {error}")));
        }
    };
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let started_at = Timestamp::now();
    let state = ProcessIdentity::of(pid).map(|process| State { process, started_at });
    if let Err(error) = state.and_then(|state| dir.write_state(&state)) {
        // Nobody would find it again.
        end_descendants(pid);
        return Err(error);
    }
    ignore_termination();
    let copied = copy_output(&mut child, log);
    // The pod worker may be gone; the container runs all the same.
    let _ = writeln!(io::stdout(), "{STARTED}");
    let status = wait_for(pid);
    end_descendants(pid);
    while copied.recv_timeout(LOG_DRAIN_MAX).is_ok() {}
    dir.write_exit(&ended(status, started_at))
}

fn start(spec: &Spec) -> io::Result<Child> {
    let Some((program, args)) = spec.argv.split_first() else {
        return Err(io::Error::other("no command"));
    };
    Command::new(program)
        .args(args)
        .env_clear()
        .envs(&spec.env)
        .current_dir(&spec.cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

/// What asks programs to end does not end the shim: it ends when its container does. Called after
/// the container was started, which would inherit it.
fn ignore_termination() {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE] {
        signals.add(signal);
    }
    // Without it the shim is only more easily killed.
    let _ = signals.thread_block();
}

/// Copies both outputs into the log; the receiver's other end closes when both have ended.
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

/// Reaps everything until the container's process ends.
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

/// Kills what is left of the container: its group, and whatever has become the shim's own child.
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

fn ended(status: Option<WaitStatus>, started_at: Timestamp) -> Exit {
    let (code, signal) = match status {
        Some(WaitStatus::Exited(_, code)) => (code, None),
        Some(WaitStatus::Signaled(_, signal, _)) => (128 + signal as i32, Some(signal as i32)),
        _ => return lost(Some(started_at)),
    };
    Exit {
        code,
        signal,
        started_at: Some(started_at),
        finished_at: Timestamp::now(),
        reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: None,
        interrupted: false,
    }
}

/// The exit of a run that never began.
pub(crate) fn start_error(message: String) -> Exit {
    Exit {
        code: START_ERROR_CODE,
        signal: None,
        started_at: None,
        finished_at: Timestamp::now(),
        reason: "StartError".to_owned(),
        message: Some(message),
        interrupted: false,
    }
}

/// The exit of a run of which nobody saw the end, in a kubelet's words.
pub(crate) fn lost(started_at: Option<Timestamp>) -> Exit {
    Exit {
        code: 137,
        signal: None,
        started_at,
        finished_at: Timestamp::now(),
        reason: "ContainerStatusUnknown".to_owned(),
        message: Some("The container could not be located when the pod was looked at".to_owned()),
        interrupted: false,
    }
}
