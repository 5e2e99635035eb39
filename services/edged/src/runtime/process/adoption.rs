//! Finding again what runs, and noticing at once when it ends.

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

use super::run_directory::RunDirectory;
use super::shim;
use super::{Inner, Known, KnownRun, ProcessPod};
use crate::disk::durable_file;
use crate::disk::paths::entries;
use crate::pod::{PodRecord, PodUid};
use crate::runtime::RuntimeError;

/// A shim that starts opens its files one after the other, and so it closes them when it ends:
/// for that moment it is asked again after this.
const CHANGE_POLL: Duration = Duration::from_millis(5);

/// Takes in every pod that has a directory.
pub(super) fn all(inner: &Arc<Inner>) -> Result<(), RuntimeError> {
    let pods = inner.paths.pods();
    make(inner.paths.above(), &pods).map_err(RuntimeError::file("create", &pods))?;
    for entry in entries(&pods).map_err(RuntimeError::file("list", &pods))? {
        if let Err(error) = pod(inner, &entry.path()) {
            let path = entry.path();
            tracing::warn!(path = %path.display(), %error, "a pod directory is left alone");
        }
    }
    Ok(())
}

/// The directory `above` is whoever's who started the pod worker, and there as a rule.
fn make(above: &Path, pods: &Path) -> io::Result<()> {
    if !above.as_os_str().is_empty() {
        std::fs::create_dir_all(above)?;
    }
    durable_file::create_dir(above, pods)
}

fn pod(inner: &Arc<Inner>, dir: &Path) -> io::Result<()> {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let uid = PodUid::try_from(name.to_owned()).map_err(invalid)?;
    let Some(record) = durable_file::read::<PodRecord>(&inner.paths.record(&uid))? else {
        // Its making was cut short before anything could run in it.
        return std::fs::remove_dir_all(dir);
    };
    inner.with(|pods| {
        pods.insert(uid.clone(), ProcessPod { record, containers: Default::default() });
    });
    for entry in entries(&inner.paths.containers(&uid))? {
        if let Some(name) = entry.file_name().to_str() {
            container(inner, &uid, name, &entry.path())?;
        }
    }
    Ok(())
}

fn container(inner: &Arc<Inner>, uid: &PodUid, name: &str, dir: &Path) -> io::Result<()> {
    let attempts = entries(dir)?;
    let attempts = attempts.iter().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let Some(attempt) = attempts.max() else { return Ok(()) };
    let previous = match attempt.checked_sub(1) {
        Some(before) => inner.attempt(uid, name, before).exit().ok().flatten(),
        None => None,
    };
    // A run that cannot be made out has been, all the same: its number is not used again.
    let run = look(&inner.attempt(uid, name, attempt)).unwrap_or_else(|error| {
        tracing::warn!(pod = %uid, container = name, %error, "a run cannot be made out");
        KnownRun::Exited(shim::lost(None))
    });
    let is_running = matches!(run, KnownRun::Running { .. });
    inner.remember(uid, name, Known { attempt, run, previous });
    if is_running {
        await_end(inner, uid, name, attempt);
    }
    Ok(())
}

/// How a run stands. One whose shim is gone without a word is ended here: nobody else would.
fn look(dir: &RunDirectory) -> io::Result<KnownRun> {
    if let Some(exit) = dir.exit()? {
        return Ok(KnownRun::Exited(exit));
    }
    let Some(_lock) = dir.try_lock()? else {
        let state = dir.state()?;
        let since = state.as_ref().map_or_else(Timestamp::now, |state| state.started_at);
        return Ok(KnownRun::Running { state, since });
    };
    // The shim may have had its last word between the first look and the lock.
    if let Some(exit) = dir.exit()? {
        return Ok(KnownRun::Exited(exit));
    }
    let state = dir.state()?;
    if let Some(state) = &state {
        state.process.signal_group(Signal::SIGKILL).map_err(io::Error::from)?;
    }
    let exit = shim::lost(state.map(|state| state.started_at));
    dir.write_exit(&exit)?;
    Ok(KnownRun::Exited(dir.exit()?.unwrap_or(exit)))
}

/// Looks again at every run that is thought to be running.
pub(super) fn again(inner: &Arc<Inner>) {
    let running: Vec<_> = inner.with(|pods| {
        let containers = pods.iter().flat_map(|(uid, pod)| {
            pod.containers.iter().map(|(name, known)| (uid.clone(), name.clone(), known.clone()))
        });
        containers.filter(|(.., known)| matches!(known.run, KnownRun::Running { .. })).collect()
    });
    for (uid, name, known) in running {
        settle(inner, &uid, &name, known.attempt);
    }
}

/// Looks at one run; true once it has ended, which is then told.
fn settle(inner: &Arc<Inner>, uid: &PodUid, name: &str, attempt: u32) -> bool {
    let run = match look(&inner.attempt(uid, name, attempt)) {
        Ok(run) => run,
        Err(error) => {
            tracing::warn!(pod = %uid, container = name, %error, "a run cannot be looked at");
            return false;
        }
    };
    let has_ended = matches!(run, KnownRun::Exited(_));
    let changed = inner.with(|pods| {
        let known = pods.get_mut(uid).and_then(|pod| pod.containers.get_mut(name));
        let Some(known) = known.filter(|known| known.attempt == attempt) else { return false };
        let is_news = match (&known.run, &run) {
            (KnownRun::Running { .. }, KnownRun::Exited(_)) => true,
            // Its shim was only starting when it was found.
            (KnownRun::Running { state, .. }, KnownRun::Running { state: now, .. }) => {
                state.is_none() && now.is_some()
            }
            (KnownRun::Exited(_), _) => false,
        };
        if is_news {
            known.run = run;
        }
        is_news
    });
    if changed {
        inner.notice(uid);
    }
    has_ended
}

/// Settles the run as soon as its shim is gone.
pub(super) fn await_end(inner: &Arc<Inner>, uid: &PodUid, name: &str, attempt: u32) {
    let (shared, uid, name) = (Arc::downgrade(inner), uid.clone(), name.to_owned());
    let path = inner.attempt(&uid, &name, attempt).alive_path();
    let stop = inner.stop.clone();
    tokio::spawn(async move {
        loop {
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = end_of_writers(&path) => ended,
            };
            if let Err(error) = ended {
                // A relist finds the end, if later.
                tracing::warn!(pod = %uid, container = name, %error, "an end cannot be awaited");
                return;
            }
            let Some(inner) = shared.upgrade() else { return };
            let settled = {
                let (uid, name) = (uid.clone(), name.clone());
                tokio::task::spawn_blocking(move || settle(&inner, &uid, &name, attempt)).await
            };
            if settled.unwrap_or(true) {
                return;
            }
            // The shim is not there yet, or not quite gone.
            tokio::time::sleep(CHANGE_POLL).await;
        }
    });
}

/// Waits until nobody holds the FIFO's writing end.
async fn end_of_writers(path: &Path) -> io::Result<()> {
    let mut file =
        OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let mut byte = [0];
    // Nothing is reported of a FIFO that had no writer when it was opened: ask once first.
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
