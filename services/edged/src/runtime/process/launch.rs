//! Making a pod's directory and starting runs in it, and removing it again.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::stat::Mode;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::run_directory::{RunDirectory, Spec};
use super::shim;
use super::{Inner, Known, KnownRun, ProcessPod, adoption, blocking, volumes};
use crate::container::LaunchSpec;
use crate::disk::durable_file;
use crate::disk::log_files::rotated;
use crate::pod::PodRecord;
use crate::runtime::{Exit, RuntimeError};

/// A shim says within this that its container runs; it has only a process to start.
const START_MAX: Duration = Duration::from_secs(30);

/// Makes the pod's directory, which nobody else may enter, and writes down what the pod is.
pub(super) fn pod_directory(inner: &Inner, pod: &PodRecord) -> Result<(), RuntimeError> {
    if inner.with(|pods| pods.contains_key(&pod.uid)) {
        return Ok(());
    }
    let dir = inner.paths.pod(&pod.uid);
    let record = inner.paths.record(&pod.uid);
    durable_file::create_dir(&inner.paths.pods(), &dir)
        .map_err(RuntimeError::file("create", &dir))?;
    durable_file::write(&record, pod).map_err(RuntimeError::file("write", &record))?;
    inner.with(|pods| {
        let entry = ProcessPod { record: pod.clone(), containers: Default::default() };
        pods.entry(pod.uid.clone()).or_insert(entry);
    });
    Ok(())
}

/// Starts a container once more.
pub(super) async fn start(
    inner: &Arc<Inner>,
    pod: &PodRecord,
    launch: &LaunchSpec,
) -> Result<(), RuntimeError> {
    let name = launch.container.clone();
    let (attempt, previous) = match inner.known(&pod.uid, &name) {
        None => (0, None),
        Some(Known { attempt, run: KnownRun::Exited(exit), .. }) => (attempt + 1, Some(exit)),
        Some(Known { run: KnownRun::Running { .. }, .. }) => return Ok(()),
    };
    let dir = {
        let (inner, pod, launch) = (inner.clone(), pod.clone(), launch.clone());
        blocking(move || prepare(&inner, &pod, &launch, attempt)).await?
    };
    let said = start_shim(inner, &dir, &name).await;
    let started = said.as_ref().is_ok_and(|said| said == shim::STARTED);
    let run = match dir.exit() {
        // A command that cannot be started leaves its exit; so does one that has ended by now.
        Ok(Some(exit)) => KnownRun::Exited(exit),
        _ if started => {
            let state = dir.state().map_err(RuntimeError::file("read the state in", dir.path()))?;
            let since = state.as_ref().map_or_else(Timestamp::now, |state| state.started_at);
            KnownRun::Running { state, since }
        }
        _ => give_up(&dir, &said).map_err(RuntimeError::file("give up", dir.path()))?,
    };
    let exit = match &run {
        KnownRun::Exited(exit) => Some(exit.clone()),
        KnownRun::Running { .. } => None,
    };
    inner.remember(&pod.uid, &name, Known { attempt, run, previous });
    match (exit, said) {
        (None, _) => adoption::await_end(inner, &pod.uid, &name, attempt),
        (Some(Exit { started_at: None, message, .. }), said) => {
            let why = message.or_else(|| said.ok()).unwrap_or_default();
            return Err(RuntimeError::Start { container: name, why });
        }
        (Some(_), _) => {}
    }
    Ok(())
}

/// Ends a run whose shim did not say that it started, unless the shim is still at it.
fn give_up(dir: &RunDirectory, said: &Result<String, RuntimeError>) -> io::Result<KnownRun> {
    let Some(_lock) = dir.try_lock()? else {
        return Ok(KnownRun::Running { state: None, since: Timestamp::now() });
    };
    let why = match said {
        Ok(said) => said.clone(),
        Err(error) => error.to_string(),
    };
    let exit = dir.exit()?.unwrap_or_else(|| shim::start_error(why));
    dir.write_exit(&exit)?;
    Ok(KnownRun::Exited(exit))
}

