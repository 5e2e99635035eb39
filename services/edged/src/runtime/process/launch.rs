//! Starts runs of containers, and removes the containers and logs of a pod.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::stat::Mode;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::adoption;
use super::rights::LaunchRights;
use super::run_directory::RunDirectory;
use super::run_spec::{Layout, Place, RunSpec, View};
use super::shim;
use super::state::{ContainerEntry, LatestRun, ProcessState};
use crate::container::{LaunchSpec, Mount};
use crate::disk::durable_file;
use crate::disk::file_error::{FileError, blocking};
use crate::pod::PodRecord;
use crate::runtime::pod_files::termination_file::TerminationFile;
use crate::runtime::pod_files::volumes;
use crate::runtime::{Exit, RuntimeError};

/// A shim reports within this time that its container runs: it has one process to start.
const START_MAX: Duration = Duration::from_secs(30);

/// Starts a container once more.
pub(super) async fn start(
    state: &Arc<ProcessState>,
    pod: &PodRecord,
    launch: &LaunchSpec,
) -> Result<(), RuntimeError> {
    let name = launch.container.clone();
    if let Some(error) = adoption::retry_unread(state, &pod.uid).await {
        return Err(error);
    }
    let rights = state.policy.rights(&launch.credentials).map_err(|(field, why)| {
        RuntimeError::Start { container: name.clone(), cause: format!("{field}: {why}") }
    })?;
    let (attempt, previous) = match state.container(&pod.uid, &name) {
        None => (0, None),
        Some(ContainerEntry { attempt, run: LatestRun::Exited(exit), .. }) => {
            (attempt + 1, Some(exit))
        }
        Some(ContainerEntry { run: LatestRun::Running { .. }, .. }) => return Ok(()),
    };
    let (dir, run) = {
        let (state, pod, launch) = (state.clone(), pod.clone(), launch.clone());
        blocking(move || prepare(&state, &pod, &launch, rights, attempt)).await?
    };
    let report = start_shim(state, &dir, &run, &name).await;
    drop(run);
    let started = report.as_ref().is_ok_and(|report| report == shim::STARTED);
    let run = match dir.exit() {
        // A command that cannot be started has an exit, and so has one that has ended by now.
        Ok(Some(exit)) => LatestRun::Exited(exit),
        _ if started => {
            let process = dir.process().map_err(FileError::new("read the state in", dir.path()))?;
            let since = process.as_ref().map_or_else(Timestamp::now, |process| process.started_at);
            LatestRun::Running { process, since }
        }
        _ => give_up(&dir, &report).map_err(FileError::new("give up", dir.path()))?,
    };
    let exit = match &run {
        LatestRun::Exited(exit) => Some(exit.clone()),
        LatestRun::Running { .. } => None,
    };
    let entry = ContainerEntry { attempt, run, previous, is_of_earlier_boot: false };
    state.set_container(&pod.uid, &name, entry);
    match (exit, report) {
        (None, _) => adoption::await_end(state, &pod.uid, &name, attempt),
        (Some(Exit { started_at: None, message, .. }), report) => {
            let cause = message.or_else(|| report.ok()).unwrap_or_default();
            return Err(RuntimeError::Start { container: name, cause });
        }
        (Some(_), _) => {}
    }
    Ok(())
}

/// Ends a run whose shim did not report its start, unless the shim is still alive.
fn give_up(dir: &RunDirectory, report: &Result<String, RuntimeError>) -> io::Result<LatestRun> {
    let Some(_lock) = dir.try_lock()? else {
        return Ok(LatestRun::Running { process: None, since: Timestamp::now() });
    };
    let cause = match report {
        Ok(report) => report.clone(),
        Err(error) => error.to_string(),
    };
    let exit = dir.exit()?.unwrap_or_else(|| Exit::start_error(cause));
    dir.write_exit(&exit)?;
    Ok(LatestRun::Exited(exit))
}

