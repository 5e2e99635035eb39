//! Appends: each record's outcome is awaited, and one unknown outcome makes the call's unknown.

use std::sync::Arc;
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

/// A client that appends until the first unknown outcome.
pub(crate) struct KafkaAppender {
    context: ClientContext,
    producer: BackgroundProducer,
    settings: Arc<KafkaSettings>,
}

impl KafkaAppender {
    pub(crate) fn new(
        settings: Arc<KafkaSettings>,
        counts: Option<Arc<Counts>>,
    ) -> Result<Self, SettingsError> {
        let context = ClientContext::new(counts);
        let config = settings.producer_config()?;
        let producer = BackgroundProducer::new(&config, context.clone())?;
        Ok(Self { context, producer, settings })
    }

    /// Appends `records`, which the topic accepts as far as this process knows. After
    /// [`AppendError::Unknown`] the caller drops this client: records that it has not sent are then
    /// never written.
    pub(crate) async fn append(
        &self,
        records: &[Append],
    ) -> Result<Vec<RecordPosition>, AppendError> {
        let (done, finished) = oneshot::channel();
        let call = Arc::new(AppendCall::new(records.len(), done));
        let deadline = Instant::now() + self.settings.delivery_timeout;
        for (index, append) in records.iter().enumerate() {
            if let Err(code) = self.send(&call, index, append, deadline).await {
                // The records after it are not sent either, which keeps their order.
                call.fail_from(index, code);
                break;
            }
        }
        // Each record has an outcome within the delivery timeout, and when the client is dropped.
        let _ = finished.await;
        call.outcome().map_err(|codes| self.error(&codes))
    }

    async fn send(
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

    fn error(&self, codes: &[RDKafkaErrorCode]) -> AppendError {
        let topic = &self.settings.topic;
        let first = codes.first().copied().unwrap_or(RDKafkaErrorCode::Fail);
        if let Some((code, text)) = self.producer.client().fatal_error() {
            let reason = format!("{}: {text}", describe(code, topic));
            return AppendError::Unknown { reason: self.context.last_error.explain(reason) };
        }
        let reason = self.context.last_error.explain(describe(first, topic));
        if codes.iter().all(|code| is_refusal(*code)) {
            return AppendError::Rejected { reason };
        }
        AppendError::Unknown { reason }
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
