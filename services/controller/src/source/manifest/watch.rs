//! Watching: says when something under the folder may have changed, once it has fallen quiet.
//!
//! It says *that*, never *what*: the look that follows sees everything, so a lost or doubled
//! message costs nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// A watch on a folder, and on what is in it.
pub(crate) struct FolderWatch {
    /// The folder, absolute as in the paths of events.
    folder: PathBuf,
    /// Folders below it whose changes mean nothing.
    ignored: Arc<Mutex<Vec<PathBuf>>>,
    /// Holds one message at most: more would say nothing more.
    changes: mpsc::Receiver<()>,
    /// Watches until it is dropped.
    watcher: Option<RecommendedWatcher>,
}

impl FolderWatch {
    /// Watches `folder`; the reason if that is not possible.
    pub(crate) fn start(folder: &Path) -> Result<Self, String> {
        let folder = std::path::absolute(folder).map_err(|e| e.to_string())?;
        let ignored = Arc::<Mutex<Vec<PathBuf>>>::default();
        let (notify_change, changes) = mpsc::channel(1);
        let ignores = ignored.clone();
        let on_event = move |event: notify::Result<notify::Event>| {
            // An error may have lost a change, so it counts as one.
            if event.is_ok_and(|event| !is_change(&event.kind) || lies_in(&event, &ignores)) {
                return;
            }
            // A full channel has a notification already.
            let _ = notify_change.try_send(());
        };
        let mut watcher = notify::recommended_watcher(on_event).map_err(|e| e.to_string())?;
        watcher.watch(&folder, RecursiveMode::Recursive).map_err(|e| e.to_string())?;
        Ok(Self { folder, ignored, changes, watcher: Some(watcher) })
    }

    /// A watch that sees nothing.
    pub(crate) fn none() -> Self {
        let (_, changes) = mpsc::channel(1);
        Self { folder: PathBuf::new(), ignored: Arc::default(), changes, watcher: None }
    }

    /// From now on changes below these folders mean nothing. Their paths are relative to the folder.
    pub(crate) fn ignore(&self, folders: &[PathBuf]) {
        let mut ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        *ignored = folders.iter().map(|inner| self.folder.join(inner)).collect();
    }

    /// Returns once something has changed and then nothing for `quiet`, or after `quiet_max`.
    pub(crate) async fn changed(&mut self, quiet: Duration, quiet_max: Duration) {
        if self.watcher.is_none() || self.changes.recv().await.is_none() {
            // Without a watcher there is no notification.
            return std::future::pending().await;
        }
        let latest = Instant::now() + quiet_max;
        while let Ok(Some(())) =
            timeout_at((Instant::now() + quiet).min(latest), self.changes.recv()).await
        {
            if Instant::now() >= latest {
                return;
            }
        }
    }
}

/// Whether all that an event names lies in ignored folders. An event without a path may mean any file.
fn lies_in(event: &notify::Event, ignored: &Mutex<Vec<PathBuf>>) -> bool {
    let ignored = ignored.lock().unwrap_or_else(PoisonError::into_inner);
    let is_ignored = |path: &PathBuf| ignored.iter().any(|folder| path.starts_with(folder));
    !event.paths.is_empty() && event.paths.iter().all(is_ignored)
}

/// Reading a file is no change, and our own look reads them all.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
