//! What is published, as the socket begins with it and continues after another writer.
//!
//! A restart waits until every published object is restored, which is parsing and hashing for the most
//! part. So the objects are restored many at once, on several processors, and sent in their order.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{available_parallelism, scope};

use headwater_event::ResourceKey;
use headwater_store::EngineError;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::state::{RestoredObject, State};
use crate::source::published::read_result;
use crate::source::{
    PublishedObject, PublishedReader, SOURCE_QUEUE_EVENTS, SourceError, SourceEvent,
    SourceEventSender,
};

/// Objects, and bytes of their payloads, that are restored at once: enough for the threads, and little
/// memory. One object more may exceed the bytes.
const BATCH_OBJECTS: usize = 2_048;
const BATCH_BYTES: usize = 8 << 20;

/// Events that are handed on together: a thread that waits for room is woken once for all of them.
const EVENTS_TOGETHER: usize = 256;

/// Objects for which a thread more is worth its start: they take a millisecond.
const OBJECTS_PER_THREAD: usize = 64;

/// Threads that restore objects: the one task that takes up the objects is not faster than these.
const THREADS_MAX: usize = 4;

/// Published objects that are restored together.
#[derive(Default)]
struct Batch {
    objects: Vec<(ResourceKey, PublishedObject)>,
    bytes: usize,
}

/// Lists the objects that an earlier run published, and returns the state that they make.
pub(super) async fn list(
    published: Arc<dyn PublishedReader>,
    events: &mut SourceEventSender,
) -> Result<State, SourceError> {
    read(events, move |delivery| restore_all(&*published, delivery)).await
}

fn restore_all(
    published: &dyn PublishedReader,
    delivery: &mut Delivery,
) -> Result<State, EngineError> {
    let mut state = State::default();
    let mut batch = Batch::default();
    published.read(&mut |key, object| {
        // Many streams may have it.
        if !state.has(&key) {
            batch.add(key, object);
        }
        if batch.is_full() {
            batch.restore(&mut state, delivery)
        } else {
            ControlFlow::Continue(())
        }
    })?;
    // Once the receiver has gone, the state is not used.
    let _ = batch.restore(&mut state, delivery);
    Ok(state)
}

/// Sends the difference from `state` to what another writer published, and returns the state that
/// this makes.
pub(super) async fn take_over(
    mut state: State,
    published: Arc<dyn PublishedReader>,
    events: &mut SourceEventSender,
) -> Result<State, SourceError> {
    read(events, move |delivery| {
        published.read(&mut |key, object| delivery.send(state.continue_with(key, &object)))?;
        if state.may_be_unused() {
            published.read(&mut |_, object| {
                state.note_needs(&object);
                delivery.send([])
            })?;
        }
        // Once the receiver has gone, the state is not used.
        let _ = delivery.send(state.end_takeover());
        Ok(state)
    })
    .await
}

impl Batch {
    fn add(&mut self, key: ResourceKey, object: PublishedObject) {
        self.bytes += object.payload.len();
        self.objects.push((key, object));
    }

    fn is_full(&self) -> bool {
        self.objects.len() >= BATCH_OBJECTS || self.bytes >= BATCH_BYTES
    }

    /// Restores the objects into `state`, and sends them in their order. It is empty afterwards.
    fn restore(&mut self, state: &mut State, delivery: &mut Delivery) -> ControlFlow<()> {
        let Self { objects, .. } = std::mem::take(self);
        let restored = restored(&objects);
        for ((key, _), restored) in objects.into_iter().zip(restored) {
            let object = restored.and_then(|restored| state.insert(key, restored));
            delivery.send(object.map(SourceEvent::InitApply))?;
        }
        ControlFlow::Continue(())
    }
}

