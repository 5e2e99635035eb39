//! The append calls of a writer whose outcome is not known yet: a queue for each partition, in the
//! order of its events. No call waits for one of another partition.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::ops::Bound::{Excluded, Unbounded};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use headwater_event::Partition;
use tokio::task::unconstrained;

use super::EventPosition;
use crate::log::{Append, AppendError, Log};

type AppendFuture = Pin<Box<dyn Future<Output = Result<(), AppendError>> + Send>>;

/// Calls of [`Log::append`], each of one partition.
#[derive(Default)]
pub(super) struct PendingAppends {
    /// The calls of each partition that has some, oldest first.
    calls: BTreeMap<Partition, VecDeque<PendingAppend>>,
    /// The partition of the last call that was returned: the next one comes from another partition
    /// first.
    last: Option<Partition>,
}

struct PendingAppend {
    positions: Vec<EventPosition>,
    state: CallState,
}

enum CallState {
    Running(AppendFuture),
    Finished(Result<(), AppendError>),
}

/// The outcome of a call: its partition, and its events or why it failed.
type CallOutcome = (Partition, Result<Vec<EventPosition>, AppendError>);

impl PendingAppends {
    pub(super) fn len(&self) -> usize {
        self.calls.values().map(VecDeque::len).sum()
    }

    pub(super) fn len_of(&self, partition: Partition) -> usize {
        self.calls.get(&partition).map_or(0, VecDeque::len)
    }

    /// Starts a call behind all calls of its partition before it. `positions` are those of its events.
    pub(super) fn start(
        &mut self,
        log: Arc<dyn Log>,
        partition: Partition,
        appends: Vec<Append>,
        positions: Vec<EventPosition>,
    ) {
        // A log orders overlapping calls by their first poll, and a task without budget would
        // return from that poll before the log has seen the call.
        let call = unconstrained(async move { log.append(appends).await.map(drop) });
        let mut state = CallState::Running(Box::pin(call));
        state.poll(&mut Context::from_waker(Waker::noop()));
        self.calls.entry(partition).or_default().push_back(PendingAppend { positions, state });
    }

    /// Returns the positions of the oldest call of a partition, once it has succeeded, or the first
    /// failure of any call. Waits for ever if there is no call.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<CallOutcome> {
        for call in self.calls.values_mut().flatten() {
            call.state.poll(cx);
        }
        let after = self.last.map_or(Unbounded, Excluded);
        let others = self.calls.range((after, Unbounded)).chain(self.calls.iter());
        let mut next = others.filter_map(|(partition, calls)| Some((*partition, next_of(calls)?)));
        let Some((partition, place)) = next.next() else { return Poll::Pending };
        self.last = Some(partition);
        match self.remove(partition, place) {
            Some(PendingAppend { positions, state: CallState::Finished(result) }) => {
                Poll::Ready((partition, result.map(|()| positions)))
            }
            _ => Poll::Pending,
        }
    }

    /// Discards the calls of a partition. Their outcomes are unknown from here on.
    pub(super) fn discard(&mut self, partition: Partition) {
        self.calls.remove(&partition);
    }

    /// Discards every call.
    pub(super) fn discard_all(&mut self) {
        self.calls.clear();
    }

    fn remove(&mut self, partition: Partition, place: usize) -> Option<PendingAppend> {
        let calls = self.calls.get_mut(&partition)?;
        let call = calls.remove(place);
        if calls.is_empty() {
            self.calls.remove(&partition);
        }
        call
    }
}

/// The call of a partition to be returned next: the oldest one if it has finished, and otherwise the
/// first one that has failed.
fn next_of(calls: &VecDeque<PendingAppend>) -> Option<usize> {
    if let Some(PendingAppend { state: CallState::Finished(_), .. }) = calls.front() {
        return Some(0);
    }
    calls.iter().position(|call| matches!(call.state, CallState::Finished(Err(_))))
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
        f.debug_tuple("PendingAppends").field(&self.len()).finish()
    }
}
