//! The fold of one input into the open batch.

use crate::stream::{FoldError, StreamState};

/// Folds inputs into a view. One [`Materializer`](crate::Materializer) owns it.
pub trait Projection {
    /// An input: a record of the log, a push, a report.
    type Input;
    /// What others receive of a fold, once it is durable.
    type Effect;
    /// Why an input cannot be folded.
    type Refusal: std::error::Error;

    /// Folds `input`: streams through `state`, other rows through [`StreamState::batch`], effects
    /// into `effects`. Deterministic: the same inputs over the same state give the same batch.
    ///
    /// # Errors
    /// [`FoldError::Refused`]: nothing of the input is in the batch. [`FoldError::Engine`]: the
    /// open batch is discarded.
    fn fold(
        &mut self,
        input: Self::Input,
        state: &mut StreamState,
        effects: &mut Vec<Self::Effect>,
    ) -> Result<(), FoldError<Self::Refusal>>;
}