/// Restores objects on several threads, if they are many; `None` for those of manifests.
fn restored(objects: &[(ResourceKey, PublishedObject)]) -> Vec<Option<RestoredObject>> {
    let threads = available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let threads = threads.min(objects.len() / OBJECTS_PER_THREAD).max(1);
    let mut parts = objects.chunks(objects.len().div_ceil(threads).max(1));
    scope(|scope| {
        let own = parts.next().unwrap_or_default();
        let others: Vec<_> = parts.map(|part| scope.spawn(move || restored_part(part))).collect();
        let mut restored = restored_part(own);
        for other in others {
            restored.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        restored
    })
}

fn restored_part(objects: &[(ResourceKey, PublishedObject)]) -> Vec<Option<RestoredObject>> {
    objects.iter().map(|(_, published)| RestoredObject::of(published)).collect()
}

/// Where the events of a reader go.
struct Delivery {
    to: mpsc::Sender<Vec<SourceEvent>>,
    /// Those that are handed on next.
    events: Vec<SourceEvent>,
}

impl Delivery {
    fn new(to: mpsc::Sender<Vec<SourceEvent>>) -> Self {
        Self { to, events: Vec::new() }
    }

    /// Waits for room once enough events are there. Breaks when events are no longer wanted.
    fn send(&mut self, events: impl IntoIterator<Item = SourceEvent>) -> ControlFlow<()> {
        if self.to.is_closed() {
            return ControlFlow::Break(());
        }
        for event in events {
            self.events.push(event);
            if self.events.len() >= EVENTS_TOGETHER {
                self.flush()?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Hands on the events that are left. Breaks when events are no longer wanted.
    fn flush(&mut self) -> ControlFlow<()> {
        match self.to.blocking_send(std::mem::take(&mut self.events)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// Sends on what `reader` sends. It waits for room, so it has a thread of its own. The reader ends when this
/// call is dropped.
async fn read(
    events: &mut SourceEventSender,
    reader: impl FnOnce(&mut Delivery) -> Result<State, EngineError> + Send + 'static,
) -> Result<State, SourceError> {
    let (sender, mut found) = mpsc::channel(SOURCE_QUEUE_EVENTS / EVENTS_TOGETHER);
    let reading = spawn_blocking(move || {
        let mut delivery = Delivery::new(sender);
        let state = reader(&mut delivery);
        // The receiver may have gone.
        let _ = delivery.flush();
        state
    });
    let read = async { read_result(reading.await) };
    // When it fails, it takes no more events, and the reader stops at the next one.
    let send = async move {
        while let Some(together) = found.recv().await {
            events.send_all(together).await?;
        }
        Ok::<_, SourceError>(())
    };
    let (state, sent) = tokio::join!(read, send);
    sent?;
    state
}

#[cfg(test)]
mod tests {
    use headwater_object::Object;
    use serde_json::json;

    use super::*;
    use crate::source::manifest::origin::MANIFEST_ANNOTATION;

    /// Objects that two streams have.
    struct TwoStreams(Vec<(ResourceKey, PublishedObject)>);

    impl PublishedReader for TwoStreams {
        fn read(
            &self,
            each: &mut dyn FnMut(ResourceKey, PublishedObject) -> ControlFlow<()>,
        ) -> Result<(), EngineError> {
            let mut twice = self.0.iter().flat_map(|object| [object, object]);
            let _ = twice.try_for_each(|(key, object)| each(key.clone(), object.clone()));
            Ok(())
        }

        fn find(&self, _: &ResourceKey) -> Result<Option<PublishedObject>, EngineError> {
            Ok(None)
        }
    }

    fn published(number: usize, annotations: &serde_json::Value) -> (ResourceKey, PublishedObject) {
        let metadata = json!({
            "name": format!("c{number}"), "namespace": "d", "uid": format!("u{number}"),
            "annotations": annotations,
        });
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let object = Object::from_value(object).expect("an object");
        let (uid, payload) = (object.uid().to_owned(), object.payload().clone());
        let published = PublishedObject::new(uid, String::new(), payload);
        (object.key().clone(), published)
    }

    #[test]
    fn published_objects_are_sent_in_their_order_and_once_however_many_threads_restore_them() {
        let objects = 2 * BATCH_OBJECTS + OBJECTS_PER_THREAD;
        let mut all: Vec<_> = (0..objects).map(|number| published(number, &json!({}))).collect();
        let keys: Vec<ResourceKey> = all.iter().map(|(key, _)| key.clone()).collect();
        all.insert(1, published(objects, &json!({MANIFEST_ANNOTATION: "c.yaml"})));
        let (sender, mut found) = mpsc::channel(objects);
        let mut delivery = Delivery::new(sender);
        let state = restore_all(&TwoStreams(all), &mut delivery).expect("readable");
        assert!(delivery.flush().is_continue());
        let mut sent = Vec::new();
        while let Ok(together) = found.try_recv() {
            assert!(together.len() <= EVENTS_TOGETHER);
            for event in together {
                let SourceEvent::InitApply(object) = event else { panic!("{event:?}") };
                assert!(state.has(object.key()));
                sent.push(object.key().clone());
            }
        }
        assert!(sent == keys, "{} of {} objects, or another order", sent.len(), keys.len());
    }
}
