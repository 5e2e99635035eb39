//! The records of a consumer, batch by batch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use headwater_event::{Cursor, LeaderEpoch, Offset, Partition, TopicId};
use headwater_log::{Batch, Bounds, ReadError, Record, StoredRecord};
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::Notify;

use super::ReaderDependencies;
use super::broker_loss::BrokerLoss;
use super::position::{PositionCommits, ReaderPosition};
use crate::client::{ClientContext, describe};
use crate::native::{self, Event, Events, NativeRecord, offset};
use crate::settings::KafkaSettings;
use crate::{HEADER, TRACEPARENT};

/// The most records of one batch.
const BATCH_RECORDS_MAX: usize = 512;

/// A batch ends with the record that reaches this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The leader epoch of a cursor at which nothing was read: nothing before it can be replaced.
pub(crate) const NO_EPOCH: LeaderEpoch = LeaderEpoch(u32::MAX);

/// How far a partition is read.
struct Progress {
    cursor: Cursor,
    /// The time of the last record: the log's time does not go back, though a broker's may.
    time_ms: i64,
}

/// The consumer, and how far its partitions are read.
pub(super) struct RecordStream {
    events: Events<ClientContext>,
    /// The event behind the last returned batch.
    pending: Option<Event>,
    context: ClientContext,
    settings: Arc<KafkaSettings>,
    topic: TopicId,
    partitions: BTreeMap<Partition, Progress>,
    position: Arc<ReaderPosition>,
    commits: PositionCommits,
    loss: BrokerLoss,
}

impl RecordStream {
    /// Opens a consumer at `cursors`. It notifies `wake` when an empty queue gets an event.
    pub(super) fn open(
        dependencies: &ReaderDependencies,
        topic: TopicId,
        cursors: &[(Cursor, Bounds)],
        position: Arc<ReaderPosition>,
        wake: Arc<Notify>,
    ) -> Result<Self, ReadError> {
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let ReaderDependencies { settings, counts, .. } = dependencies;
        let config = settings.consumer_config().map_err(|error| unavailable(error.to_string()))?;
        let context = ClientContext::new(counts.clone());
        let mut consumer = BaseConsumer::from_config_and_context(&config, context.clone())
            .map_err(|error: KafkaError| unavailable(error.to_string()))?;
        consumer.set_nonempty_callback(move || wake.notify_one());
        let assignment = assignment(&settings.topic, cursors)
            .map_err(|error| unavailable(format!("Kafka's client refuses a cursor: {error}")))?;
        consumer.assign(&assignment).map_err(|error| unavailable(error.to_string()))?;
        let events = Events::new(consumer, &[HEADER, TRACEPARENT])
            .ok_or_else(|| unavailable("Kafka's client has no queue".to_owned()))?;
        let progress = |(cursor, _): &(Cursor, Bounds)| {
            (cursor.partition, Progress { cursor: *cursor, time_ms: i64::MIN })
        };
        Ok(Self {
            events,
            pending: None,
            context,
            settings: settings.clone(),
            topic,
            partitions: cursors.iter().map(progress).collect(),
            position,
            commits: PositionCommits::new(Instant::now()),
            loss: BrokerLoss::new(),
        })
    }

