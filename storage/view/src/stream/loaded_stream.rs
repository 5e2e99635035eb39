//! What the fold keeps of one stream between batches.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use headwater_event::{Checkpoint, StateHash, StreamId};
use headwater_store::position::CHECKPOINTS;
use headwater_store::{Engine, EngineError};

use super::generation::Generation;
use super::position::StatePosition;
use super::staged_advance::StagedAdvance;
use super::stream_row::{STREAM_ROWS, StreamRow};

/// A stream as the fold sees it, the open batch included.
#[derive(Debug)]
pub(crate) struct LoadedStream {
    pub(crate) row: StreamRow,
    pub(crate) at: Option<StatePosition>,
    pub(crate) visible: Generation,
    pub(crate) staged: Option<StagedAdvance>,
    /// Whether the open batch moves the position.
    pub(crate) at_moved: bool,
    /// Whether the open batch changes the row.
    pub(crate) row_moved: bool,
}

impl LoadedStream {
    /// Returns `stream`; reads it from the engine if it is not loaded.
    pub(crate) fn of<'s>(
        streams: &'s mut HashMap<StreamId, Self>,
        engine: &dyn Engine,
        stream: &StreamId,
    ) -> Result<&'s mut Self, EngineError> {
        match streams.entry(stream.clone()) {
            Entry::Occupied(loaded) => Ok(loaded.into_mut()),
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

    /// The position without its hash.
    pub(crate) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.at.as_ref().map(|(checkpoint, _)| checkpoint)
    }

    /// Moves to `checkpoint`. The visible entries hash to `hash` there; the log's hash is
    /// `claimed`. An advance that was staged on the former position is discarded.
    pub(crate) fn move_to(&mut self, checkpoint: Checkpoint, hash: StateHash, claimed: StateHash) {
        self.at = Some((checkpoint, hash));
        self.at_moved = true;
        self.staged = None;
        let claimed = (claimed != hash).then_some(claimed);
        self.row_moved |= self.row.claimed != claimed;
        self.row.claimed = claimed;
    }
}
