//! Why there is no session: kept for the status, and logged once until a hub welcomes the edge.

use std::collections::VecDeque;

use headwater_session::EdgeCloseReason;
use headwater_session::message::RefusalCode;
use headwater_telemetry::error_chain;

use crate::connection::link::LinkError;
use crate::metrics::{EdgeCounts, ErrorKind};

/// The reasons that are remembered. With several hubs they take turns.
const REASONS_MAX: usize = 16;

/// The failures since the last session that a hub welcomed.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    /// What keeps the edge from a session.
    trouble: Option<String>,
    /// Why there was no connection, and why sessions ended, the oldest reason first.
    reasons: VecDeque<String>,
}

impl FailureLog {
    /// A hub has welcomed the session.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// Records that there is no connection, or no more. `was_welcomed`: a hub had welcomed the
    /// session on it.
    pub(super) fn no_connection(
        &mut self,
        error: &LinkError,
        was_welcomed: bool,
        metrics: &EdgeCounts,
    ) {
        let is_new = self.is_new(error_chain(error));
        metrics.failed(error.kind());
        let trouble = error.trouble();
        let error = error as &dyn std::error::Error;
        match &trouble {
            // Without a network the edge tries twice a second, for weeks.
            _ if !is_new => tracing::debug!(error, "no connection"),
            Some(_) => tracing::warn!(error, "no connection"),
            None => tracing::info!(error, "no connection"),
        }
        if trouble.is_some() {
            self.trouble = trouble;
        } else if !was_welcomed {
            // The next hub may welcome the edge at once. A peer that ends every connection before
            // that is no hub, or one that refused the edge with a reason.
            self.trouble.get_or_insert_with(|| error_chain(error));
        }
    }

    /// Whether this reason was not seen since the last welcome, or long ago. Remembers it.
    fn is_new(&mut self, reason: String) -> bool {
        if self.reasons.contains(&reason) {
            return false;
        }
        if self.reasons.len() >= REASONS_MAX {
            self.reasons.pop_front();
        }
        self.reasons.push_back(reason);
        true
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

    /// Warns once per reason, because a refused edge retries for as long as it runs. What heals without a person is no
    /// warning.
    fn log(&mut self, end: &EdgeCloseReason) {
        let is_new = self.is_new(end.to_string());
        let heals =
            matches!(end, EdgeCloseReason::RaisingBoot { .. } | EdgeCloseReason::Moved { .. });
        let error = end as &dyn std::error::Error;
        match (is_new, heals) {
            (false, _) => tracing::debug!(error, "the session ended"),
            (true, true) => tracing::info!(error, "the session ended"),
            (true, false) => tracing::warn!(error, "the session ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::connection::transport::DialError;

    #[test]
    fn every_reason_for_no_connection_is_a_trouble_until_a_welcome() {
        let metrics = EdgeCounts::default();
        let address = || "127.0.0.1:7300".parse().expect("an address");
        let refused = || {
            let source = DialError::Tcp(io::ErrorKind::ConnectionRefused.into());
            LinkError::Connect { address: address(), source }
        };
        let mut log = FailureLog::default();
        log.no_connection(&LinkError::Closed { address: address() }, true, &metrics);
        assert_eq!(log.trouble(), None, "a session has ended, and the next one may begin at once");
        log.no_connection(&LinkError::Closed { address: address() }, false, &metrics);
        let closed = "hub 127.0.0.1:7300 closed the session";
        assert_eq!(log.trouble().as_deref(), Some(closed));
        log.no_connection(&refused(), false, &metrics);
        let trouble = "hub 127.0.0.1:7300: it does not respond: connection refused";
        assert_eq!(log.trouble().as_deref(), Some(trouble));
        log.no_connection(&LinkError::Closed { address: address() }, false, &metrics);
        assert_eq!(log.trouble().as_deref(), Some(trouble), "the earlier reason explains more");
        log.clear();
        assert_eq!(log.trouble(), None);
    }

    #[test]
    fn a_reason_is_new_once_until_a_welcome_however_many_hubs_take_turns() {
        let mut log = FailureLog::default();
        let of = |hub: usize| format!("cannot connect to hub {hub}");
        for turn in 0..100 {
            for hub in 0..REASONS_MAX {
                assert_eq!(log.is_new(of(hub)), turn == 0, "turn {turn}, hub {hub}");
            }
        }
        assert!(log.is_new(of(REASONS_MAX)));
        assert!(log.is_new(of(0)), "the oldest one is forgotten");
        log.clear();
        assert!(log.is_new(of(1)));
    }
}
