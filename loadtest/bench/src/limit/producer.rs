//! A bare producer of rdkafka's, with the settings of the log's own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_kafka::{HEADER, KafkaSettings};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_log::Append;
use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};

/// How long all that was sent may take to be acknowledged.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);

/// The wait for room in the client's queue.
const ROOM_AFTER: Duration = Duration::from_millis(1);

/// The producer.
pub(crate) struct BareProducer {
    producer: ThreadedProducer<Counting>,
    topic: String,
    counting: Counting,
    sent: AtomicU64,
}

/// Counts what is acknowledged.
#[derive(Clone, Default)]
struct Counting(Arc<Outcomes>);

#[derive(Default)]
struct Outcomes {
    done: Mutex<Done>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Done {
    acknowledged: u64,
    failed: u64,
}

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(_) => done.acknowledged += 1,
            Err(_) => done.failed += 1,
        }
        self.0.changed.notify_all();
    }
}

impl BareProducer {
    /// One on the topic of `settings`.
    ///
    /// # Errors
    /// When rdkafka does not take the settings.
    pub(crate) fn new(settings: &KafkaSettings) -> Result<Self, Failure> {
        let config = settings.producer_config().tried("the settings of a producer")?;
        let counting = Counting::default();
        let producer = ThreadedProducer::from_config_and_context(&config, counting.clone())
            .tried("making a producer")?;
        let topic = settings.topic.clone();
        Ok(Self { producer, topic, counting, sent: AtomicU64::new(0) })
    }

    /// Sends a record as the log writes it, and waits for nothing but room.
    ///
    /// # Errors
    /// When it is not taken.
    pub(crate) fn send(&self, append: &Append) -> Result<(), Failure> {
        let record = &append.record;
        let mut sent = BaseRecord::to(&self.topic)
            .partition(i32::try_from(append.partition.0).unwrap_or(i32::MAX))
            .key(&record.key[..])
            .headers(
                OwnedHeaders::new_with_capacity(1)
                    .insert(Header { key: HEADER, value: Some(&record.header[..]) }),
            );
        if let Some(value) = &record.value {
            sent = sent.payload(&value[..]);
        }
        loop {
            match self.producer.send(sent) {
                Ok(()) => break,
                Err((error, back))
                    if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) =>
                {
                    sent = back;
                    std::thread::sleep(ROOM_AFTER);
                }
                Err((error, _)) => return Err(error).tried("sending a record"),
            }
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until all that was sent is acknowledged.
    ///
    /// # Errors
    /// When something is not.
    pub(crate) fn acknowledged(&self) -> Result<(), Failure> {
        let wanted = self.sent.load(Ordering::Relaxed);
        let deadline = Instant::now() + ACKNOWLEDGED_WITHIN;
        let outcomes = &self.counting.0;
        let mut done = outcomes.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done.acknowledged + done.failed < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::of("the broker does not acknowledge what was sent"));
            }
            done = match outcomes.changed.wait_timeout(done, left) {
                Ok((done, _)) => done,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        if done.failed > 0 {
            return Err(Failure::of(format!("{} records were not taken", done.failed)));
        }
        Ok(())
    }
}
