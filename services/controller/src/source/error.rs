//! Why a source stopped. Each source has errors of its own; the controller needs their text, and a
//! word for the metrics.

use std::error::Error;
use std::fmt;

use headwater_store::EngineError;

/// Why a source stopped. The objects that it sent stay as they are.
#[derive(Debug)]
pub struct SourceError {
    reason: &'static str,
    error: Box<dyn Error + Send + Sync>,
}

/// The source was stopped: no failure.
#[derive(Debug, thiserror::Error)]
#[error("the source was stopped")]
struct SourceStopped;

/// A source broke the contract of [`super::Source`].
#[derive(Debug, thiserror::Error)]
#[error("the source sent {event} out of order: a source lists once, then sends changes")]
struct OutOfOrder {
    event: &'static str,
}

/// The fold of the log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the source cannot read what an earlier run published")]
struct PublishedUnreadable(#[source] EngineError);

/// A task of a source panicked or was aborted.
#[derive(Debug, thiserror::Error)]
#[error("the source's {task} ended by itself")]
struct TaskEnded {
    task: &'static str,
    source: tokio::task::JoinError,
}

impl SourceError {
    /// An error of a source. `reason` is the value of the label `kind` in the metrics: lower case,
    /// one of few.
    pub fn new(reason: &'static str, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { reason, error: error.into() }
    }

    /// A task of the source panicked or was aborted.
    pub fn task_ended(task: &'static str, source: tokio::task::JoinError) -> Self {
        Self::new("ended", TaskEnded { task, source })
    }

    /// What an earlier run published cannot be read.
    pub(super) fn published_unreadable(error: EngineError) -> Self {
        Self::new("published", PublishedUnreadable(error))
    }

    pub(super) fn stopped() -> Self {
        Self::new("stopped", SourceStopped)
    }

    /// `event` is the name of the event that the contract does not allow.
    pub(super) fn out_of_order(event: &'static str) -> Self {
        Self::new("out_of_order", OutOfOrder { event })
    }

    /// The word for the metrics.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Whether the source ended because it was stopped.
    pub fn is_stop(&self) -> bool {
        self.error.is::<SourceStopped>()
    }

    /// Whether a task of the source panicked or was aborted.
    pub(super) fn is_end_of_task(&self) -> bool {
        self.error.is::<TaskEnded>()
    }

    /// The source's own error, if it is an `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
