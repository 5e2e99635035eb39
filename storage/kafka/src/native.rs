//! The calls of librdkafka that rdkafka does not offer. All unsafe code is here.
//!
//! - The ids of several topics in one request. An id changes when its topic is deleted and created again.
//! - The first or the next offsets of several partitions in one request to each leader.
//! - Leader epochs of records and positions (KIP-320), which reveal a replaced tail.
//! - A consumer's raw events: with the offset at which a partition ended, and with headers whose
//!   names need not be text.
//! - A notification when a client has an event, so that its owner need not poll.
//! - The brokers that a client knows, and the addition of others.
#![allow(unsafe_code, reason = "calls of a C library; each says why it is sound")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{self, NonNull};
use std::thread::Thread;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{Offset, TopicId};
use rdkafka::TopicPartitionList;
use rdkafka::bindings as c;
use rdkafka::client::{Client, ClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use uuid::Uuid;

/// Room for librdkafka's text about a setting that it refuses.
const ERROR_TEXT_BYTES: usize = 512;

/// Kafka's or librdkafka's code of an error, and its text if there is one.
pub(crate) type Failure = (RDKafkaErrorCode, String);

/// The ids of topics by their names, or why one has none.
pub(crate) type TopicIds = BTreeMap<String, Result<TopicId, Failure>>;

/// An event of a consumer's queue.
#[derive(Debug)]
pub(crate) enum Event {
    /// A record.
    Record(NativeRecord),
    /// A partition has no record from `offset` on yet.
    End {
        /// The partition.
        partition: i32,
        /// The first offset without a record.
        offset: i64,
    },
    /// A commit of positions ended.
    Committed {
        /// Its outcome.
        code: RDKafkaErrorCode,
    },
    /// An error of one partition, or of the client as a whole.
    Failed {
        /// Kafka's or librdkafka's code.
        code: RDKafkaErrorCode,
        /// The partition, if it is of one.
        partition: Option<i32>,
        /// librdkafka's text.
        text: String,
    },
    /// Any other event: more may follow.
    Other,
}

/// A record of librdkafka's, copied.
#[derive(Debug)]
pub(crate) struct NativeRecord {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) time_ms: i64,
    pub(crate) key: Bytes,
    pub(crate) value: Option<Bytes>,
    /// The last header of each wanted name, in the order of the names.
    pub(crate) headers: Vec<Option<Bytes>>,
}

/// The events of a consumer. Only their owner polls it.
pub(crate) struct Events<C: ConsumerContext> {
    queue: NonNull<c::rd_kafka_queue_t>,
    /// Outlives the queue: see `drop`.
    consumer: BaseConsumer<C>,
    wanted: Vec<CString>,
}

// SAFETY: librdkafka's handles may be used from any thread, and the queue is polled by the owner
// of this value alone.
unsafe impl<C: ConsumerContext> Send for Events<C> {}

impl<C: ConsumerContext> Events<C> {
    /// The events of `consumer`, with the headers of these names.
    pub(crate) fn new(consumer: BaseConsumer<C>, wanted: &[&str]) -> Option<Self> {
        // SAFETY: the client lives; the call gives a reference that `drop` gives back, or null.
        let queue = unsafe { c::rd_kafka_queue_get_consumer(consumer.client().native_ptr()) };
        let wanted = wanted.iter().filter_map(|name| CString::new(*name).ok()).collect();
        Some(Self { queue: NonNull::new(queue)?, consumer, wanted })
    }

    pub(crate) fn consumer(&self) -> &BaseConsumer<C> {
        &self.consumer
    }

    /// Returns the next event, if there is one.
    pub(crate) fn poll(&self) -> Option<Event> {
        // SAFETY: the queue lives as long as `self`.
        let event = unsafe { c::rd_kafka_queue_poll(self.queue.as_ptr(), 0) };
        let event = OwnedHandle(NonNull::new(event)?, c::rd_kafka_event_destroy);
        // SAFETY: the event lives until the end of this function, and everything that is read of
        // it is copied before.
        Some(unsafe { self.read(event.0.as_ptr()) }.unwrap_or(Event::Other))
    }

