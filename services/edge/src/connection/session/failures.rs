//! Why there is no session: logged once per reason in a row, and kept for the status.

use headwater_session::EdgeCloseReason;
use headwater_session::message::RefusalCode;

use crate::connection::link::LinkError;
use crate::metrics::{EdgeCounts, ErrorKind};

/// The failures since the last session that a hub welcomed.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// Why the last session ended.
    last_end: Option<String>,
    /// What needs a person.
    trouble: Option<String>,
}

impl FailureLog {
    /// A hub has welcomed the session.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// Records that there is no connection, or no more.
    pub(super) fn no_connection(&mut self, error: &LinkError, metrics: &EdgeCounts) {
        tracing::info!(error = error as &dyn std::error::Error, "no connection");
        metrics.failed(error.kind());
        let Some(trouble) = error.trouble() else { return };
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(trouble, "no connection");
        }
        self.trouble = Some(trouble);
    }

    /// Records why the session ended.
    pub(super) fn session_ended(&mut self, end: &EdgeCloseReason, metrics: &EdgeCounts) {
        self.log(end);
        let kind = match end {
            EdgeCloseReason::Refused(refusal) => match refusal.code {
                // Both pass without a person.
                RefusalCode::Unavailable | RefusalCode::Superseded => return,
                _ => ErrorKind::Refused,
            },
            EdgeCloseReason::Moved { .. }
            | EdgeCloseReason::RaisingBoot { .. }
            | EdgeCloseReason::Silent { .. } => return,
            _ => ErrorKind::Session,
        };
        metrics.failed(kind);
        self.trouble = Some(end.to_string());
    }

    /// Warns once per reason in a row, because a refused edge retries for as long as it runs. What
    /// heals without a person is no warning.
    fn log(&mut self, end: &EdgeCloseReason) {
        let error = end as &dyn std::error::Error;
        let reason = end.to_string();
        if self.last_end.as_ref() == Some(&reason) {
            tracing::debug!(error, "the session ended");
        } else if matches!(end, EdgeCloseReason::RaisingBoot { .. } | EdgeCloseReason::Moved { .. })
        {
            tracing::info!(error, "the session ended");
        } else {
            tracing::warn!(error, "the session ended");
        }
        self.last_end = Some(reason);
    }
}
