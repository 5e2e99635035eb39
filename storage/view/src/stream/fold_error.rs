//! Why an input was not folded.

use headwater_store::EngineError;

/// Why an input was not folded, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FoldError<R> {
    /// The input is wrong: the same input would be refused again. Nothing of it was folded.
    /// Earlier inputs of the batch stay, and the next input may be folded.
    #[error(transparent)]
    Refused(R),
    /// The engine failed, whatever the input was. The open batch is discarded; open the state
    /// again before the next fold.
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
