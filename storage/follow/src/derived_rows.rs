//! Rows that a part derives from accepted events, in the batch of their fold.

use headwater_event::{BodyAddress, Envelope};
use headwater_store::EngineError;
use headwater_view::{Continuity, PositionChanges, StreamState};

/// Derives rows from events while they are folded.
pub trait DerivedRows: Send {
    /// Derives rows from `envelope` before it is folded: `state` is still the former one. Rows go
    /// into [`StreamState::batch`] and are committed with the event. With [`Continuity::Sparse`],
    /// events before it may be missing.
    ///
    /// # Errors
    /// When the engine cannot be read; the open batch is then discarded.
    fn derive(
        &mut self,
        envelope: &Envelope,
        continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<(), EngineError>;

    /// Derives rows from a body that the log has from here on, in the batch of the fold.
    ///
    /// # Errors
    /// As [`DerivedRows::derive`].
    fn body_added(
        &mut self,
        _body: &BodyAddress,
        _state: &mut StreamState,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// Derives rows from a body that a writer has retired, in the batch of the fold.
    ///
    /// # Errors
    /// As [`DerivedRows::derive`].
    fn body_retired(
        &mut self,
        _body: &BodyAddress,
        _state: &mut StreamState,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// Called before a commit: puts the rows into the batch that are not in it yet.
    fn before_commit(&mut self, _state: &mut StreamState) {}

    /// Called after a commit of everything derived so far, with the streams that moved.
    fn after_commit(&mut self, _changes: &PositionChanges) {}

    /// Called before the fold starts again from an empty state.
    fn reset(&mut self) {}
}

/// Derives nothing.
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
