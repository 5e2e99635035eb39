//! Finds running containers after a restart, and awaits the ends of runs.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use tokio::net::unix::pipe::Receiver;

use super::leftovers::kill_leftovers;
use super::run_directory::RunDirectory;
use super::state::{ContainerEntry, LatestRun, ProcessState};
use crate::disk::file_error::{FileError, blocking};
use crate::disk::paths::entries;
use crate::pod::PodUid;
use crate::runtime::{Exit, RuntimeError};

/// A shim opens its files one after the other when it starts, and closes them so when it ends.
/// Between two of them the run is observed again after this time.
const CHANGE_POLL: Duration = Duration::from_millis(5);

/// Adopts the containers of every pod that has a directory. A pod whose runs cannot be read waits:
/// nothing of it starts or is removed until they can.
pub(super) fn adopt(state: &Arc<ProcessState>) -> Result<(), RuntimeError> {
    let pods = state.paths.pods();
    for entry in entries(&pods).map_err(FileError::new("list", &pods))? {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        let Ok(uid) = PodUid::try_from(name) else {
            tracing::warn!(path = %path.display(), "a directory is no pod's, and is left alone");
            continue;
        };
        if let Err(error) = adopt_pod(state, &uid) {
            tracing::warn!(
                path = %path.display(), %error,
                "the runs of a pod cannot be read; the pod waits until they can"
            );
            state.set_unread(&uid, true);
        }
    }
    Ok(())
}

/// Reads the runs of a pod once more, if they could not be read. Returns why they still cannot.
pub(super) async fn retry_unread(state: &Arc<ProcessState>, uid: &PodUid) -> Option<RuntimeError> {
    if !state.is_unread(uid) {
        return None;
    }
    let (state, uid) = (state.clone(), uid.clone());
    blocking(move || read_again(&state, &uid)).await.err()
}

fn read_again(state: &Arc<ProcessState>, uid: &PodUid) -> Result<(), RuntimeError> {
    let path = state.paths.containers(uid);
    adopt_pod(state, uid).map_err(FileError::new("read the runs in", path))?;
    tracing::info!(pod = %uid, "the runs of a pod can be read again");
    state.set_unread(uid, false);
    state.notify(uid);
    Ok(())
}

/// Adopts the containers of a pod that are not known yet.
fn adopt_pod(state: &Arc<ProcessState>, uid: &PodUid) -> io::Result<()> {
    for entry in entries(&state.paths.containers(uid))? {
        if let Some(name) = entry.file_name().to_str()
            && state.container(uid, name).is_none()
        {
            adopt_container(state, uid, name, &entry.path())?;
        }
    }
    Ok(())
}

fn adopt_container(
    state: &Arc<ProcessState>,
    uid: &PodUid,
    name: &str,
    dir: &Path,
) -> io::Result<()> {
    let attempts = entries(dir)?;
    let attempts = attempts.iter().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let Some(attempt) = attempts.max() else { return Ok(()) };
    let previous = match attempt.checked_sub(1) {
        Some(before) => state.run_directory(uid, name, before).exit().ok().flatten(),
        None => None,
    };
    let run = observe(&state.run_directory(uid, name, attempt), &state.paths.root(uid, name))?;
    let is_running = matches!(run, LatestRun::Running { .. });
    let is_of_earlier_boot = !is_running && {
        let process = state.run_directory(uid, name, attempt).process().ok().flatten();
        process.is_some_and(|process| !process.identity.is_of_this_boot())
    };
    let entry = ContainerEntry { attempt, run, previous, is_of_earlier_boot };
    state.set_container(uid, name, entry);
    if is_running {
        await_end(state, uid, name, attempt);
    }
    Ok(())
}

