//! What is published, as the socket begins with it and continues after another writer.

use std::ops::ControlFlow;
use std::sync::Arc;

use headwater_store::EngineError;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::state::State;
use crate::source::published::read_result;
use crate::source::{
    PublishedReader, SOURCE_QUEUE_EVENTS, SourceError, SourceEvent, SourceEventSender,
};

/// Lists the objects that an earlier run published, and returns the state that they make.
pub(super) async fn list(
    published: Arc<dyn PublishedReader>,
    events: &mut SourceEventSender,
) -> Result<State, SourceError> {
    read(events, move |delivery| {
        let mut state = State::default();
        published.read(&mut |key, object| {
            let object = state.restore(key, &object);
            delivery.send(object.map(SourceEvent::InitApply))
        })?;
        Ok(state)
    })
    .await
}

/// Sends the difference from `before` to what another writer published, and returns the state that
/// this makes.
pub(super) async fn take_over(
    mut before: State,
    published: Arc<dyn PublishedReader>,
    events: &mut SourceEventSender,
) -> Result<State, SourceError> {
    read(events, move |delivery| {
        let mut state = State::default();
        published.read(&mut |key, object| {
            delivery.send(state.continue_from(&mut before, key, &object))
        })?;
        if before.may_be_unused() {
            published.read(&mut |_, object| {
                before.note_needs(&object);
                delivery.send([])
            })?;
        }
        // Once the receiver has gone, the state is not used.
        let _ = delivery.send(state.keep_unused(before));
        Ok(state)
    })
    .await
}

/// Where the events of a reader go.
struct Delivery(mpsc::Sender<SourceEvent>);

impl Delivery {
    /// Waits for room for each event. Breaks when events are no longer wanted.
    fn send(&self, events: impl IntoIterator<Item = SourceEvent>) -> ControlFlow<()> {
        let is_delivered = |event| self.0.blocking_send(event).is_ok();
        if !self.0.is_closed() && events.into_iter().all(is_delivered) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Sends on what `reader` sends. It waits for room, so it has a thread of its own. The reader ends when this
/// call is dropped.
async fn read(
    events: &mut SourceEventSender,
    reader: impl FnOnce(&Delivery) -> Result<State, EngineError> + Send + 'static,
) -> Result<State, SourceError> {
    let (sender, mut found) = mpsc::channel(SOURCE_QUEUE_EVENTS);
    let reading = spawn_blocking(move || reader(&Delivery(sender)));
    let read = async { read_result(reading.await) };
    // When it fails, it takes no more events, and the reader stops at the next one.
    let send = async move {
        while let Some(event) = found.recv().await {
            events.send(event).await?;
        }
        Ok::<_, SourceError>(())
    };
    let (state, sent) = tokio::join!(read, send);
    sent?;
    state
}
