//! A producer with a thread that hears what becomes of its records.
//!
//! rdkafka has one of its own, which looks ten times a second and spins through the last millisecond
//! of each look: a producer that rests takes a hundredth of a core. This one sleeps until librdkafka
//! has something for it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use headwater_owner::OwnerThread;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::producer::{BaseProducer, Producer, PurgeConfig};

use crate::clients::Context;
use crate::native::MainQueue;
use crate::settings::SettingsError;

/// A producer. Once it is dropped, its client is closed and writes nothing any more.
pub(crate) struct Polled {
    producer: Arc<BaseProducer<Context>>,
    is_over: Arc<AtomicBool>,
    thread: Option<OwnerThread<()>>,
}

impl Polled {
    pub(crate) fn new(config: &ClientConfig, context: Context) -> Result<Self, SettingsError> {
        let invalid = |reason: String| SettingsError::Invalid { reason };
        let producer = BaseProducer::from_config_and_context(config, context);
        let producer = Arc::new(producer.map_err(|error| invalid(error.to_string()))?);
        let mut queue = MainQueue::of(producer.client())
            .ok_or_else(|| invalid("Kafka's client has no queue".to_owned()))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let listen = {
            let (producer, is_over) = (producer.clone(), is_over.clone());
            move || {
                queue.wake(thread::current());
                while !is_over.load(Ordering::Relaxed) {
                    thread::park();
                    while queue.len() > 0 {
                        // One event, which may tell of many records.
                        producer.poll(Duration::ZERO);
                    }
                }
                // Given back while the client is still there.
                drop(queue);
            }
        };
        let thread = OwnerThread::start("kafka outcomes", None, listen)
            .map_err(|error| invalid(format!("there is no thread for it: {error}")))?;
        Ok(Self { producer, is_over, thread: Some(thread) })
    }
}

impl Deref for Polled {
    type Target = BaseProducer<Context>;

    fn deref(&self) -> &Self::Target {
        &self.producer
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // Nothing is to be written while the thread looks its last.
        self.producer.purge(PurgeConfig::default().queue().inflight());
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.unpark();
            // A panic of its own would be a defect, and was told.
            let _ = thread.join();
        }
    }
}
