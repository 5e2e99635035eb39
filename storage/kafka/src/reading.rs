//! Reading: a consumer whose queue is looked into by whoever waits for a batch, and a watch over
//! whether the topic is still the one that it reads.
//!
//! librdkafka fetches ahead on threads of its own, as far as its settings allow. Whoever reads is
//! woken by them and takes the records itself: on the way to a node no further thread is to be woken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_event::{Cursor, LeaderEpoch, Offset, Partition, TopicId};
use headwater_log::{Batch, Bounds, ReadError, Reader, Record, StoredRecord};
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::asking::{Asking, blocking, offset};
use crate::clients::{Context, words};
use crate::metrics::Counts;
use crate::native::{self, Event, Events, NativeRecord};
use crate::positions::{self, Commits, Position, Readers};
use crate::settings::KafkaSettings;
use crate::{HEADER, TRACEPARENT};

/// The most records that one batch gives out.
const BATCH_RECORDS_MAX: usize = 512;

/// A batch ends behind the record that fills it up to this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// How often a reader that nothing comes to looks whether its position is to be committed.
const LOOK: Duration = Duration::from_secs(1);

/// A cursor at which nothing was read has no leader epoch: there is nothing to be replaced.
pub(crate) const NO_EPOCH: LeaderEpoch = LeaderEpoch(u32::MAX);

/// What a reader needs of its log.
#[derive(Clone)]
pub(crate) struct Around {
    pub(crate) settings: Arc<KafkaSettings>,
    pub(crate) asking: Arc<Asking>,
    pub(crate) counts: Option<Arc<Counts>>,
}

/// Reads on from cursors.
pub(crate) struct KafkaReader {
    /// Taken when this is dropped.
    pump: Option<Pump>,
    /// Rung by librdkafka when there is something where there was nothing.
    bell: Arc<Notify>,
    position: Arc<Position>,
    counts: Option<Arc<Counts>>,
    /// The end of the batch given out last: handled once the next one is asked for.
    given: Option<(Partition, Offset)>,
    /// Why nothing is to be read on.
    found: mpsc::Receiver<ReadError>,
    _watch: AbortOnDropHandle<()>,
}

impl KafkaReader {
    /// Opens one. Each cursor is within the bounds beside it.
    pub(crate) fn open(
        around: Around,
        readers: &Arc<Readers>,
        topic: TopicId,
        cursors: &[(Cursor, Bounds)],
    ) -> Result<Self, ReadError> {
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let Around { settings, counts, .. } = &around;
        let config = settings.consumer_config().map_err(|error| unavailable(error.to_string()))?;
        let context = Context::counted(counts.clone());
        let mut consumer = BaseConsumer::from_config_and_context(&config, context.clone())
            .map_err(|error: KafkaError| unavailable(error.to_string()))?;
        let bell = Arc::new(Notify::new());
        let rung = bell.clone();
        consumer.set_nonempty_callback(move || rung.notify_one());
        let assignment = assignment(&settings.topic, cursors)
            .map_err(|error| unavailable(format!("Kafka's client takes no cursor: {error}")))?;
        consumer.assign(&assignment).map_err(|error| unavailable(error.to_string()))?;
        let events = Events::new(consumer, &[HEADER, TRACEPARENT])
            .ok_or_else(|| unavailable("Kafka's client has no queue".to_owned()))?;
        let of = |(cursor, _): &(Cursor, Bounds)| (cursor.partition, Place::at(*cursor));
        let from = cursors.iter().map(|(cursor, _)| (cursor.partition, cursor.next));
        let position = readers.open(from.collect());
        let pump = Some(Pump {
            events,
            held: None,
            context,
            settings: settings.clone(),
            topic,
            places: cursors.iter().map(of).collect(),
            position: position.clone(),
            commits: Commits::new(std::time::Instant::now()),
        });
        if let Some(counts) = counts {
            counts.opened();
        }
        let counts = counts.clone();
        let (finds, found) = mpsc::channel(1);
        let watch = watch(around, topic, position.clone(), finds);
        let _watch = AbortOnDropHandle::new(tokio::spawn(watch));
        Ok(Self { pump, bell, position, counts, given: None, found, _watch })
    }

    async fn wait(&mut self) -> Result<Batch, ReadError> {
        loop {
            // Records that are there at once are no reason to keep others from running.
            tokio::task::consume_budget().await;
            // What the watch found holds whatever else comes: it may be of another topic.
            if let Ok(error) = self.found.try_recv() {
                return Err(error);
            }
            let ended = || ReadError::Unavailable { reason: "the reader has ended".to_owned() };
            if let Some(batch) = self.pump.as_mut().ok_or_else(ended)?.step()? {
                return Ok(batch);
            }
            tokio::select! {
                () = self.bell.notified() => {}
                Some(error) = self.found.recv() => return Err(error),
                () = sleep(LOOK) => {}
            }
        }
    }
}

