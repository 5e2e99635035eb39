//! What a fold knows of one stream between batches.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use headwater_event::{Checkpoint, StateHash, StreamId};
use headwater_store::position::CHECKPOINTS;
use headwater_store::{Engine, EngineError};

use crate::generation::Generation;
use crate::position::StatePosition;
use crate::staging::Staged;
use crate::stream_row::{STREAM_ROWS, StreamRow};

/// A stream as the fold sees it, the open batch included.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) row: StreamRow,
    pub(crate) at: Option<StatePosition>,
    pub(crate) visible: Generation,
    pub(crate) staged: Option<Staged>,
    /// Whether the open batch moves the position.
    pub(crate) at_moved: bool,
    /// Whether the open batch moves the row.
    pub(crate) row_moved: bool,
}

impl Slot {
    /// The slot of `stream`, read from the engine when it is not there yet.
    pub(crate) fn of<'s>(
        slots: &'s mut HashMap<StreamId, Self>,
        engine: &dyn Engine,
        stream: &StreamId,
    ) -> Result<&'s mut Self, EngineError> {
        match slots.entry(stream.clone()) {
            Entry::Occupied(slot) => Ok(slot.into_mut()),
            Entry::Vacant(vacant) => {
                let row = STREAM_ROWS.get(engine, stream)?.unwrap_or(StreamRow::FIRST);
                let at = CHECKPOINTS.get(engine, stream)?;
                Ok(vacant.insert(Self::new(stream, row, at)))
            }
        }
    }

    pub(crate) fn new(stream: &StreamId, row: StreamRow, at: Option<StatePosition>) -> Self {
        let hash = at.map_or(StateHash::EMPTY, |(_, hash)| hash);
        let visible = Generation::new(stream, row.visible, hash);
        Self { row, at, visible, staged: None, at_moved: false, row_moved: false }
    }

    /// Where the stream stands.
    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.at.as_ref().map(|(checkpoint, _)| checkpoint)
    }

    /// Moves to `checkpoint`, where the visible entries hash to `hash` and the log says
    /// `claimed`. What was staged on top of the former position is void.
    pub(crate) fn move_to(&mut self, checkpoint: Checkpoint, hash: StateHash, claimed: StateHash) {
        self.at = Some((checkpoint, hash));
        self.at_moved = true;
        self.staged = None;
        let claimed = (claimed != hash).then_some(claimed);
        self.row_moved |= self.row.claimed != claimed;
        self.row.claimed = claimed;
    }
}