    /// Returns the next records of one partition, if there are any. Does not wait, unless a
    /// partition lost its position: then it asks the cluster why.
    pub(super) fn poll(&mut self) -> Result<Option<Batch>, ReadError> {
        self.commit_position();
        let mut records: Vec<StoredRecord> = Vec::new();
        let mut bytes = 0;
        while records.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
            let Some(event) = self.pending.take().or_else(|| self.events.poll()) else { break };
            if !records.is_empty() && belongs_to_next(&records, &event) {
                self.pending = Some(event);
                break;
            }
            match event {
                Event::Record(record) => {
                    if let Some(recorded) = self.take(record)? {
                        bytes += recorded.record.bytes();
                        records.push(recorded);
                    }
                }
                Event::End { partition, offset: end } => {
                    if let Some(batch) = self.end(partition, offset(end)) {
                        return Ok(Some(batch));
                    }
                }
                Event::Failed { code, partition, text } => self.failed(code, partition, &text)?,
                Event::Committed { code } => self.committed(code),
                Event::Other => {}
            }
        }
        Ok(self.batch(records))
    }

    /// Adds the bootstrap brokers again to a client that has lost all brokers.
    pub(super) fn check_brokers(&mut self) {
        let client = self.events.consumer().client();
        if self.loss.is_addition_due(Instant::now(), native::learned_brokers(client)) {
            let KafkaSettings { topic, brokers, .. } = &*self.settings;
            tracing::info!(
                topic,
                brokers,
                "the reader's client knows no broker; its bootstrap brokers are added again"
            );
            native::add_brokers(client, brokers);
        }
    }

    /// Moves the cursor past `record`, unless it was read before.
    fn take(&mut self, record: NativeRecord) -> Result<Option<StoredRecord>, ReadError> {
        let Some(partition) = partition_of(record.partition) else { return Ok(None) };
        let Some(progress) = self.partitions.get_mut(&partition) else { return Ok(None) };
        let at = offset(record.offset);
        if at < progress.cursor.next {
            return Ok(None);
        }
        let epoch = u32::try_from(record.leader_epoch).map_or(NO_EPOCH, LeaderEpoch);
        let before = progress.cursor.leader_epoch;
        if epoch != NO_EPOCH && before != NO_EPOCH && epoch < before {
            // Epochs grow within one life of a log, and with one history of a partition.
            let text = format!("broker end offset is {at}; truncation detected by its epoch");
            return Err(self.position_lost(Some(record.partition), &text));
        }
        progress.cursor.next = at.next();
        progress.cursor.leader_epoch = epoch;
        progress.time_ms = progress.time_ms.max(record.time_ms);
        let time_ms = progress.time_ms;
        Ok(Some(recorded(record, partition, at, epoch, time_ms)))
    }

    /// Handles that everything below `end` is read: if the last records were compacted away, the
    /// cursor moves past them.
    fn end(&mut self, partition: i32, end: Offset) -> Option<Batch> {
        let progress =
            partition_of(partition).and_then(|partition| self.partitions.get_mut(&partition));
        let progress = progress.filter(|progress| progress.cursor.next < end)?;
        progress.cursor.next = end;
        // The compacted records may have had a later epoch than the last one read.
        progress.cursor.leader_epoch = NO_EPOCH;
        Some(Batch { records: Vec::new(), cursor: progress.cursor, high: end })
    }

    /// Commits the reader's position at times, and does not wait for the answer.
    fn commit_position(&mut self) {
        if !self.settings.commit_positions {
            return;
        }
        let Some(due) = self.commits.due(Instant::now(), &self.position) else { return };
        let mut list = TopicPartitionList::new();
        for (partition, next) in due {
            let partition = i32::try_from(partition.0).unwrap_or(i32::MAX);
            let next = rdkafka::Offset::Offset(i64::try_from(next.0).unwrap_or(i64::MAX));
            // A position that the client refuses is not shown.
            let _ = list.add_partition_offset(&self.settings.topic, partition, next);
        }
        if let Err(error) = self.events.consumer().commit(&list, CommitMode::Async) {
            tracing::debug!(%error, "positions were not committed");
            self.commits.forget();
        }
    }

    fn committed(&mut self, code: RDKafkaErrorCode) {
        use RDKafkaErrorCode as Code;
        if code == Code::NoError {
            return;
        }
        if let Some(counts) = &self.context.counts {
            counts.commit_failed();
        }
        self.commits.forget();
        if matches!(code, Code::GroupAuthorizationFailed | Code::TopicAuthorizationFailed) {
            self.denied();
        } else {
            tracing::debug!(error = %code, "positions were not committed");
        }
    }

    /// Stops committing positions, which are for display only.
    fn denied(&mut self) {
        if self.commits.deny() {
            let group = &self.settings.client_id;
            tracing::warn!(
                group,
                "Kafka denies this client the right to read as this group: Kafka's tools do not show \
                 its lag; nothing else is affected"
            );
        }
    }

    fn failed(
        &mut self,
        code: RDKafkaErrorCode,
        partition: Option<i32>,
        text: &str,
    ) -> Result<(), ReadError> {
        use RDKafkaErrorCode as Code;
        self.context.count(code);
        let topic = &self.settings.topic;
        match code {
            Code::GroupAuthorizationFailed => {
                self.denied();
                Ok(())
            }
            Code::AutoOffsetReset => Err(self.position_lost(partition, text)),
            Code::TopicAuthorizationFailed
            | Code::SaslAuthenticationFailed
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::Fatal => Err(ReadError::Unavailable {
                reason: self.context.last_error.explain(describe(code, topic)),
            }),
            // An absent broker returns, or the watch reports that none does.
            _ => {
                tracing::debug!(topic, error = %code, "{text}");
                self.context.last_error.set(text);
                Ok(())
            }
        }
    }

    /// Returns why a partition cannot be read on from its position.
    fn position_lost(&self, partition: Option<i32>, text: &str) -> ReadError {
        let number = partition.unwrap_or_default();
        let progress = partition_of(number).and_then(|partition| self.partitions.get(&partition));
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let Some(progress) = progress else { return unavailable(text.to_owned()) };
        let Cursor { partition, next: wanted, .. } = progress.cursor;
        let (topic, wait) = (&self.settings.topic, self.settings.request_timeout);
        // A topic that was created again is shorter than the former one; report that, which is the cause.
        if let Ok(is) = native::topic_id(self.events.consumer().client(), topic, wait)
            && is != self.topic
        {
            return ReadError::Recreated { was: self.topic, is };
        }
        if let Some(diverged) = diverged(text) {
            return ReadError::Truncated { partition, diverged: diverged.min(wanted) };
        }
        match self.events.consumer().fetch_watermarks(topic, number, wait) {
            Ok((low, _)) if offset(low) > wanted => {
                ReadError::Expired { partition, wanted, low: offset(low) }
            }
            Ok((_, high)) if offset(high) < wanted => {
                ReadError::Truncated { partition, diverged: offset(high) }
            }
            Ok(_) => unavailable(text.to_owned()),
            Err(error) => unavailable(format!("{text}; {error}")),
        }
    }

    /// Returns `records`, all of one partition, as a batch with its cursor.
    fn batch(&self, records: Vec<StoredRecord>) -> Option<Batch> {
        let partition = records.first()?.partition;
        let cursor = self.partitions.get(&partition)?.cursor;
        let number = i32::try_from(partition.0).unwrap_or(i32::MAX);
        let known = native::known_high(self.events.consumer(), &self.settings.topic, number);
        let high = known.map_or(cursor.next, |high| offset(high).max(cursor.next));
        Some(Batch { records, cursor, high })
    }
}

