//! Rows that a part derives from accepted events, in the batch that folds them.

use headwater_event::Envelope;
use headwater_store::EngineError;
use headwater_view::{Continuity, PositionChanges, StreamState};

/// Derives rows from events as they are folded.
pub trait DerivedRows: Send {
    /// `envelope` is about to be folded: `state` still holds what was before. DerivedRows go into
    /// [`StreamState::batch`] and are committed with the event. With [`Continuity::Sparse`],
    /// events before it may be missing.
    ///
    /// # Errors
    /// When the engine cannot be read; the open batch is then given up.
    fn derive(
        &mut self,
        envelope: &Envelope,
        continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<(), EngineError>;

    /// Everything that was accepted before is committed; these streams moved, and are there now.
    fn after_commit(&mut self, _changes: &PositionChanges) {}

    /// The fold starts over from an empty state.
    fn reset(&mut self) {}
}

/// Nothing besides the streams themselves.
impl DerivedRows for () {
    fn derive(
        &mut self,
        _envelope: &Envelope,
        _continuity: Continuity,
        _state: &mut StreamState,
    ) -> Result<(), EngineError> {
        Ok(())
    }
}