/// Writes everything that the shim needs, and returns what it receives.
fn prepare(
    state: &ProcessState,
    pod: &PodRecord,
    launch: &LaunchSpec,
    mut rights: LaunchRights,
    attempt: u32,
) -> Result<(RunDirectory, RunSpec), RuntimeError> {
    let name = &launch.container;
    let paths = &state.paths;
    let layout = Layout {
        root: paths.root(&pod.uid, name),
        volumes: paths.volumes(&pod.uid),
        mounts: launch.mounts.clone(),
        working_dir: launch.working_dir.clone(),
    };
    let log = paths.log(pod, name, attempt);
    if let Some(path) = log.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(FileError::new("create", path))?;
    }
    let dir = RunDirectory::new(paths.run(&pod.uid, name, attempt));
    // An interrupted start left this directory, and nothing ran in it.
    if dir.path().exists() {
        fs::remove_dir_all(dir.path()).map_err(FileError::new("remove", dir.path()))?;
    }
    // With any directory above it the end of a run would be lost, and the container would start
    // again.
    durable_file::create_dir(&paths.pod(&pod.uid), dir.path())
        .map_err(FileError::new("create", dir.path()))?;
    let alive = dir.alive_path();
    nix::unistd::mkfifo(&alive, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|error| FileError::new("create", &alive)(error.into()))?;
    volumes::check(&layout)?;
    let has_other_user = rights.identity.is_some();
    match &rights.identity {
        Some(identity) => {
            volumes::give(&layout, identity, launch.credentials.fs_group)?;
        }
        None => volumes::root(&layout)?,
    }
    let termination = TerminationFile {
        root: layout.root.clone(),
        path: launch.termination_message.path.clone(),
        falls_back_to_logs: launch.termination_message.falls_back_to_logs,
    };
    if let Err(error) = termination.prepare() {
        let pod = &pod.key;
        tracing::debug!(%pod, container = name, %error, "no place for a termination message");
    }
    // A read-only volume that the pod worker itself writes needs no view.
    let is_kept = |mount: &Mount| mount.read_only && !mount.is_written_here;
    let can_separate = state.policy.own.can_separate;
    let has_absolute = can_separate && layout.mounts.iter().any(|mount| mount.is_absolute);
    // The container may own what it sees at a path of the host, such as /etc/passwd: no program of
    // the host that trusts such a path may give it more rights.
    rights.no_new_privileges |= has_absolute;
    let needs_view = has_other_user || has_absolute || layout.mounts.iter().any(is_kept);
    let view = needs_view.then(|| View::of(paths.dir(), &layout));
    let run = RunSpec {
        argv: launch.argv(),
        place: Place { env: launch.env.clone(), cwd: layout.start(), rights, view },
        layout: has_other_user.then_some(layout),
        log,
        log_bytes_max: state.log_bytes_max,
        log_files_max: state.log_files_max,
        grace_seconds: pod.grace().as_secs(),
        stop_signal: launch.stop_signal,
        termination,
    };
    remove_old_run(state, pod, name, attempt);
    Ok((dir, run))
}

/// Removes the run before the previous one: the latest two are kept.
fn remove_old_run(state: &ProcessState, pod: &PodRecord, name: &str, attempt: u32) {
    let Some(old) = attempt.checked_sub(2) else { return };
    let log = state.paths.log(pod, name, old);
    state.files.remove_run(&pod.uid, &log, name, old, state.log_files_max);
}

/// Starts the shim and waits for its first line.
async fn start_shim(
    state: &ProcessState,
    dir: &RunDirectory,
    run: &RunSpec,
    name: &str,
) -> Result<String, RuntimeError> {
    let failed = |cause: String| RuntimeError::Start { container: name.to_owned(), cause };
    let (program, args) =
        state.shim.split_first().ok_or_else(|| failed("no shim is configured".to_owned()))?;
    let mut shim = Command::new(program)
        .args(args)
        .arg(dir.path())
        .envs(state.shim_env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Out of reach of the terminal's Ctrl-C from the first moment.
        .process_group(0)
        // It outlives this process, and keeps no file system busy.
        .current_dir("/")
        .spawn()
        .map_err(|error| failed(format!("cannot start the shim {program:?}: {error}")))?;
    let (stdin, stdout) = (shim.stdin.take(), shim.stdout.take());
    tokio::spawn(async move {
        // This only reaps the shim: the end of the container is in its files.
        let _ = shim.wait().await;
    });
    let Some(stdout) = stdout else { return Err(failed("the shim has no output".to_owned())) };
    let text = serde_json::to_vec(run).map_err(|error| failed(error.to_string()))?;
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout);
    let started = async {
        if let Some(mut stdin) = stdin {
            // A shim that has ended leaves its reason on its output.
            let _ = stdin.write_all(&text).await;
        }
        stdout.read_line(&mut line).await
    };
    match tokio::time::timeout(START_MAX, started).await {
        Ok(Ok(_)) => Ok(line.trim().to_owned()),
        Ok(Err(error)) => Err(failed(format!("the output of the shim cannot be read: {error}"))),
        Err(_) => Err(failed(format!("the shim did not report a start in {START_MAX:?}"))),
    }
}

/// Removes the pod's logs, then its containers and volumes, then forgets it. It can be repeated.
pub(super) async fn remove(state: &ProcessState, pod: &PodRecord) -> Result<(), RuntimeError> {
    if let Some(container) = state.running(&pod.uid) {
        state.notify(&pod.uid);
        return Err(RuntimeError::StillRuns { container });
    }
    state.files.remove(pod).await?;
    state.with(|pods| pods.remove(&pod.uid));
    Ok(())
}
