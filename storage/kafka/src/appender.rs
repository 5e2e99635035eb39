//! Appends: records go to the client in order; a call has the outcome of all its records, and one
//! unknown outcome makes the call's unknown.
//!
//! A partition without a leader, or without enough replicas, lets its records time out. The client then
//! waits for what is in flight and goes on with another epoch of its own, so records of other
//! partitions are written meanwhile and behind that.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_log::{Append, AppendError, RecordPosition};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::client::{AppendCall, BackgroundProducer, ClientContext, Delivery, describe};
use crate::metrics::Counts;
use crate::settings::{KafkaSettings, SettingsError};
use crate::{HEADER, TRACEPARENT};

/// The wait for room in the client's queue.
const ROOM_AFTER: Duration = Duration::from_millis(5);

/// A client that appends. It is used until an outcome is unknown for another reason than the absence of
/// one partition.
pub(crate) struct KafkaAppender {
    context: ClientContext,
    producer: BackgroundProducer,
    settings: Arc<KafkaSettings>,
    /// When the last call was written.
    written: Mutex<Option<Instant>>,
}

impl KafkaAppender {
    pub(crate) fn new(
        settings: Arc<KafkaSettings>,
        counts: Option<Arc<Counts>>,
    ) -> Result<Self, SettingsError> {
        let context = ClientContext::new(counts);
        let config = settings.producer_config()?;
        let producer = BackgroundProducer::new(&config, context.clone())?;
        Ok(Self { context, producer, settings, written: Mutex::default() })
    }

    /// Gives `records`, which the topic accepts as far as this process knows, to the client, in
    /// order. Calls must not overlap.
    pub(crate) async fn send(&self, records: &[Append]) -> SentAppend {
        let (done, finished) = oneshot::channel();
        let call = Arc::new(AppendCall::new(records.len(), done));
        let began = Instant::now();
        let deadline = began + self.settings.delivery_timeout;
        for (index, append) in records.iter().enumerate() {
            if let Err(code) = self.send_record(&call, index, append, deadline).await {
                // The records after it are not sent either, which keeps their order.
                call.fail_from(index, code);
                break;
            }
        }
        SentAppend { call, finished, began }
    }

    /// Notes that a call was written.
    pub(crate) fn note_written(&self) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a call failed because its partition is away: its records timed out, and the client has
    /// written others in the second half of that time. A write in the first half may have been the
    /// last one of a whole broker.
    pub(crate) fn is_partition_away(&self, failure: &AppendFailure) -> bool {
        let half = failure.began + self.settings.delivery_timeout / 2;
        let written = *self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let is_timeout = |code: &RDKafkaErrorCode| {
            matches!(code, RDKafkaErrorCode::MessageTimedOut | RDKafkaErrorCode::Partial)
        };
        written.is_some_and(|written| written > half)
            && failure.codes.iter().all(is_timeout)
            && self.producer.client().fatal_error().is_none()
    }

    /// Discards the records that the client has not written. After [`AppendError::Unknown`], unless a
    /// partition is away, the caller purges and drops this client: records that it has not sent are
    /// then never written.
    pub(crate) fn purge(&self) {
        self.producer.discard_unwritten();
    }

    /// What a failed call means for its caller.
    pub(crate) fn explain(&self, failure: &AppendFailure) -> AppendError {
        let topic = &self.settings.topic;
        if let Some((code, text)) = self.producer.client().fatal_error() {
            let reason = format!("{}: {text}", describe(code, topic));
            return AppendError::Unknown { reason: self.context.last_error.explain(reason) };
        }
        let codes = &failure.codes;
        let first = codes.first().copied().unwrap_or(RDKafkaErrorCode::Fail);
        let reason = self.context.last_error.explain(describe(first, topic));
        if codes.iter().all(|code| is_refusal(*code)) {
            return AppendError::Rejected { reason };
        }
        AppendError::Unknown { reason }
    }

    async fn send_record(
        &self,
        call: &Arc<AppendCall>,
        index: usize,
        append: &Append,
        deadline: Instant,
    ) -> Result<(), RDKafkaErrorCode> {
        let mut delivery = Box::new(Delivery { call: call.clone(), index });
        loop {
            let record = record(&self.settings.topic, append, delivery);
            let (error, back) = match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            if code != RDKafkaErrorCode::QueueFull || Instant::now() >= deadline {
                return Err(code);
            }
            delivery = back.delivery_opaque;
            tokio::time::sleep(ROOM_AFTER).await;
        }
    }
}

/// A call whose records the client has.
pub(crate) struct SentAppend {
    call: Arc<AppendCall>,
    finished: oneshot::Receiver<()>,
    began: Instant,
}

/// A call whose records were not all written.
pub(crate) struct AppendFailure {
    /// The codes of the others.
    codes: Vec<RDKafkaErrorCode>,
    /// When the client got the call.
    began: Instant,
}

impl SentAppend {
    /// Waits for the outcome of each record: it comes within the delivery timeout, and when the
    /// client is purged.
    pub(crate) async fn outcome(self) -> Result<Vec<RecordPosition>, AppendFailure> {
        let _ = self.finished.await;
        self.call.outcome().map_err(|codes| AppendFailure { codes, began: self.began })
    }
}

impl AppendFailure {
    /// The meaning of a failure when the client was discarded for another call's failure.
    pub(crate) fn unknown(&self) -> AppendError {
        AppendError::Unknown { reason: "an append before it failed".to_owned() }
    }
}

fn record<'a>(
    topic: &'a str,
    append: &'a Append,
    delivery: Box<Delivery>,
) -> BaseRecord<'a, [u8], [u8], Box<Delivery>> {
    let record = &append.record;
    let mut sent = BaseRecord::with_opaque_to(topic, delivery)
        .partition(i32::try_from(append.partition.0).unwrap_or(i32::MAX))
        .key(&record.key[..]);
    if let Some(value) = &record.value {
        sent = sent.payload(&value[..]);
    }
    let mut headers = OwnedHeaders::new_with_capacity(2);
    if !record.header.is_empty() {
        headers = headers.insert(Header { key: HEADER, value: Some(&record.header[..]) });
    }
    if let Some(traceparent) = &record.traceparent {
        headers = headers.insert(Header { key: TRACEPARENT, value: Some(traceparent) });
    }
    sent.headers(headers)
}

/// Whether Kafka never accepts this record, so that the caller may leave it out. A missing or denied
/// topic, or an absent broker, is no fault of the record.
fn is_refusal(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::InvalidMessage
            | Code::InvalidMessageSize
            | Code::InvalidRecord
            | Code::PolicyViolation
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_all_records_make_a_refusal() {
        use RDKafkaErrorCode as Code;
        assert!([Code::MessageSizeTooLarge; 2].into_iter().all(is_refusal));
        // Another record of the call was written.
        assert!(!is_refusal(Code::Partial));
    }

    #[test]
    fn a_topic_that_cannot_be_written_just_now_refuses_no_record() {
        use RDKafkaErrorCode as Code;
        for code in [
            Code::UnknownTopic,
            Code::UnknownTopicOrPartition,
            Code::UnknownPartition,
            Code::TopicAuthorizationFailed,
            Code::QueueFull,
            Code::MessageTimedOut,
        ] {
            assert!(!is_refusal(code), "{code:?}: a report would be left out for it");
        }
        assert!(is_refusal(Code::MessageSizeTooLarge));
    }
}
