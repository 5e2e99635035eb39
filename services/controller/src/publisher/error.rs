//! Why the downstream side loses its log or its writer, and begins again.

use headwater_event::StreamId;
use headwater_follow::{FollowError, TakeOverError};
use headwater_log::{ClaimError, MetadataError, WriterError};
use headwater_store::EngineError;

use crate::metrics::FailureKind;

/// Why the downstream side lost its log or its writer; it begins again.
#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error("the log cannot be followed")]
    Follow(#[from] FollowError),
    #[error("the log cannot be claimed")]
    Claim(#[from] ClaimError),
    #[error("another controller has claimed the log")]
    Fenced,
    #[error("stream {stream} takes nothing more in this epoch: {why}")]
    Stands { stream: StreamId, why: String },
    #[error("the log has no usable metadata")]
    LogMetadata(#[from] MetadataError),
    #[error("the log cannot be written")]
    Write(#[from] WriterError),
    #[error("what is published cannot be read")]
    Engine(#[from] EngineError),
}

impl PublishError {
    pub(super) fn setback(&self) -> FailureKind {
        match self {
            Self::Follow(_) => FailureKind::Follow,
            Self::Claim(_) => FailureKind::Claim,
            Self::Fenced => FailureKind::Fenced,
            Self::LogMetadata(_) => FailureKind::LogMetadata,
            Self::Write(_) | Self::Stands { .. } => FailureKind::Write,
            Self::Engine(_) => FailureKind::Engine,
        }
    }

    /// Whether another controller writes the log.
    pub(super) fn to_another(&self) -> bool {
        matches!(self, Self::Fenced | Self::Claim(ClaimError::Lost { .. }))
    }
}

impl From<TakeOverError> for PublishError {
    fn from(error: TakeOverError) -> Self {
        match error {
            TakeOverError::Follow(error) => error.into(),
            TakeOverError::Claim(error) => error.into(),
        }
    }
}
