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

/// Takes the events of a reader, and breaks when they are no longer wanted.
type Deliver<'a> = &'a mut dyn FnMut(SourceEvent) -> ControlFlow<()>;

/// Lists the objects that an earlier run published, and returns the state that they make.
pub(super) async fn list(
    published: Arc<dyn PublishedReader>,
    events: &mut SourceEventSender,
) -> Result<State, SourceError> {
    read(events, move |deliver| {
        let mut state = State::default();
        published.read(&mut |key, object| {
            let object = state.restore(key, &object);
            object.into_iter().map(SourceEvent::InitApply).try_for_each(&mut *deliver)
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
    read(events, move |deliver| {
        let mut state = State::default();
        published.read(&mut |key, object| {
            let events = state.continue_from(&mut before, key, &object);
            events.into_iter().try_for_each(&mut *deliver)
        })?;
        // Once the receiver has gone, the state is not used.
        let _ = state.keep_unused(before).into_iter().try_for_each(deliver);
        Ok(state)
    })
    .await
}

/// Sends on what `reader` sends. It waits for room, so it has a thread of its own.
async fn read(
    events: &mut SourceEventSender,
    reader: impl FnOnce(Deliver<'_>) -> Result<State, EngineError> + Send + 'static,
) -> Result<State, SourceError> {
    let (sender, mut found) = mpsc::channel(SOURCE_QUEUE_EVENTS);
    let reading = spawn_blocking(move || {
        reader(&mut |event| match sender.blocking_send(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        })
    });
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
