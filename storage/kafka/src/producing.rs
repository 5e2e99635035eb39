//! Appending: every record's outcome is waited for, and one unknown outcome is the call's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headwater_event::Partition;
use headwater_log::{Append, AppendError, RecordPosition};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::asking::offset;
use crate::clients::{Context, words};
use crate::metrics::Counts;
use crate::polled::Polled;
use crate::settings::{KafkaSettings, SettingsError};
use crate::{HEADER, TRACEPARENT};

/// The wait for room in the client's queue.
const ROOM_AFTER: Duration = Duration::from_millis(5);

/// A client that appends, until the first outcome that is not known.
pub(crate) struct Producing {
    context: Context,
    producer: Polled,
    settings: Arc<KafkaSettings>,
}

/// One record on its way.
pub(crate) struct Delivery {
    call: Arc<Call>,
    index: usize,
}

/// One call of `append`.
struct Call {
    state: Mutex<State>,
}

struct State {
    appended: Vec<Option<RecordPosition>>,
    left: usize,
    failed: Vec<RDKafkaErrorCode>,
    done: Option<oneshot::Sender<()>>,
}

impl Producing {
    pub(crate) fn new(
        settings: Arc<KafkaSettings>,
        counts: Option<Arc<Counts>>,
    ) -> Result<Self, SettingsError> {
        let context = Context::counted(counts);
        let config = settings.producer_config()?;
        let producer = Polled::new(&config, context.clone())?;
        Ok(Self { context, producer, settings })
    }

    /// Appends `records`, which the topic takes as far as is known here. After
    /// [`AppendError::Unknown`] this client is to be dropped: what it has not sent is then not
    /// written any more.
    pub(crate) async fn append(
        &self,
        records: &[Append],
    ) -> Result<Vec<RecordPosition>, AppendError> {
        let (done, finished) = oneshot::channel();
        let call = Arc::new(Call::new(records.len(), done));
        let deadline = Instant::now() + self.settings.delivery_timeout;
        for (index, append) in records.iter().enumerate() {
            if let Err(code) = self.send(&call, index, append, deadline).await {
                // None of the rest is sent: their order holds.
                call.give_up(index, code);
                break;
            }
        }
        // Each record has an end within the time of delivery, and with the client.
        let _ = finished.await;
        call.outcome().map_err(|codes| self.explain(&codes))
    }

    async fn send(
        &self,
        call: &Arc<Call>,
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

    fn explain(&self, codes: &[RDKafkaErrorCode]) -> AppendError {
        let topic = &self.settings.topic;
        let first = codes.first().copied().unwrap_or(RDKafkaErrorCode::Fail);
        if let Some((code, text)) = self.producer.client().fatal_error() {
            let reason = format!("{}: {text}", words(code, topic));
            return AppendError::Unknown { reason: self.context.trouble.explain(reason) };
        }
        let reason = self.context.trouble.explain(words(first, topic));
        if codes.iter().all(|code| is_refusal(*code)) {
            return AppendError::Rejected { reason };
        }
        AppendError::Unknown { reason }
    }
}

impl Call {
    fn new(records: usize, done: oneshot::Sender<()>) -> Self {
        let appended = vec![None; records];
        let state = State { appended, left: records, failed: Vec::new(), done: Some(done) };
        Self { state: Mutex::new(state) }
    }

    fn finish(&self, index: usize, result: Result<RecordPosition, RDKafkaErrorCode>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(appended) => state.appended[index] = Some(appended),
            Err(code) => state.failed.push(code),
        }
        state.left = state.left.saturating_sub(1);
        if state.left == 0
            && let Some(done) = state.done.take()
        {
            // Nobody waits any more where the caller gave up.
            let _ = done.send(());
        }
    }

    /// The record at `index` and those after it are not sent.
    fn give_up(&self, index: usize, code: RDKafkaErrorCode) {
        let records = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.appended.len()
        };
        (index..records).for_each(|index| self.finish(index, Err(code)));
    }

    fn outcome(&self) -> Result<Vec<RecordPosition>, Vec<RDKafkaErrorCode>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let appended: Vec<_> = state.appended.iter().flatten().copied().collect();
        if appended.len() == state.appended.len() {
            return Ok(appended);
        }
        let mut failed = state.failed.clone();
        if !appended.is_empty() {
            // Some are written and some are not: that is no refusal.
            failed.push(RDKafkaErrorCode::Partial);
        }
        Err(failed)
    }
}

impl Delivery {
    pub(crate) fn done(&self, result: &DeliveryResult<'_>) {
        let result = match result {
            Ok(message) => {
                let partition = u32::try_from(message.partition()).unwrap_or_default();
                let partition = Partition(partition);
                Ok(RecordPosition { partition, offset: offset(message.offset()) })
            }
            Err((error, _)) => Err(code_of(error)),
        };
        self.call.finish(self.index, result);
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

fn code_of(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)
}

/// Whether the record is what Kafka does not take, now or ever: whoever appends may leave it out.
/// A topic that is missing or denied, or a broker that is away, is nothing that is wrong with it.
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

    const TWO: [RecordPosition; 2] = [
        RecordPosition { partition: Partition(0), offset: headwater_event::Offset(7) },
        RecordPosition { partition: Partition(1), offset: headwater_event::Offset(9) },
    ];

    fn call() -> (Call, oneshot::Receiver<()>) {
        let (done, finished) = oneshot::channel();
        (Call::new(2, done), finished)
    }

    #[test]
    fn a_call_is_over_when_each_of_its_records_is() {
        let (call, mut finished) = call();
        call.finish(1, Ok(TWO[1]));
        assert!(finished.try_recv().is_err());
        call.finish(0, Ok(TWO[0]));
        assert!(finished.try_recv().is_ok());
        assert_eq!(call.outcome(), Ok(TWO.to_vec()), "in the order given");
    }

    #[test]
    fn one_record_written_makes_a_refusal_of_the_others_unknown() {
        let (call, _finished) = call();
        call.finish(0, Ok(TWO[0]));
        call.give_up(1, RDKafkaErrorCode::MessageSizeTooLarge);
        let failed = call.outcome().expect_err("one is missing");
        assert!(!failed.into_iter().all(is_refusal));
    }

    #[test]
    fn records_that_are_all_refused_are_a_refusal() {
        let (call, mut finished) = call();
        call.give_up(0, RDKafkaErrorCode::MessageSizeTooLarge);
        assert!(finished.try_recv().is_ok());
        let failed = call.outcome().expect_err("none is written");
        assert!(failed.len() == 2 && failed.into_iter().all(is_refusal));
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
