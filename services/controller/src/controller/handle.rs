//! The handle on a running controller.

use std::sync::Arc;
use std::time::Duration;

use headwater_store::Engine;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cloud::{CheckedCloud, Cloud};
use crate::picture::{Picture, PresenceReceiver};
use crate::publisher::Progress;
use crate::source::{Notice, SourceError, SourceStates};

/// How long a writer may take to release the log. A working log takes far less; for a log that does
/// not work the controller does not wait.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// How long each task may take to end when the controller stops.
const STOP_WITHIN: Duration = Duration::from_secs(3);

/// A running controller. Dropping the handle stops the controller without waiting.
pub struct ControllerHandle {
    pub(super) picture: Picture,
    /// The fold of the downstream log.
    pub(super) published: Arc<dyn Engine>,
    pub(super) presence: PresenceReceiver,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) picture_troubles: watch::Receiver<Vec<String>>,
    pub(super) source_states: watch::Receiver<SourceStates>,
    pub(super) notices: Option<mpsc::Receiver<Notice>>,
    pub(super) stopped_sources: Option<mpsc::Receiver<SourceError>>,
    pub(super) stop: DropGuard,
    /// Cancelled first, when the controller stops in order.
    pub(super) release: CancellationToken,
    pub(super) publishing: JoinHandle<()>,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

/// Whether a controller is ready: the writer of a reconciled log, or a standby that can take over at
/// once, whose sources have not stopped for good.
#[derive(Clone, Debug)]
pub struct Readiness {
    progress: watch::Receiver<Progress>,
    source_states: watch::Receiver<SourceStates>,
}

impl ControllerHandle {
    /// The cloud's picture.
    pub fn picture(&self) -> &Picture {
        &self.picture
    }

    /// The way of the presence of nodes into the picture.
    pub fn presence(&self) -> PresenceReceiver {
        self.presence.clone()
    }

    /// The answers of the picture to the requests of nodes, each of which is checked first.
    pub fn cloud(&self) -> Arc<dyn Cloud> {
        self.checked(Arc::new(self.picture.clone()))
    }

    /// The answers of `cloud`, behind the check of each request.
    pub fn checked(&self, cloud: Arc<dyn Cloud>) -> Arc<dyn Cloud> {
        let (published, progress) = (self.published.clone(), self.progress());
        Arc::new(CheckedCloud { cloud, published, progress })
    }

    /// The publisher's progress. Each change notifies the watchers.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// What of the nodes' reports cannot be read at present, a sentence each.
    pub fn picture_troubles(&self) -> watch::Receiver<Vec<String>> {
        self.picture_troubles.clone()
    }

    /// The states of the sources. Each change notifies the watchers.
    pub fn source_states(&self) -> watch::Receiver<SourceStates> {
        self.source_states.clone()
    }

    /// Whether the controller is ready, for a health check.
    pub fn readiness(&self) -> Readiness {
        let (progress, source_states) = (self.progress(), self.source_states());
        Readiness { progress, source_states }
    }

    /// The messages of the sources to a person; `None` after the first call.
    pub fn take_notices(&mut self) -> Option<mpsc::Receiver<Notice>> {
        self.notices.take()
    }

    /// Why the sources stopped; `None` after the first call. Their objects stay published.
    pub fn take_stopped_sources(&mut self) -> Option<mpsc::Receiver<SourceError>> {
        self.stopped_sources.take()
    }

    /// Stops the controller. A writer releases the log, so that a standby takes over at once. What
    /// was appended is in the log; nothing else is lost.
    pub async fn stop(mut self) {
        self.release.cancel();
        let released = timeout(RELEASE_WITHIN, &mut self.publishing).await;
        drop(self.stop);
        match released {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the publisher ended by itself"),
            Err(_) => self.tasks.push(self.publishing),
        }
        for mut task in self.tasks {
            match timeout(STOP_WITHIN, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, "a task of the controller ended by itself");
                }
                Err(_) => task.abort(),
            }
        }
    }
}

impl Readiness {
    /// Checks now.
    ///
    /// # Errors
    /// Why the controller is not ready, in words.
    pub fn check(&self) -> Result<(), String> {
        let stopped = self.source_states.borrow().stopped();
        if !stopped.is_empty() {
            return Err(format!("{}; restart the controller", stopped.join("; ")));
        }
        let progress = self.progress.borrow();
        if progress.reconciled || (progress.is_standby && progress.is_prepared) {
            return Ok(());
        }
        if let Some(trouble) = &progress.trouble {
            return Err(trouble.clone());
        }
        let unready = self.source_states.borrow().unready();
        let all = "the sources have not all listed";
        Err(if unready.is_empty() {
            all.to_owned()
        } else {
            format!("{all}: {}", unready.join("; "))
        })
    }
}
