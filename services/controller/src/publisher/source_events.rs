//! The queue of the sources' events.

use std::pin::pin;

use tokio::sync::mpsc;

use super::intake::Intake;
use crate::source::SourceEvent;

/// Receives the events of all sources, in groups.
pub(super) struct SourceEvents {
    events: mpsc::Receiver<SourceEvent>,
    /// Keeps the channel open after the sources stopped: their objects stay published.
    _open: mpsc::Sender<SourceEvent>,
    group_events: usize,
}

impl SourceEvents {
    /// Receives up to `group_events` events at once.
    pub(super) fn new(
        events: mpsc::Receiver<SourceEvent>,
        open: mpsc::Sender<SourceEvent>,
        group_events: usize,
    ) -> Self {
        Self { events, _open: open, group_events }
    }

    /// Waits for events and appends a group of them to `group`. Returns their number. Cancel safe.
    pub(super) async fn next_group(&mut self, group: &mut Vec<SourceEvent>) -> usize {
        self.events.recv_many(group, self.group_events).await
    }

    /// Whether no event waits.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether a group of so many events is full, so that more events may wait.
    pub(super) fn is_full(&self, received: usize) -> bool {
        received == self.group_events
    }

    /// The events that wait now.
    pub(super) fn waiting(&mut self) -> Vec<SourceEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    /// Runs `task`, and applies events meanwhile: a source does not wait for the log. Everything is
    /// compared after such a task, so no change is lost here.
    pub(super) async fn apply_until<T>(
        &mut self,
        task: impl Future<Output = T>,
        intake: &mut Intake,
    ) -> T {
        let mut task = pin!(task);
        let mut events = Vec::new();
        loop {
            tokio::select! {
                biased;
                done = &mut task => return done,
                // The channel stays open.
                _ = self.next_group(&mut events) => {
                    let _ = intake.apply(events.drain(..));
                }
            }
        }
    }
}