#[async_trait]
impl Reader for KafkaReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        if let Some((partition, next)) = self.given.take() {
            self.handled(partition, next);
        }
        let next = self.wait().await;
        if let Ok(batch) = &next {
            self.given = Some((batch.cursor.partition, batch.cursor.next));
        }
        match (&self.counts, &next) {
            (Some(counts), Ok(batch)) => counts.given(&batch.records),
            (Some(counts), Err(error)) => counts.read_failed(error),
            (None, _) => {}
        }
        next
    }
}

impl KafkaReader {
    fn handled(&self, partition: Partition, next: Offset) {
        self.position.handled(partition, next);
        if let Some(counts) = self.counts.as_ref().filter(|_| self.position.is_shown()) {
            counts.handled(partition, next);
        }
    }
}

impl Drop for KafkaReader {
    fn drop(&mut self) {
        self.position.close();
        let pump = self.pump.take();
        // To close a consumer takes a moment. Where there is no thread for it, here.
        let _ = thread::Builder::new().name("closes a reader".to_owned()).spawn(|| drop(pump));
    }
}

/// Says so when the topic is another, or has not been heard of for too long.
async fn watch(
    Around { settings, asking, counts }: Around,
    was: TopicId,
    position: Arc<Position>,
    found: mpsc::Sender<ReadError>,
) {
    let mut ticks = interval(settings.topic_check_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let mut counted = heard;
    loop {
        ticks.tick().await;
        if let Some(counts) = &counts
            && counted.elapsed() >= positions::INTERVAL
            && position.is_shown()
        {
            counted = Instant::now();
            look_at_ends(&asking, counts, &position).await;
        }
        let asked = asking.clone();
        let error = match blocking(move || asked.topic_id()).await {
            Ok(is) if is == was => {
                heard = Instant::now();
                continue;
            }
            Ok(is) => ReadError::Recreated { was, is },
            Err(_) if heard.elapsed() < settings.unreachable_after => continue,
            Err(error) => error,
        };
        let _ = found.send(error).await;
        return;
    }
}

/// Asks how far the log goes: a reader that nobody takes from does not learn it.
async fn look_at_ends(asking: &Arc<Asking>, counts: &Arc<Counts>, position: &Arc<Position>) {
    for (partition, next) in position.all() {
        let asking = asking.clone();
        match blocking(move || asking.bounds(partition)).await {
            Ok(bounds) => {
                counts.handled(partition, next);
                counts.ends(partition, bounds.high);
            }
            // The watch says so when it lasts.
            Err(_) => return,
        }
    }
}

/// Where a partition has been read to.
struct Place {
    cursor: Cursor,
    /// The time of the last record: the log's time does not go back, though a broker's may.
    time_ms: i64,
}

impl Place {
    fn at(cursor: Cursor) -> Self {
        Self { cursor, time_ms: i64::MIN }
    }
}

/// The consumer, and where it stands.
struct Pump {
    events: Events<Context>,
    /// What came behind the batch that was given out last.
    held: Option<Event>,
    context: Context,
    settings: Arc<KafkaSettings>,
    topic: TopicId,
    places: BTreeMap<Partition, Place>,
    position: Arc<Position>,
    commits: Commits,
}

impl Pump {
    /// What there is now of one partition, if there is something. Waits for nothing, unless a
    /// partition has lost its place: then it asks what became of it.
    fn step(&mut self) -> Result<Option<Batch>, ReadError> {
        self.show_position();
        let mut records: Vec<StoredRecord> = Vec::new();
        let mut bytes = 0;
        while records.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
            let Some(event) = self.held.take().or_else(|| self.events.poll()) else { break };
            if !records.is_empty() && lies_behind(&records, &event) {
                self.held = Some(event);
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

    /// Moves the cursor past `record`, unless it was read before.
    fn take(&mut self, record: NativeRecord) -> Result<Option<StoredRecord>, ReadError> {
        let Some(partition) = partition_of(record.partition) else { return Ok(None) };
        let Some(place) = self.places.get_mut(&partition) else { return Ok(None) };
        let at = offset(record.offset);
        if at < place.cursor.next {
            return Ok(None);
        }
        let epoch = u32::try_from(record.leader_epoch).map_or(NO_EPOCH, LeaderEpoch);
        let before = place.cursor.leader_epoch;
        if epoch != NO_EPOCH && before != NO_EPOCH && epoch < before {
            // Epochs grow within one life of a log, and with one history of a partition.
            let text = format!("broker end offset is {at}; truncation detected by its epoch");
            return Err(self.lost_its_place(Some(record.partition), &text));
        }
        place.cursor.next = at.next();
        place.cursor.leader_epoch = epoch;
        place.time_ms = place.time_ms.max(record.time_ms);
        let time_ms = place.time_ms;
        Ok(Some(recorded(record, partition, at, epoch, time_ms)))
    }

    /// Everything below `end` was read: where the last records were compacted away, the cursor
    /// moves past them.
    fn end(&mut self, partition: i32, end: Offset) -> Option<Batch> {
        let place = partition_of(partition).and_then(|partition| self.places.get_mut(&partition));
        let place = place.filter(|place| place.cursor.next < end)?;
        place.cursor.next = end;
        // The records that were there may have been of a later epoch than the last one seen.
        place.cursor.leader_epoch = NO_EPOCH;
        Some(Batch { records: Vec::new(), cursor: place.cursor, high: end })
    }

    /// Commits how far the reader has come, now and then, and waits for no answer.
    fn show_position(&mut self) {
        if !self.settings.commit_positions {
            return;
        }
        let Some(due) = self.commits.due(std::time::Instant::now(), &self.position) else { return };
        let mut list = TopicPartitionList::new();
        for (partition, next) in due {
            let partition = i32::try_from(partition.0).unwrap_or(i32::MAX);
            let next = rdkafka::Offset::Offset(i64::try_from(next.0).unwrap_or(i64::MAX));
            // What cannot be said is not shown.
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

    /// Positions are for display: without the right to commit them everything else goes on.
    fn denied(&mut self) {
        if self.commits.deny() {
            let group = &self.settings.client_id;
            tracing::warn!(
                group,
                "Kafka denies this client the right to read as this group: its lag is not shown by \
                 Kafka's tools, and nothing else is missing"
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
            Code::AutoOffsetReset => Err(self.lost_its_place(partition, text)),
            Code::TopicAuthorizationFailed
            | Code::SaslAuthenticationFailed
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::Fatal => Err(ReadError::Unavailable {
                reason: self.context.trouble.explain(words(code, topic)),
            }),
            // A broker that is away comes back, or the watch says that none does.
            _ => {
                tracing::debug!(topic, error = %code, "{text}");
                self.context.trouble.note(text);
                Ok(())
            }
        }
    }

    /// Why a partition cannot be read on from where it was read to.
    fn lost_its_place(&self, partition: Option<i32>, text: &str) -> ReadError {
        let number = partition.unwrap_or_default();
        let place = partition_of(number).and_then(|partition| self.places.get(&partition));
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let Some(place) = place else { return unavailable(text.to_owned()) };
        let Cursor { partition, next: wanted, .. } = place.cursor;
        let (topic, wait) = (&self.settings.topic, self.settings.request_timeout);
        // A topic made again is shorter than the one that was read, and that is the better word.
        if let Ok(is) = native::topic_id(self.events.consumer().client(), topic, wait)
            && TopicId(is) != self.topic
        {
            return ReadError::Recreated { was: self.topic, is: TopicId(is) };
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

    /// What was read, of one partition, and where that stands now.
    fn batch(&self, records: Vec<StoredRecord>) -> Option<Batch> {
        let partition = records.first()?.partition;
        let cursor = self.places.get(&partition)?.cursor;
        let number = i32::try_from(partition.0).unwrap_or(i32::MAX);
        let known = native::known_high(self.events.consumer(), &self.settings.topic, number);
        let high = known.map_or(cursor.next, |high| offset(high).max(cursor.next));
        Some(Batch { records, cursor, high })
    }
}

/// Whether what came is for the time when `records` were given out.
fn lies_behind(records: &[StoredRecord], event: &Event) -> bool {
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
        // At the start there is nothing below that could have been replaced.
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
    // What is no text is nobody's trace.
    let traceparent = traceparent.and_then(|bytes: Bytes| String::from_utf8(bytes.into()).ok());
    let record = Record { key: record.key, value: record.value, header, traceparent };
    StoredRecord { partition, offset: at, leader_epoch, time_ms, record }
}

fn partition_of(partition: i32) -> Option<Partition> {
    u32::try_from(partition).ok().map(Partition)
}

/// Where the log ends for the epoch of the position, in librdkafka's words for a truncation
/// (KIP-320). There is no other way to learn it.
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
    fn the_end_of_a_replaced_tail_is_read_from_librdkafkas_words() {
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
