//! Why the downstream side loses its log or its writer, and begins again.

use headwater_event::StreamId;
use headwater_follow::{FollowError, TakeOverError};
use headwater_log::{BirthError, ClaimError, WriterError};
use headwater_store::EngineError;

use crate::metrics::Setback;

/// Why the downstream side lost its log or its writer; it begins again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("the log cannot be followed")]
    Follow(#[from] FollowError),
    #[error("the log cannot be claimed")]
    Claim(#[from] ClaimError),
    #[error("another controller has claimed the log")]
    Fenced,
    #[error("stream {stream} takes nothing more in this epoch: {why}")]
    Stands { stream: StreamId, why: String },
    #[error("the log has no birth")]
    Birth(#[from] BirthError),
    #[error("the log cannot be written")]
    Write(#[from] WriterError),
    #[error("what is published cannot be read")]
    Engine(#[from] EngineError),
}

impl Lost {
    pub(super) fn setback(&self) -> Setback {
        match self {
            Self::Follow(_) => Setback::Follow,
            Self::Claim(_) => Setback::Claim,
            Self::Fenced => Setback::Fenced,
            Self::Birth(_) => Setback::Birth,
            Self::Write(_) | Self::Stands { .. } => Setback::Write,
            Self::Engine(_) => Setback::Engine,
        }
    }

    /// Whether another controller writes the log.
    pub(super) fn to_another(&self) -> bool {
        matches!(self, Self::Fenced | Self::Claim(ClaimError::Lost { .. }))
    }
}

impl From<TakeOverError> for Lost {
    fn from(error: TakeOverError) -> Self {
        match error {
            TakeOverError::Follow(error) => error.into(),
            TakeOverError::Claim(error) => error.into(),
        }
    }
}
