//! The stored positions of a folded state.
//!
//! An edge has a checkpoint in each of its streams. A reader of the log has a cursor in each
//! partition, and the checkpoints of the streams.

use headwater_event::{Checkpoint, Cursor, Partition, StateHash, StreamId};

use crate::batch::{Batch, CommitPosition};
use crate::registry::TableId;
use crate::table::{Folded, Table};

/// Per stream: the checkpoint, and the state hash at it.
pub const CHECKPOINTS: Table<StreamId, (Checkpoint, StateHash), Folded> =
    Table::new(TableId::Checkpoints);

/// Per partition: the cursor up to which the log is folded.
pub const CURSORS: Table<Partition, Cursor, Folded> = Table::new(TableId::Cursors);

/// The position of the state of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamCheckpoint {
    /// The stream.
    pub stream: StreamId,
    /// Its checkpoint.
    pub checkpoint: Checkpoint,
    /// The state hash at the checkpoint.
    pub hash: StateHash,
}

impl CommitPosition for StreamCheckpoint {
    fn put(&self, batch: &mut Batch<Folded>) {
        batch.put(&CHECKPOINTS, &self.stream, &(self.checkpoint, self.hash));
    }
}

impl CommitPosition for Cursor {
    fn put(&self, batch: &mut Batch<Folded>) {
        batch.put(&CURSORS, &self.partition, self);
    }
}