/// Whether `event` belongs to a batch after `records`.
fn belongs_to_next(records: &[StoredRecord], event: &Event) -> bool {
    match event {
        Event::Record(record) => {
            records.first().map(|first| first.partition) != partition_of(record.partition)
        }
        Event::End { .. } | Event::Failed { .. } => true,
        Event::Committed { .. } | Event::Other => false,
    }
}

fn assignment(topic: &str, cursors: &[(Cursor, Bounds)]) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    for (cursor, bounds) in cursors {
        let partition = i32::try_from(cursor.partition.0).unwrap_or(i32::MAX);
        let next = rdkafka::Offset::Offset(i64::try_from(cursor.next.0).unwrap_or(i64::MAX));
        list.add_partition_offset(topic, partition, next)?;
        let epoch = i32::try_from(cursor.leader_epoch.0).ok();
        // At the start of the log there is no earlier record that could be replaced.
        if let Some(epoch) = epoch.filter(|_| cursor.next > bounds.low) {
            native::set_leader_epoch(&list, topic, partition, epoch);
        }
    }
    Ok(list)
}

fn recorded(
    record: NativeRecord,
    partition: Partition,
    at: Offset,
    leader_epoch: LeaderEpoch,
    time_ms: i64,
) -> StoredRecord {
    let mut headers = record.headers.into_iter();
    let header = headers.next().flatten().unwrap_or_default();
    let traceparent = headers.next().flatten();
    // Bytes that are no text are no trace context.
    let traceparent = traceparent.and_then(|bytes: Bytes| String::from_utf8(bytes.into()).ok());
    let record = Record { key: record.key, value: record.value, header, traceparent };
    StoredRecord { partition, offset: at, leader_epoch, time_ms, record }
}

fn partition_of(partition: i32) -> Option<Partition> {
    u32::try_from(partition).ok().map(Partition)
}

/// Parses the end of the log for the position's epoch from librdkafka's text for a truncation
/// (KIP-320). librdkafka offers no other way.
fn diverged(text: &str) -> Option<Offset> {
    let is_truncated = text.contains("truncation detected") || text.contains("No epoch found");
    if !is_truncated {
        return None;
    }
    let (_, rest) = text.split_once("broker end offset is ")?;
    let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
    Some(Offset(digits.parse().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_replaced_tail_is_parsed_from_librdkafkas_text() {
        let text = "Partition log truncation detected at offset 17 (leader epoch 2): broker end \
                    offset is 12 (offset leader epoch 2). Reset to INVALID.: Local: Partition log \
                    truncation detected (broker 1)";
        assert_eq!(diverged(text), Some(Offset(12)));
        let text = "No epoch found less or equal to offset 5 (leader epoch 0): broker end offset \
                    is -1 (offset leader epoch -1). Reset using configured policy.";
        assert_eq!(diverged(text), Some(Offset(0)));
        assert_eq!(diverged("fetch failed due to requested offset not available"), None);
    }
}
