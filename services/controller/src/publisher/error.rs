//! Why publishing stops. The publisher then opens the log again and claims it again.

use headwater_event::{Partition, StreamId};
use headwater_follow::{FollowError, TakeOverError};
use headwater_log::{ClaimError, MetadataError, ReadError, WriterError};
use headwater_store::EngineError;

use crate::metrics::FailureKind;

/// Why publishing stopped.
#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error("the log cannot be followed")]
    Follow(#[from] FollowError),
    #[error("the log cannot be claimed")]
    Claim(#[from] ClaimError),
    #[error("another controller has claimed the log")]
    Fenced,
    #[error(
        "the sources do not catch up with what another controller published; the log is given up"
    )]
    SourcesBehind,
    #[error("stream {stream} accepts no more events in this epoch: {why}")]
    StreamStopped { stream: StreamId, why: String },
    /// No failure: the next epoch can append to it.
    #[error("partition {partition} takes appends again")]
    PartitionReturned { partition: Partition },
    #[error("the log has no usable metadata")]
    LogMetadata(#[from] MetadataError),
    #[error("the log cannot be written")]
    Write(#[from] WriterError),
    #[error("the task that appends heartbeats has ended: {0}")]
    Heartbeats(String),
    #[error("what is published cannot be read")]
    Engine(#[from] EngineError),
}

impl PublishError {
    /// The value of the label `kind` in the metrics.
    pub(super) fn kind(&self) -> FailureKind {
        match self {
            Self::Follow(_) => FailureKind::Follow,
            Self::Claim(_) => FailureKind::Claim,
            Self::Fenced => FailureKind::Fenced,
            Self::SourcesBehind => FailureKind::Sources,
            Self::LogMetadata(_) => FailureKind::LogMetadata,
            Self::Write(_) | Self::Heartbeats(_) | Self::StreamStopped { .. } => FailureKind::Write,
            Self::PartitionReturned { .. } => FailureKind::Partition,
            Self::Engine(_) => FailureKind::Engine,
        }
    }

    /// Whether the log cannot be read for now.
    pub(super) fn is_unavailable(&self) -> bool {
        match self {
            Self::Follow(error) => error.is_unavailable(),
            Self::LogMetadata(error) => {
                matches!(error, MetadataError::Read(ReadError::Unavailable { .. }))
            }
            _ => false,
        }
    }

    /// Whether another controller has become the writer, or is to have the chance.
    pub(super) fn is_to_another_writer(&self) -> bool {
        matches!(self, Self::Fenced | Self::SourcesBehind | Self::Claim(ClaimError::Lost { .. }))
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
