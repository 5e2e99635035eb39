//! The fold that makes a view: one input into the open batch.

use headwater_store::EngineError;

use crate::stream_state::StreamState;

/// Folds inputs into a view. One [`Materializer`](crate::Materializer) owns it.
pub trait Projection {
    /// What is folded: a record of the log, a push, a report.
    type Input;
    /// What others learn of a fold, once it is durable.
    type Effect;
    /// Why an input cannot be folded.
    type Refusal: std::error::Error;

    /// Folds `input`: streams through `state`, rows of its own through [`StreamState::batch`],
    /// what others are to learn into `effects`. Deterministic: the same inputs over the same
    /// state give the same batch.
    ///
    /// # Errors
    /// [`FoldError::Refused`]: nothing of the input is in the batch. [`FoldError::Engine`]: the
    /// whole open batch is given up.
    fn fold(
        &mut self,
        input: Self::Input,
        state: &mut StreamState,
        effects: &mut Vec<Self::Effect>,
    ) -> Result<(), FoldError<Self::Refusal>>;
}

/// Why an input was not folded, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FoldError<R> {
    /// The input itself is wrong, and would be again: deterministic. Nothing of it was folded;
    /// what was folded before stands, and the next input may be folded.
    #[error(transparent)]
    Refused(R),
    /// The engine failed, which says nothing of the input. The open batch is gone; open the
    /// state again before going on.
    #[error("the state cannot be read or written")]
    Engine(#[source] EngineError),
}

impl<R> FoldError<R> {
    /// Whether the same input would fail again.
    pub fn is_deterministic(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

impl<R> From<EngineError> for FoldError<R> {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}