/// Everything the shim needs, before it is started.
fn prepare(
    inner: &Inner,
    pod: &PodRecord,
    launch: &LaunchSpec,
    attempt: u32,
) -> Result<RunDirectory, RuntimeError> {
    let name = &launch.container;
    let paths = &inner.paths;
    let pod_volumes = paths.volumes(&pod.uid);
    let root = paths.root(&pod.uid, name);
    let cwd = volumes::root(&root, &pod_volumes, &launch.mounts, launch.working_dir.as_deref())?;
    let log = paths.log(pod, name, attempt);
    if let Some(path) = log.parent() {
        fs::create_dir_all(path).map_err(RuntimeError::file("create", path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(RuntimeError::file("protect", path))?;
    }
    let dir = RunDirectory::new(paths.attempt(&pod.uid, name, attempt));
    // What a start that was cut short left behind never ran: nobody knows of it.
    if dir.path().exists() {
        fs::remove_dir_all(dir.path()).map_err(RuntimeError::file("remove", dir.path()))?;
    }
    // How a run ended is lost with any of the directories above it, and it would begin anew.
    durable_file::create_dir(&paths.pod(&pod.uid), dir.path())
        .map_err(RuntimeError::file("create", dir.path()))?;
    let alive = dir.alive_path();
    nix::unistd::mkfifo(&alive, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|error| RuntimeError::file("create", &alive)(error.into()))?;
    let spec = Spec {
        argv: launch.argv.clone(),
        env: launch.env.clone(),
        cwd,
        log,
        log_bytes_max: inner.log_bytes_max,
        log_files_max: inner.log_files_max,
    };
    dir.write_spec(&spec).map_err(RuntimeError::file("write the spec in", dir.path()))?;
    forget_old(inner, pod, name, attempt);
    Ok(dir)
}

/// Only the latest run and the one before it are kept.
fn forget_old(inner: &Inner, pod: &PodRecord, name: &str, attempt: u32) {
    let Some(old) = attempt.checked_sub(2) else { return };
    // What cannot be removed now goes with the pod.
    let _ = fs::remove_dir_all(inner.paths.attempt(&pod.uid, name, old));
    let log = inner.paths.log(pod, name, old);
    let _ = fs::remove_file(&log);
    for number in 1..inner.log_files_max {
        let _ = fs::remove_file(rotated(&log, number));
    }
}

/// Starts the shim and waits for its first word.
async fn start_shim(inner: &Inner, dir: &RunDirectory, name: &str) -> Result<String, RuntimeError> {
    let failed = |why: String| RuntimeError::Start { container: name.to_owned(), why };
    let (program, args) =
        inner.shim.split_first().ok_or_else(|| failed("no shim is configured".to_owned()))?;
    let mut shim = Command::new(program)
        .args(args)
        .arg(dir.path())
        .envs(inner.shim_env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Out of reach of the terminal's Ctrl-C from the first moment.
        .process_group(0)
        // It outlives whoever started this process, and keeps no file system busy.
        .current_dir("/")
        .spawn()
        .map_err(|error| failed(format!("cannot start the shim {program:?}: {error}")))?;
    let stdout = shim.stdout.take();
    tokio::spawn(async move {
        // Only to reap it: how the container ended is in its files.
        let _ = shim.wait().await;
    });
    let Some(stdout) = stdout else { return Err(failed("the shim has no output".to_owned())) };
    let mut word = String::new();
    let mut stdout = BufReader::new(stdout);
    match tokio::time::timeout(START_MAX, stdout.read_line(&mut word)).await {
        Ok(Ok(_)) => Ok(word.trim().to_owned()),
        Ok(Err(error)) => Err(failed(format!("the shim cannot be heard: {error}"))),
        Err(_) => Err(failed(format!("the shim said nothing in {START_MAX:?}"))),
    }
}

/// Removes the pod's logs, then its directory, then forgets it: cut short, it is done again.
pub(super) fn remove(inner: &Inner, pod: &PodRecord) -> Result<(), RuntimeError> {
    for path in [inner.paths.logs(pod), inner.paths.pod(&pod.uid)] {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RuntimeError::File { what: "remove", path, source: error });
            }
            _ => {}
        }
    }
    inner.with(|pods| pods.remove(&pod.uid));
    Ok(())
}
