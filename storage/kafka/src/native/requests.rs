//! Requests about several topics or partitions at once.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr::NonNull;
use std::time::Duration;

use headwater_event::TopicId;
use rdkafka::bindings as c;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use uuid::Uuid;

use super::{OwnedHandle, text_of};

/// Room for librdkafka's text about a setting that it refuses.
const ERROR_TEXT_BYTES: usize = 512;

/// Kafka's or librdkafka's code of an error, and its text if there is one.
pub(crate) type Failure = (RDKafkaErrorCode, String);

/// The ids of topics by their names, or why one has none.
pub(crate) type TopicIds = BTreeMap<String, Result<TopicId, Failure>>;

/// The ids of `topics` by their names, at least one, in one request; blocks at most for `wait`. A topic that
/// does not exist has the error `UnknownTopicOrPartition`.
///
/// # Errors
/// The request as a whole failed.
pub(crate) fn topic_ids<C: ClientContext>(
    client: &Client<C>,
    topics: &[String],
    wait: Duration,
) -> Result<TopicIds, Failure> {
    let failed = || (RDKafkaErrorCode::Fail, "librdkafka returned no answer".to_owned());
    let texts = topics.iter().map(|name| CString::new(name.as_str()));
    let texts = texts.collect::<Result<Vec<_>, _>>().map_err(|_| failed())?;
    let mut names: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    let (wait_ms, client) = (milliseconds(wait), client.native_ptr());
    // SAFETY: every handle is checked for null, freed once by its guard in the reverse order of
    // their making, and used only while its guard lives; texts and numbers are copied.
    unsafe {
        let queue = NonNull::new(c::rd_kafka_queue_new(client)).ok_or_else(failed)?;
        let queue = OwnedHandle(queue, c::rd_kafka_queue_destroy);
        let topics = c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let topics = NonNull::new(topics).ok_or_else(failed)?;
        let topics = OwnedHandle(topics, c::rd_kafka_TopicCollection_destroy);
        let operation = c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options = c::rd_kafka_AdminOptions_new(client, operation);
        let options = NonNull::new(options).ok_or_else(failed)?;
        let options = OwnedHandle(options, c::rd_kafka_AdminOptions_destroy);
        let mut text: [c_char; ERROR_TEXT_BYTES] = [0; ERROR_TEXT_BYTES];
        // If it refuses the timeout, its longer default holds, and the poll below ends first.
        c::rd_kafka_AdminOptions_set_request_timeout(
            options.0.as_ptr(),
            wait_ms,
            text.as_mut_ptr(),
            text.len(),
        );
        let (topics, options) = (topics.0.as_ptr(), options.0.as_ptr());
        c::rd_kafka_DescribeTopics(client, topics, options, queue.0.as_ptr());
        let event = c::rd_kafka_queue_poll(queue.0.as_ptr(), wait_ms);
        let Some(event) = NonNull::new(event) else {
            return Err((RDKafkaErrorCode::OperationTimedOut, String::new()));
        };
        let event = OwnedHandle(event, c::rd_kafka_event_destroy);
        let code = RDKafkaErrorCode::from(c::rd_kafka_event_error(event.0.as_ptr()));
        if code != RDKafkaErrorCode::NoError {
            return Err((code, text_of(c::rd_kafka_event_error_string(event.0.as_ptr()))));
        }
        let result = c::rd_kafka_event_DescribeTopics_result(event.0.as_ptr());
        let mut count = 0;
        let described = c::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        if described.is_null() {
            return Err(failed());
        }
        let described = std::slice::from_raw_parts(described, count);
        Ok(described
            .iter()
            .map(|topic| (text_of(c::rd_kafka_TopicDescription_name(*topic)), id_of(*topic)))
            .collect())
    }
}

/// The id of `topic`; blocks at most for `wait`.
///
/// # Errors
/// The error of Kafka or librdkafka; `UnknownTopicOrPartition`: there is no such topic.
pub(crate) fn topic_id<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    wait: Duration,
) -> Result<TopicId, Failure> {
    let id = topic_ids(client, &[topic.to_owned()], wait)?.remove(topic);
    id.unwrap_or_else(|| Err((RDKafkaErrorCode::UnknownTopicOrPartition, String::new())))
}

/// The offsets of `place` (the beginning or the end) of `partitions` of `topic`, at least one, in one request
/// to each leader; blocks at most for `wait`.
///
/// # Errors
/// The request failed, or one of the partitions has no answer.
pub(crate) fn offsets_at<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    partitions: &[i32],
    place: Offset,
    wait: Duration,
) -> Result<BTreeMap<i32, i64>, Failure> {
    let coded = |code| (code, String::new());
    let unknown = || coded(RDKafkaErrorCode::UnknownPartition);
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition_offset(topic, *partition, place).map_err(|_| unknown())?;
    }
    // The protocol has the beginning and the end as times before all others.
    // SAFETY: client and list live, and the list is ours alone; the call returns after its last use of it.
    let code = unsafe {
        c::rd_kafka_offsets_for_times(client.native_ptr(), list.ptr(), milliseconds(wait))
    };
    let code = RDKafkaErrorCode::from(code);
    if code != RDKafkaErrorCode::NoError {
        return Err(coded(code));
    }
    let found = list.elements().into_iter().map(|one| {
        let failed = |error: rdkafka::error::KafkaError| error.rdkafka_error_code();
        match (one.error().map_err(failed), one.offset()) {
            (Ok(()), Offset::Offset(offset)) => Ok((one.partition(), offset)),
            (Err(Some(code)), _) => Err(coded(code)),
            _ => Err(unknown()),
        }
    });
    found.collect()
}

/// # Safety
/// `topic` is a description of librdkafka's, which lives.
unsafe fn id_of(topic: *const c::rd_kafka_TopicDescription_t) -> Result<TopicId, Failure> {
    // SAFETY: the caller guarantees the description; error and id live as long, texts and numbers are copied.
    unsafe {
        let error = c::rd_kafka_TopicDescription_error(topic);
        if !error.is_null() {
            let code = RDKafkaErrorCode::from(c::rd_kafka_error_code(error));
            if code != RDKafkaErrorCode::NoError {
                return Err((code, text_of(c::rd_kafka_error_string(error))));
            }
        }
        let id = c::rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return Err((RDKafkaErrorCode::Fail, "librdkafka returned no id".to_owned()));
        }
        Ok(TopicId(Uuid::from_u64_pair(
            c::rd_kafka_Uuid_most_significant_bits(id).cast_unsigned(),
            c::rd_kafka_Uuid_least_significant_bits(id).cast_unsigned(),
        )))
    }
}

fn milliseconds(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX).max(1)
}
