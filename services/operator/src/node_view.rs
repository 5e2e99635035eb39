//! A node of this process, as the operator API sees it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use headwater_edge::EdgeHandle;
use headwater_edged::ContainerLogs;
use headwater_store::Engine;

/// A node of this process. Cheap to clone; all clones share one state.
#[derive(Clone)]
pub struct NodeView {
    socket: PathBuf,
    logs: Arc<OnceLock<ContainerLogs>>,
    state: Arc<Mutex<EdgeState>>,
}

/// The state of a node's edge.
#[derive(Clone, Default)]
pub enum EdgeState {
    /// The edge has not started yet, or has stopped in order.
    #[default]
    Stopped,
    /// The edge runs.
    Running(RunningEdge),
    /// The edge failed; its supervisor starts it again.
    Failed(EdgeFailure),
}

/// A running edge.
#[derive(Clone)]
pub struct RunningEdge {
    /// The edge.
    pub edge: EdgeHandle,
    /// The node's replica.
    pub replica: Arc<dyn Engine>,
    /// What is wrong with the node although its edge runs.
    pub trouble: Option<EdgeFailure>,
}

/// The failure of an edge.
#[derive(Clone, Debug)]
pub struct EdgeFailure {
    /// The reason, in one line.
    pub reason: String,
    /// The start of the failure, by the wall clock in milliseconds. A restart that fails soon keeps
    /// it.
    pub since_ms: i64,
}

impl NodeView {
    /// Creates the view of a node whose edge and pod worker have not started. `socket` is the path of
    /// its local API.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, logs: Arc::default(), state: Arc::default() }
    }

    /// Replaces the state of the edge.
    pub fn set(&self, state: EdgeState) {
        *self.lock() = state;
    }

    /// Returns the edge, while it runs.
    pub fn edge(&self) -> Option<EdgeHandle> {
        Some(self.running()?.edge)
    }

    /// Returns the node's replica, while its edge runs.
    pub fn replica(&self) -> Option<Arc<dyn Engine>> {
        Some(self.running()?.replica)
    }

    /// Returns the socket of the local API, while the edge runs.
    pub fn socket(&self) -> Option<&Path> {
        self.running().map(|_| &*self.socket)
    }

    /// Sets the logs of the node's containers, once its pod worker runs in this process.
    pub fn set_logs(&self, logs: ContainerLogs) {
        // A node has one pod worker in the life of a process.
        let _ = self.logs.set(logs);
    }

    /// The logs of the node's containers, if this process runs its pods; otherwise `headwater
    /// edged` does.
    pub fn logs(&self) -> Option<ContainerLogs> {
        self.logs.get().cloned()
    }

    /// Returns the failure of the edge, if it failed.
    pub fn failure(&self) -> Option<EdgeFailure> {
        match &*self.lock() {
            EdgeState::Failed(failure) => Some(failure.clone()),
            EdgeState::Stopped | EdgeState::Running(_) => None,
        }
    }

    /// Returns the failure of the edge, or what is wrong although it runs.
    pub fn trouble(&self) -> Option<EdgeFailure> {
        match &*self.lock() {
            EdgeState::Failed(failure) => Some(failure.clone()),
            EdgeState::Running(running) => running.trouble.clone(),
            EdgeState::Stopped => None,
        }
    }

    fn running(&self) -> Option<RunningEdge> {
        match &*self.lock() {
            EdgeState::Running(running) => Some(running.clone()),
            EdgeState::Stopped | EdgeState::Failed(_) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, EdgeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
