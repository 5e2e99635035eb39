//! The append calls of a writer whose outcome is not known yet, in the order of their events.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::task::unconstrained;

use super::EventPosition;
use crate::log::{Append, AppendError, Log};

type AppendFuture = Pin<Box<dyn Future<Output = Result<(), AppendError>> + Send>>;

/// Calls of [`Log::append`], oldest first.
#[derive(Default)]
pub(super) struct PendingAppends {
    calls: VecDeque<PendingAppend>,
}

struct PendingAppend {
    positions: Vec<EventPosition>,
    state: CallState,
}

enum CallState {
    Running(AppendFuture),
    Finished(Result<(), AppendError>),
}

impl PendingAppends {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Starts a call behind all calls before it. `positions` are those of its events.
    pub(super) fn start(
        &mut self,
        log: Arc<dyn Log>,
        appends: Vec<Append>,
        positions: Vec<EventPosition>,
    ) {
        // A log orders overlapping calls by their first poll, and a task without budget would
        // return from that poll before the log has seen the call.
        let call = unconstrained(async move { log.append(appends).await.map(drop) });
        let mut state = CallState::Running(Box::pin(call));
        state.poll(&mut Context::from_waker(Waker::noop()));
        self.calls.push_back(PendingAppend { positions, state });
    }

    /// Returns the positions of the oldest call, once it has succeeded, or the first failure of
    /// any call. Waits for ever if there is no call.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Vec<EventPosition>, AppendError>> {
        for call in &mut self.calls {
            call.state.poll(cx);
        }
        let failed = |call: &PendingAppend| matches!(call.state, CallState::Finished(Err(_)));
        let failed = self.calls.iter().position(failed);
        let next = match self.calls.front() {
            Some(PendingAppend { state: CallState::Finished(_), .. }) => Some(0),
            _ => failed,
        };
        match next.and_then(|place| self.calls.remove(place)) {
            Some(PendingAppend { positions, state: CallState::Finished(result) }) => {
                Poll::Ready(result.map(|()| positions))
            }
            _ => Poll::Pending,
        }
    }

    /// Discards every call. The outcomes are unknown from here on.
    pub(super) fn discard(&mut self) {
        self.calls.clear();
    }
}

impl CallState {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::Running(call) = self
            && let Poll::Ready(result) = call.as_mut().poll(cx)
        {
            *self = Self::Finished(result);
        }
    }
}

impl fmt::Debug for PendingAppends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingAppends").field(&self.calls.len()).finish()
    }
}