/// Reads the state of a run. If its shim is gone and left no exit, this function ends the run.
/// `root` is the container's root directory.
fn observe(dir: &RunDirectory, root: &Path) -> io::Result<LatestRun> {
    // A file with other content stays so. Without a shim it says no less than an absent one.
    let or_absent = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => Ok(None),
        _ => Err(error),
    };
    if let Some(exit) = dir.exit().or_else(or_absent)? {
        return Ok(LatestRun::Exited(exit));
    }
    let Some(_lock) = dir.try_lock()? else {
        let process = dir.process()?;
        let since = process.as_ref().map_or_else(Timestamp::now, |process| process.started_at);
        return Ok(LatestRun::Running { process, since });
    };
    // The shim may have written its exit between the first read and the lock.
    if let Some(exit) = dir.exit().or_else(or_absent)? {
        return Ok(LatestRun::Exited(exit));
    }
    let process = dir.process().or_else(|error| match error.kind() {
        io::ErrorKind::InvalidData => Ok(None),
        _ => Err(error),
    })?;
    if let Some(process) = &process {
        process.identity.signal_group(Signal::SIGKILL).map_err(io::Error::from)?;
    }
    kill_leftovers(process.as_ref().map(|process| &process.identity), &root.to_string_lossy());
    let exit = Exit::unobserved(process.map(|process| process.started_at));
    dir.write_exit(&exit)?;
    Ok(LatestRun::Exited(dir.exit()?.unwrap_or(exit)))
}

/// Observes every run that is believed to run, and reads again what could not be read.
pub(super) fn relist(state: &Arc<ProcessState>) {
    for uid in state.unread() {
        if let Err(error) = read_again(state, &uid) {
            tracing::debug!(pod = %uid, %error, "the runs of a pod cannot be read yet");
        }
    }
    let running: Vec<_> = state.with(|pods| {
        let containers = pods.iter().flat_map(|(uid, pod)| {
            pod.iter().map(|(name, entry)| (uid.clone(), name.clone(), entry.clone()))
        });
        containers.filter(|(.., entry)| matches!(entry.run, LatestRun::Running { .. })).collect()
    });
    for (uid, name, entry) in running {
        observe_run(state, &uid, &name, entry.attempt);
    }
}

/// Observes one run, and notifies if it has ended. Returns whether it has.
fn observe_run(state: &Arc<ProcessState>, uid: &PodUid, name: &str, attempt: u32) -> bool {
    let run = match observe(&state.run_directory(uid, name, attempt), &state.paths.root(uid, name))
    {
        Ok(run) => run,
        Err(error) => {
            tracing::warn!(pod = %uid, container = name, %error, "a run cannot be observed");
            return false;
        }
    };
    let has_ended = matches!(run, LatestRun::Exited(_));
    let changed = state.with(|pods| {
        let entry = pods.get_mut(uid).and_then(|pod| pod.get_mut(name));
        let Some(entry) = entry.filter(|entry| entry.attempt == attempt) else { return false };
        let is_change = match (&entry.run, &run) {
            (LatestRun::Running { .. }, LatestRun::Exited(_)) => true,
            // Its shim had not started it at the time of the adoption.
            (LatestRun::Running { process, .. }, LatestRun::Running { process: now, .. }) => {
                process.is_none() && now.is_some()
            }
            (LatestRun::Exited(_), _) => false,
        };
        if is_change {
            entry.run = run;
        }
        is_change
    });
    if changed {
        state.notify(uid);
    }
    has_ended
}

/// Waits until the shim of a run is gone, then observes the run.
pub(super) fn await_end(state: &Arc<ProcessState>, uid: &PodUid, name: &str, attempt: u32) {
    let (shared, uid, name) = (Arc::downgrade(state), uid.clone(), name.to_owned());
    let path = state.run_directory(&uid, &name, attempt).alive_path();
    let stop = state.stop.clone();
    tokio::spawn(async move {
        loop {
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = end_of_writers(&path) => ended,
            };
            if let Err(error) = ended {
                // A relist finds the end later.
                tracing::warn!(pod = %uid, container = name, %error, "the end of a run cannot be awaited");
                return;
            }
            let Some(state) = shared.upgrade() else { return };
            let has_ended = {
                let (uid, name) = (uid.clone(), name.clone());
                tokio::task::spawn_blocking(move || observe_run(&state, &uid, &name, attempt)).await
            };
            if has_ended.unwrap_or(true) {
                return;
            }
            // The shim has not started yet, or has not quite ended.
            tokio::time::sleep(CHANGE_POLL).await;
        }
    });
}

/// Waits until no process holds the FIFO's writing end.
async fn end_of_writers(path: &Path) -> io::Result<()> {
    let mut file =
        OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let mut byte = [0];
    // A FIFO that had no writer when it was opened never becomes readable: read once first.
    match file.read(&mut byte) {
        Ok(0) => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
        _ => {}
    }
    let receiver = Receiver::from_file(file)?;
    loop {
        receiver.readable().await?;
        match receiver.try_read(&mut byte) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}
