//! A producer with a thread that receives the outcomes of its records.
//!
//! rdkafka's own `ThreadedProducer` polls ten times a second and spins through the last millisecond
//! of each poll, so an idle producer takes a hundredth of a core. This thread sleeps until
//! librdkafka has an event.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use headwater_owner::OwnerThread;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::producer::{BaseProducer, Producer, PurgeConfig};

use super::context::ClientContext;
use crate::native::MainQueue;
use crate::settings::SettingsError;

/// A producer. When it is dropped, its client is closed and writes nothing more.
pub(crate) struct BackgroundProducer {
    producer: Arc<BaseProducer<ClientContext>>,
    is_over: Arc<AtomicBool>,
    thread: Option<OwnerThread<()>>,
}

impl BackgroundProducer {
    pub(crate) fn new(
        config: &ClientConfig,
        context: ClientContext,
    ) -> Result<Self, SettingsError> {
        let invalid = |reason: String| SettingsError::Invalid { reason };
        let producer = BaseProducer::from_config_and_context(config, context);
        let producer = Arc::new(producer.map_err(|error| invalid(error.to_string()))?);
        let mut queue = MainQueue::of(producer.client())
            .ok_or_else(|| invalid("Kafka's client has no queue".to_owned()))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let receive = {
            let (producer, is_over) = (producer.clone(), is_over.clone());
            move || {
                queue.wake(thread::current());
                while !is_over.load(Ordering::Relaxed) {
                    thread::park();
                    while queue.len() > 0 {
                        // One event, which may carry the outcomes of many records.
                        producer.poll(Duration::ZERO);
                    }
                }
                // The queue is released while the client still exists.
                drop(queue);
            }
        };
        let thread = OwnerThread::start("kafka outcomes", None, receive)
            .map_err(|error| invalid(format!("its thread cannot be started: {error}")))?;
        Ok(Self { producer, is_over, thread: Some(thread) })
    }

    /// Discards the records that are not written yet. The outcome of each follows.
    pub(crate) fn discard_unwritten(&self) {
        self.producer.purge(PurgeConfig::default().queue().inflight());
    }
}

impl Deref for BackgroundProducer {
    type Target = BaseProducer<ClientContext>;

    fn deref(&self) -> &Self::Target {
        &self.producer
    }
}

impl Drop for BackgroundProducer {
    fn drop(&mut self) {
        // Nothing is written while the thread polls for the last time.
        self.discard_unwritten();
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.unpark();
            // A panic of the thread would be a defect, and was reported.
            let _ = thread.join();
        }
    }
}
