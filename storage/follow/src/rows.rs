//! Rows that a part derives from accepted events, in the batch that folds them.

use std::collections::BTreeMap;

use headwater_event::{Checkpoint, Envelope, StateHash, StreamId};
use headwater_store::EngineError;
use headwater_view::{Continuity, StreamState};

/// Streams that moved, and where each is now with its state hash; `None`: it was dropped.
pub type Moved = BTreeMap<StreamId, Option<(Checkpoint, StateHash)>>;

/// Derives rows from events as they are folded.
pub trait Rows: Send {
    /// `envelope` is about to be folded: `state` still holds what was before. Rows go into
    /// [`StreamState::batch`] and are committed with the event. With [`Continuity::Sparse`],
    /// events before it may be missing.
    ///
    /// # Errors
    /// When the engine cannot be read; the open batch is then given up.
    fn accepted(
        &mut self,
        envelope: &Envelope,
        continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<(), EngineError>;

    /// Everything that was accepted before is committed; these streams moved, and are there now.
    fn committed(&mut self, _moved: &Moved) {}

    /// The fold starts over from an empty state.
    fn restarted(&mut self) {}
}

/// Nothing besides the streams themselves.
impl Rows for () {
    fn accepted(
        &mut self,
        _envelope: &Envelope,
        _continuity: Continuity,
        _state: &mut StreamState,
    ) -> Result<(), EngineError> {
        Ok(())
    }
}