    /// Reads an event, if it is of a kind in use.
    unsafe fn read(&self, event: *mut c::rd_kafka_event_t) -> Option<Event> {
        // SAFETY: the caller's event lives.
        match unsafe { c::rd_kafka_event_type(event) } {
            c::RD_KAFKA_EVENT_FETCH => {
                // SAFETY: a consumer's fetch event has one message, which lives as the event does.
                let message = unsafe { c::rd_kafka_event_message_next(event).as_ref() }?;
                // SAFETY: the same message.
                Some(Event::Record(unsafe { self.record(message) }))
            }
            c::RD_KAFKA_EVENT_ERROR => {
                // SAFETY: the caller's event lives; the text is copied.
                let (code, text, place) = unsafe {
                    let code = RDKafkaErrorCode::from(c::rd_kafka_event_error(event));
                    let text = text_of(c::rd_kafka_event_error_string(event));
                    (code, text, c::rd_kafka_event_topic_partition(event))
                };
                let place = NonNull::new(place)
                    .map(|place| OwnedHandle(place, c::rd_kafka_topic_partition_destroy));
                // SAFETY: not null, and ours until it is dropped.
                let place = place.map(|place| unsafe {
                    let place = place.0.as_ref();
                    (place.partition, place.offset)
                });
                match (code, place) {
                    (RDKafkaErrorCode::PartitionEOF, Some((partition, offset))) => {
                        Some(Event::End { partition, offset })
                    }
                    _ => {
                        let partition = place.map(|(partition, _)| partition);
                        Some(Event::Failed { code, partition, text })
                    }
                }
            }
            c::RD_KAFKA_EVENT_OFFSET_COMMIT => {
                // SAFETY: the caller's event lives, and a list that it gives lives as it does.
                let code = unsafe {
                    let whole = RDKafkaErrorCode::from(c::rd_kafka_event_error(event));
                    let list = c::rd_kafka_event_topic_partition_list(event).as_ref();
                    let first = list.filter(|list| list.cnt > 0).map(|list| (*list.elems).err);
                    match first.map(RDKafkaErrorCode::from) {
                        Some(first) if whole == RDKafkaErrorCode::NoError => first,
                        _ => whole,
                    }
                };
                Some(Event::Committed { code })
            }
            c::RD_KAFKA_EVENT_LOG => {
                let (mut facility, mut words, mut level) = (ptr::null(), ptr::null(), 0);
                // SAFETY: the caller's event lives, and the places are ours; the text is copied.
                let words = unsafe {
                    c::rd_kafka_event_log(event, &mut facility, &mut words, &mut level);
                    text_of(words)
                };
                tracing::debug!(target: "librdkafka", level, "{words}");
                None
            }
            _ => None,
        }
    }

    unsafe fn record(&self, message: &c::rd_kafka_message_t) -> NativeRecord {
        // SAFETY: the message lives; key and payload are of the lengths it says, and copied.
        unsafe {
            let mut kind = c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
            let mut headers = ptr::null_mut();
            // Fails where there are none.
            c::rd_kafka_message_headers(message, &mut headers);
            NativeRecord {
                partition: message.partition,
                offset: message.offset,
                leader_epoch: c::rd_kafka_message_leader_epoch(message),
                time_ms: c::rd_kafka_message_timestamp(message, &mut kind),
                key: bytes_of(message.key, message.key_len).unwrap_or_default(),
                value: bytes_of(message.payload, message.len),
                headers: self.wanted.iter().map(|name| header(headers, name)).collect(),
            }
        }
    }
}

impl<C: ConsumerContext> Drop for Events<C> {
    fn drop(&mut self) {
        // SAFETY: the reference that `new` got; the client, a field, is dropped after this.
        unsafe { c::rd_kafka_queue_destroy(self.queue.as_ptr()) };
    }
}

/// The queue of a client that is no consumer: outcomes of records, and errors.
pub(crate) struct MainQueue {
    queue: NonNull<c::rd_kafka_queue_t>,
    /// The thread that librdkafka's threads wake; they have its address.
    sleeper: Option<Box<Thread>>,
}

// SAFETY: librdkafka's queues may be used from any thread, and the thread that they wake is only
// read.
unsafe impl Send for MainQueue {}

impl MainQueue {
    /// The queue of `client`, which must outlive it.
    pub(crate) fn of<C: ClientContext>(client: &Client<C>) -> Option<Self> {
        // SAFETY: the client lives; the call gives a reference that `drop` gives back, or null.
        let queue = unsafe { c::rd_kafka_queue_get_main(client.native_ptr()) };
        Some(Self { queue: NonNull::new(queue)?, sleeper: None })
    }

