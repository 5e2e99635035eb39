//! The registrations of Nodes: the latest start of each edge during which a cluster had its Node.
//!
//! A Node that a person deletes stays deleted until its edge starts again, so every controller must know which starts
//! had a Node. The sink notes a registration in a table of this controller. While this controller is the writer, the
//! fold of reports appends it to the upstream log (`report_fold::registrations`), from which each controller folds
//! the registrations of all. A controller that was away both when a Node came and when it went thus knows it, too.
//!
//! ```text
//!  sink ──► own table ──► notes ──► upstream log ──► table of the fold
//!               └───────────────► Picture::registration ◄────┘
//! ```
//!
//! Until the fold has read a partition to the end that it had, another controller may have noted more of its nodes
//! ([`Picture::has_caught_up`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{EdgeStart, NodeName, Partition};
use headwater_store::{Batch, Durability, Engine, EngineError, Json};
use tokio::sync::Notify;

use super::Picture;
use super::tables::{LOGGED_REGISTRATIONS, NODE_REGISTRATIONS, NODES};

/// Registrations are copied in batches of this size, so that the memory for it is bounded.
const COMMIT_BYTES: usize = 1 << 20;

/// Registrations on their way from the sink to the fold of reports, and how far the fold has read. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegistrationNotes(Arc<SharedNotes>);

#[derive(Debug, Default)]
struct SharedNotes {
    notes: Mutex<Notes>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Notes {
    /// Registrations that the fold has not taken yet, one a node.
    noted: BTreeMap<NodeName, EdgeStart>,
    /// The partitions of reports that the fold has not read to their ends; `None`: it has read none.
    unread: Option<BTreeSet<Partition>>,
}

impl Picture {
    /// The latest start of the edge of `node` during which a cluster had its Node, as this controller or the log
    /// knows it.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn registration(&self, node: &NodeName) -> Result<Option<EdgeStart>, EngineError> {
        // In this order: a fold that begins anew copies what the log had before it discards it.
        let logged = LOGGED_REGISTRATIONS.get(&*self.engine, node)?.map(|Json(start)| start);
        let own = NODE_REGISTRATIONS.get(&*self.engine, node)?.map(|Json(start)| start);
        Ok(own.max(logged))
    }

    /// Whether the picture has every report of `node`, and its registration, that the log had when the fold began to
    /// read it. Before that, a status may be older than one that another controller, or this one before it folded
    /// the log anew, has shown already, and the Node may be one that was deleted. [`Picture::changes`] sends
    /// [`PictureChange::Everything`](crate::PictureChange::Everything) when the fold has caught up.
    ///
    /// # Errors
    /// When the picture cannot be read.
    pub fn has_caught_up(&self, node: &NodeName) -> Result<bool, EngineError> {
        // Nearly always every partition is read, or none: the row has the whole Node.
        if let Some(is_read) = self.registrations.all_read() {
            return Ok(is_read);
        }
        let partition = NODES.get(&*self.engine, node)?.and_then(|Json(report)| report.partition);
        Ok(self.registrations.is_read(partition))
    }

    /// Notes that a cluster has the Node of `node` while its edge runs since `start`. The controller that is the
    /// writer appends it to the log.
    ///
    /// # Errors
    /// When the picture cannot be written.
    pub fn note_registration(&self, node: &NodeName, start: EdgeStart) -> Result<(), EngineError> {
        if self.registration(node)?.is_some_and(|noted| noted >= start) {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(&NODE_REGISTRATIONS, node, &Json(start));
        batch.write(&*self.engine, Durability::Buffered)?;
        self.registrations.add(node, start);
        Ok(())
    }

    /// The notes that the fold of reports takes.
    pub(crate) fn registration_notes(&self) -> RegistrationNotes {
        self.registrations.clone()
    }
}

impl RegistrationNotes {
    fn add(&self, node: &NodeName, start: EdgeStart) {
        self.lock().noted.insert(node.clone(), start);
        self.0.changed.notify_one();
    }

    /// Takes what waits.
    pub(crate) fn take(&self) -> BTreeMap<NodeName, EdgeStart> {
        std::mem::take(&mut self.lock().noted)
    }

    /// Waits until there is something to take. Cancel-safe.
    pub(crate) async fn wait(&self) {
        while self.lock().noted.is_empty() {
            self.0.changed.notified().await;
        }
    }

    /// Notes that the fold has read every partition of reports but these. Returns whether that is new.
    pub(crate) fn set_unread(&self, unread: BTreeSet<Partition>) -> bool {
        let before = self.lock().unread.replace(unread.clone());
        before.as_ref() != Some(&unread)
    }

    /// Notes that the fold begins anew: it has read nothing.
    pub(crate) fn forget_read(&self) {
        self.lock().unread = None;
    }

    /// Whether the fold has read every partition; `None`: some.
    fn all_read(&self) -> Option<bool> {
        match &self.lock().unread {
            None => Some(false),
            Some(unread) => unread.is_empty().then_some(true),
        }
    }

    /// Whether the fold has read a partition; `None`: every one.
    fn is_read(&self, partition: Option<Partition>) -> bool {
        self.lock().unread.as_ref().is_some_and(|unread| match partition {
            Some(partition) => !unread.contains(&partition),
            None => unread.is_empty(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies the registrations of the log into the table that outlives its fold. What a log loses that is made again
/// is thus appended to it once more.
///
/// # Errors
/// When the picture cannot be read or written.
pub(crate) fn keep_logged_registrations(engine: &dyn Engine) -> Result<(), EngineError> {
    let mut batch = Batch::new();
    for row in LOGGED_REGISTRATIONS.rows(engine) {
        let (node, Json(logged)) = row?;
        let own = NODE_REGISTRATIONS.get(engine, &node)?.map(|Json(start)| start);
        if own.is_none_or(|own| own < logged) {
            batch.put(&NODE_REGISTRATIONS, &node, &Json(logged));
        }
        if batch.bytes() >= COMMIT_BYTES {
            std::mem::take(&mut batch).write(engine, Durability::Buffered)?;
        }
    }
    if batch.is_empty() { Ok(()) } else { batch.write(engine, Durability::Buffered) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_partition_has_is_known_once_it_was_read_to_its_end() {
        let notes = RegistrationNotes::default();
        let (read, away) = (Some(Partition(0)), Some(Partition(1)));
        assert!(!notes.is_read(read) && !notes.is_read(None), "nothing was read");
        assert!(notes.set_unread([Partition(1)].into()));
        assert!(!notes.set_unread([Partition(1)].into()), "it is known");
        assert!(notes.is_read(read) && !notes.is_read(away));
        assert!(!notes.is_read(None), "it may be in the partition that is away");
        assert!(notes.set_unread(BTreeSet::new()));
        assert!(notes.is_read(away) && notes.is_read(None));
        notes.forget_read();
        assert!(!notes.is_read(read));
    }
}
