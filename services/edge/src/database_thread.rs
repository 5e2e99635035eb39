//! The thread of a database's owner. The owner blocks on the disk, so it must not run on the threads
//! of the runtime; a process may have hundreds of edges, so it does not use the runtime's pool.

use headwater_event::NodeName;
use headwater_owner::OwnerThread;

use crate::exit::{Database, EdgeExit, StartError};
use crate::parts::OwnerFuture;

/// The stack of a thread. Owners need little, and hundreds of edges fit into one process.
const STACK_BYTES: usize = 1 << 20;

/// A running thread, and how it ended.
#[derive(Debug)]
pub(crate) struct DatabaseThread {
    name: &'static str,
    thread: OwnerThread<Result<(), EdgeExit>>,
    has_ended: bool,
    failure: Option<EdgeExit>,
}

impl DatabaseThread {
    /// Runs `owner` to its end on a new thread.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub(crate) fn start(
        name: &'static str,
        node: &NodeName,
        database: Database,
        owner: OwnerFuture,
    ) -> Result<Self, StartError> {
        let owner = move || futures::executor::block_on(owner);
        let thread = OwnerThread::start(format!("{name} {node}"), Some(STACK_BYTES), owner)
            .map_err(|source| StartError::Thread { database, source })?;
        Ok(Self { name, thread, has_ended: false, failure: None })
    }

    /// Waits until the owner has ended and released its engine. Dropping the future loses nothing.
    pub(crate) async fn ended(&mut self) {
        if self.has_ended {
            return;
        }
        self.failure = match (&mut self.thread).await {
            Ok(end) => end.err(),
            Err(panic) => Some(EdgeExit::Defect { what: format!("{}: {panic}", self.name) }),
        };
        self.has_ended = true;
    }

    /// Why the owner failed, if it has.
    pub(crate) fn into_failure(self) -> Option<EdgeExit> {
        self.failure
    }
}