    /// How many events wait in it.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the queue lives as long as `self`.
        unsafe { c::rd_kafka_queue_length(self.queue.as_ptr()) }
    }

    /// Unparks `sleeper` now, and whenever the empty queue gets an event.
    pub(crate) fn wake(&mut self, sleeper: Thread) {
        unsafe extern "C" fn ring(_: *mut c::rd_kafka_t, sleeper: *mut c_void) {
            // SAFETY: the address that `wake` set; the thread lives until `drop` has removed the
            // callback.
            unsafe { &*sleeper.cast::<Thread>() }.unpark();
        }
        // A former sleeper is woken until the new one is set.
        let before = self.sleeper.replace(Box::new(sleeper));
        let Some(sleeper) = self.sleeper.as_deref() else { return };
        let address = ptr::from_ref::<Thread>(sleeper).cast_mut().cast();
        // SAFETY: the queue lives; of the address see `ring`, which only reads.
        unsafe { c::rd_kafka_queue_cb_event_enable(self.queue.as_ptr(), Some(ring), address) };
        sleeper.unpark();
        drop(before);
    }
}

impl Drop for MainQueue {
    fn drop(&mut self) {
        // SAFETY: the reference that `of` got, of a client that still lives. Under the queue's lock
        // the callback is taken back: no thread calls it after this call returns.
        unsafe {
            c::rd_kafka_queue_cb_event_enable(self.queue.as_ptr(), None, ptr::null_mut());
            c::rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}

/// Sets the leader epoch of a partition in `list`: the position is then validated against the
/// leader before anything is fetched from it.
pub(crate) fn set_leader_epoch(list: &TopicPartitionList, topic: &str, partition: i32, epoch: i32) {
    let Ok(topic) = CString::new(topic) else { return };
    // SAFETY: the list lives and is ours alone; the place found lies in it.
    unsafe {
        let place = c::rd_kafka_topic_partition_list_find(list.ptr(), topic.as_ptr(), partition);
        if !place.is_null() {
            c::rd_kafka_topic_partition_set_leader_epoch(place, epoch);
        }
    }
}

/// The first unwritten offset, as of the last response to a fetch.
pub(crate) fn known_high<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
) -> Option<i64> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    let client = consumer.client().native_ptr();
    // SAFETY: client and places live; the call only reads what the client has in memory.
    let failed = unsafe {
        c::rd_kafka_get_watermark_offsets(client, topic.as_ptr(), partition, &mut low, &mut high)
    };
    let is_known = failed == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0;
    is_known.then_some(high)
}

/// How many brokers `client` has learned from the cluster. The bootstrap brokers, which its
/// settings name, do not count.
pub(crate) fn learned_brokers<C: ClientContext>(client: &Client<C>) -> usize {
    let client = client.native_ptr();
    let mut count = 0;
    // SAFETY: client and place live; the list is ours, and freed without being read.
    unsafe {
        let ids = c::rd_kafka_brokers_learned_ids(client, &mut count);
        c::rd_kafka_mem_free(client, ids.cast());
    }
    count
}

/// Adds `brokers`, `host:port` separated by commas, to those that `client` may connect to. It skips one
/// that the client has by the same name.
pub(crate) fn add_brokers<C: ClientContext>(client: &Client<C>, brokers: &str) {
    let Ok(brokers) = CString::new(brokers) else { return };
    // SAFETY: client and text live; the text is copied. Any thread may call this.
    unsafe { c::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
}

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
    let texts = topics.iter().map(|name| CString::new(name.as_str()));
    let texts = texts.collect::<Result<Vec<_>, _>>().map_err(|_| no_answer())?;
    let mut names: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    let (wait_ms, client) = (milliseconds(wait), client.native_ptr());
    // SAFETY: every handle is checked for null, freed once by its guard in the reverse order of
    // their making, and used only while its guard lives; texts and numbers are copied. The list has null
    // for a topic that the answer lacks.
    unsafe {
        let queue = NonNull::new(c::rd_kafka_queue_new(client)).ok_or_else(no_answer)?;
        let queue = OwnedHandle(queue, c::rd_kafka_queue_destroy);
        let topics = c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let topics = NonNull::new(topics).ok_or_else(no_answer)?;
        let topics = OwnedHandle(topics, c::rd_kafka_TopicCollection_destroy);
        let operation = c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options = c::rd_kafka_AdminOptions_new(client, operation);
        let options = NonNull::new(options).ok_or_else(no_answer)?;
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
            return Err(coded(RDKafkaErrorCode::OperationTimedOut));
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
            return Err(no_answer());
        }
        let described = std::slice::from_raw_parts(described, count);
        Ok(described
            .iter()
            .filter(|topic| !topic.is_null())
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
    id.unwrap_or_else(|| Err(no_answer()))
}

/// The offsets of `place` (the beginning or the end) of `partitions` of `topic`, at least one, in one request
/// to each leader; blocks at most for `wait`. A partition that has no leader in the client's metadata has the error
/// `LeaderNotAvailable`, and delays no other.
///
/// # Errors
/// The request as a whole failed: a leader did not answer, or refused, or no partition has a leader.
pub(crate) fn offsets_at<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    partitions: &[i32],
    place: rdkafka::Offset,
    wait: Duration,
) -> Result<BTreeMap<i32, Result<i64, Failure>>, Failure> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition_offset(topic, *partition, place).map_err(|_| no_answer())?;
    }
    // ListOffsets takes the time -2 for the beginning and -1 for the end. librdkafka's offsets have the same numbers.
    // SAFETY: client and list live, and the list is ours alone; the call returns after its last use of it.
    let code = unsafe {
        c::rd_kafka_offsets_for_times(client.native_ptr(), list.ptr(), milliseconds(wait))
    };
    let code = RDKafkaErrorCode::from(code);
    if code != RDKafkaErrorCode::NoError {
        return Err(coded(code));
    }
    let found = list.elements().into_iter().map(|one| {
        let offset = match (one.error(), one.offset()) {
            (Ok(()), rdkafka::Offset::Offset(offset)) => Ok(offset),
            (Ok(()), _) => Err(no_answer()),
            (Err(error), _) => Err(plain(error)),
        };
        (one.partition(), offset)
    });
    Ok(found.collect())
}

/// The failure of an error of rdkafka's.
pub(crate) fn plain(error: KafkaError) -> Failure {
    match error.rdkafka_error_code() {
        Some(code) => coded(code),
        None => (RDKafkaErrorCode::Fail, error.to_string()),
    }
}

/// The failure of a code without a text.
pub(crate) fn coded(code: RDKafkaErrorCode) -> Failure {
    (code, String::new())
}

/// librdkafka returned less than it promises.
pub(crate) fn no_answer() -> Failure {
    (RDKafkaErrorCode::Fail, "librdkafka returned no answer".to_owned())
}

/// An offset of librdkafka's that is known to be one.
pub(crate) fn offset(offset: i64) -> Offset {
    Offset(u64::try_from(offset).unwrap_or_default())
}

fn milliseconds(wait: Duration) -> i32 {
    i32::try_from(wait.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// A handle, and the function that frees it.
struct OwnedHandle<T>(NonNull<T>, unsafe extern "C" fn(*mut T));

impl<T> Drop for OwnedHandle<T> {
    fn drop(&mut self) {
        // SAFETY: the handle was made by the library, and is freed only here.
        unsafe { (self.1)(self.0.as_ptr()) };
    }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller guarantees a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
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

/// # Safety
/// `start` is null or the first of `len` bytes.
unsafe fn bytes_of(start: *const c_void, len: usize) -> Option<Bytes> {
    if start.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller guarantees the length.
    Some(Bytes::copy_from_slice(unsafe { std::slice::from_raw_parts(start.cast(), len) }))
}

/// # Safety
/// `headers` is null or a message's headers.
unsafe fn header(headers: *const c::rd_kafka_headers_t, name: &CStr) -> Option<Bytes> {
    if headers.is_null() {
        return None;
    }
    let (mut value, mut len) = (ptr::null(), 0);
    // SAFETY: headers and places live; the value found lives as they do, and is copied.
    unsafe {
        let code = c::rd_kafka_header_get_last(headers, name.as_ptr(), &mut value, &mut len);
        let found = code == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        if found { bytes_of(value, len) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use rdkafka::config::ClientConfig;
    use rdkafka::mocking::MockCluster;

    use super::*;

    /// How long a client on loopback may take to connect and to learn the brokers: milliseconds, on a
    /// machine that is not busy.
    const LEARNED_WITHIN: Duration = Duration::from_secs(30);

    #[test]
    fn a_client_that_knows_no_broker_learns_the_cluster_from_one_that_is_added() {
        let cluster = MockCluster::new(3).expect("a cluster");
        let bootstrap = cluster.bootstrap_servers();
        // As a client that has lost all brokers, it has none to ask.
        let client: BaseConsumer =
            ClientConfig::new().set("group.id", "g").create().expect("a client");
        assert_eq!(learned_brokers(client.client()), 0);
        let (one, _) = bootstrap.split_once(',').expect("three brokers");
        add_brokers(client.client(), one);
        let deadline = Instant::now() + LEARNED_WITHIN;
        while learned_brokers(client.client()) < 3 {
            assert!(Instant::now() < deadline, "{} brokers", learned_brokers(client.client()));
            thread::sleep(Duration::from_millis(10));
        }
    }
}
