//! The downstream log while this controller is its writer: appends, reads back, repairs.
//!
//! Each partition goes on by itself. One that is *away* takes nothing: it lags, or an append to it has
//! failed. What is to be appended there is left out, and the owner compares its streams later:
//!
//! ```text
//!            nothing moves for LAG_MAX                  all of it came back
//!  healthy ────────────────────────────► lagging ─────────────────────────────► compare its streams
//!     │ an append fails                     │ an append fails
//!     └────────────────────► suspended ◄────┘
//!                                │ takes a probe
//!                                └──────────────► the epoch ends; claim, and compare everything
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{Applied, BodyAddress, EntryKey, Event, Partition, StreamId, WriterEpoch};
use headwater_follow::{BodyReferences, Step};
use headwater_log::acceptance::RepairKey;
use headwater_log::{
    BegunAppend, Draft, EventPosition, FinishedAppend, Heartbeats, InFlightEntry, Log, Outcome,
    Writer, WriterError, repair,
};
use headwater_store::{Engine, EngineError};
use headwater_view::{Entry, EntrySummary, StreamReader};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::Span;

use super::partition_lags::PartitionLags;
use super::partition_probes::PartitionProbes;
use super::refused_entries::{RecordSize, RefusedEntries};
use super::{LogFollower, Progress, PublishError};
use crate::interest::EntryId;
use crate::metrics::PublisherMetrics;
use crate::spans;

/// Events, and bytes of objects, in one append: half of what an engine takes as one batch.
const APPEND_EVENTS_MAX: usize = 1024;
const APPEND_BYTES_MAX: usize = 4 << 20;

/// Appends to one partition whose outcome is awaited at the same time: enough that the log always has
/// work, few enough that changes meanwhile gather into larger appends.
const APPENDS_IN_FLIGHT_MAX: usize = 4;

/// Entries, and bytes of their objects, that were appended and not read back yet: what the writer
/// keeps in memory. One append may exceed each; a partition that lags keeps what it has besides.
const ENTRIES_IN_FLIGHT_MAX: usize = 4096;
const BYTES_IN_FLIGHT_MAX: usize = 16 << 20;

/// The same bytes of one partition, which it keeps while it lags. If all of a dozen partitions lag, what
/// they have fits into the queue of Kafka's client (64 MiB), so it never delays a partition that does not.
const PARTITION_BYTES_IN_FLIGHT_MAX: usize = 1 << 20;

/// Bodies whose tombstones are in one append: about 100 bytes each. The rest waits for the next round.
const BODIES_RETIRED_AT_ONCE: usize = 1024;

/// The writer, and the fold of everything that it has appended.
///
/// An entry is what the last append under its key made of it, and otherwise what the fold holds, so
/// comparisons do not wait until appends have come back. After an error the log must be claimed
/// again.
pub(super) struct WritableLog {
    follower: LogFollower,
    writer: Writer,
    /// The appends that the writer has begun in each partition, oldest first.
    in_flight: BTreeMap<Partition, VecDeque<AppendInFlight>>,
    lags: PartitionLags,
    probes: PartitionProbes,
    /// Partitions that lag and for which something was left out.
    left_out: BTreeSet<Partition>,
    /// Partitions that have caught up and for which something was left out.
    recovered: Vec<Partition>,
    /// What is too large for the log.
    refused: RefusedEntries,
    /// Whether records may have touched keys that are to be repaired.
    needs_repair: bool,
    engine: Arc<dyn Engine>,
    progress: watch::Sender<Progress>,
    metrics: PublisherMetrics,
}

/// An append whose outcome is not known yet.
struct AppendInFlight {
    events: Vec<Event>,
    began: Instant,
    /// The spans of its events, by their index.
    spans: Vec<(usize, Span)>,
    /// The spans of the changes that end when the log has all of their events.
    _causes: Arc<Vec<Span>>,
}

/// The bytes of the objects of some events. Events in a row that have the same object in memory have
/// it once.
#[derive(Default)]
struct ObjectBytes {
    bytes: usize,
    last: Option<Bytes>,
}

impl WritableLog {
    pub(super) fn new(
        follower: LogFollower,
        writer: Writer,
        probes: PartitionProbes,
        engine: Arc<dyn Engine>,
        progress: watch::Sender<Progress>,
        metrics: PublisherMetrics,
    ) -> Self {
        let mut log = Self {
            follower,
            writer,
            in_flight: BTreeMap::new(),
            lags: PartitionLags::default(),
            probes,
            left_out: BTreeSet::new(),
            recovered: Vec::new(),
            refused: RefusedEntries::default(),
            needs_repair: true,
            engine,
            progress,
            metrics,
        };
        // The claim could not be appended there.
        for (partition, reason) in log.writer.suspended().clone() {
            log.note_suspended(partition, &reason);
        }
        log.show_away();
        // What the epoch before left out is compared again.
        log.publish_left_out();
        log
    }

    /// Leaves the fold and the history of suspensions, for the next epoch of this controller. The
    /// writer ends.
    pub(super) fn into_parts(self) -> (LogFollower, PartitionProbes) {
        (self.follower, self.probes)
    }

    /// How long a superseded record stays readable.
    pub(super) fn replay_window(&self) -> Duration {
        Duration::from_millis(self.writer.description().replay_window_ms)
    }

    /// The writer's epoch.
    pub(super) fn epoch(&self) -> WriterEpoch {
        self.writer.epoch()
    }

    /// The number of partitions.
    pub(super) fn partitions(&self) -> usize {
        self.follower.acceptance().metadata().partitions as usize
    }

    /// The writer's heartbeats, to be appended by another task.
    pub(super) fn heartbeats(&self) -> Heartbeats {
        self.writer.heartbeats()
    }

    /// The entry as it is published, or will be by the appends in flight.
    pub(super) fn entry(
        &self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<Entry>, EngineError> {
        match self.writer.in_flight_entry(stream, key) {
            Some(InFlightEntry::Removed) => Ok(None),
            Some(InFlightEntry::Applied { seq, object_hash, applied }) => {
                let Applied { uid, resource_version, object, .. } = applied;
                Ok(Some(Entry { seq, object_hash, uid, resource_version, object }))
            }
            None => StreamReader::new(&*self.engine).entry(stream, key),
        }
    }

    /// As [`WritableLog::entry`], without the object. The fold keeps the summaries of what it folded in memory.
    pub(super) fn entry_summary(
        &mut self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<EntrySummary>, EngineError> {
        match self.writer.in_flight_entry(stream, key) {
            Some(InFlightEntry::Removed) => Ok(None),
            Some(InFlightEntry::Applied { object_hash, applied, .. }) => {
                Ok(Some(EntrySummary { uid: applied.uid, object_hash, body: None }))
            }
            None => self.follower.state_mut().entry_summary(stream, key),
        }
    }

    /// The streams that are published. Appends in flight may have added some.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.follower.acceptance().streams().map(|(stream, _)| stream.clone()).collect()
    }

    /// The partition of a stream.
    pub(super) fn partition(&self, stream: &StreamId) -> Partition {
        stream.partition(self.follower.acceptance().metadata().partitions)
    }

    /// Whether a partition takes nothing at present: events for it are left out.
    pub(super) fn is_away(&self, partition: Partition) -> bool {
        self.lags.contains(partition) || self.writer.suspended().contains_key(&partition)
    }

    /// Whether a change of `stream` is left out, because its partition is away. Its streams are
    /// compared when it is back.
    pub(super) fn leaves_out(&mut self, stream: &StreamId) -> bool {
        let partition = self.partition(stream);
        let is_away = self.is_away(partition);
        if is_away {
            self.left_out.insert(partition);
        }
        is_away
    }

    /// Whether every partition takes appends, and nothing is left out.
    pub(super) fn is_whole(&self) -> bool {
        self.lags.lagging().len() == 0
            && self.writer.suspended().is_empty()
            && self.recovered.is_empty()
    }

    /// Whether the log has, and this controller has read, the record of this epoch that everything
    /// is in it.
    pub(super) fn is_reconciled(&self) -> bool {
        let acceptance = self.follower.acceptance();
        acceptance.is_reconciled()
            && acceptance.writer().is_some_and(|claim| claim.epoch == self.writer.epoch())
    }

    /// The partitions that have lagged and caught up since the last call. Events for them were left
    /// out.
    pub(super) fn take_recovered(&mut self) -> Vec<Partition> {
        std::mem::take(&mut self.recovered)
    }

    /// Whether every append has finished and was read back, except in partitions that are away.
    pub(super) fn is_idle(&self) -> bool {
        self.lags.is_idle()
    }

    /// Whether another append to any partition may begin without waiting for those in flight.
    pub(super) fn has_room(&self) -> bool {
        self.has_memory() && self.lags.awaited().all(|(partition, _)| self.takes_more(*partition))
    }

    fn has_room_in(&self, partition: Partition) -> bool {
        self.has_memory() && self.takes_more(partition)
    }

    fn takes_more(&self, partition: Partition) -> bool {
        self.writer.pending_of(partition) < APPENDS_IN_FLIGHT_MAX
            && self.writer.in_flight_of(partition).bytes < PARTITION_BYTES_IN_FLIGHT_MAX
    }

    fn has_memory(&self) -> bool {
        let usages = self.lags.awaited().map(|(partition, _)| self.writer.in_flight_of(*partition));
        let (mut entries, mut bytes) = (0, 0);
        for usage in usages {
            entries += usage.keys;
            bytes += usage.bytes;
        }
        entries < ENTRIES_IN_FLIGHT_MAX && bytes < BYTES_IN_FLIGHT_MAX
    }

    /// Begins to append events, in groups of one partition, each as soon as there is room. `causes`
    /// are the spans that end when the log has all of them. An event that is too large for the log is
    /// left out, logged and noted; one for a partition that is away is left out.
    pub(super) async fn append(
        &mut self,
        drafts: Vec<Draft>,
        causes: Vec<Span>,
    ) -> Result<(), PublishError> {
        let causes = Arc::new(causes);
        let mut partitions: BTreeMap<Partition, Vec<Draft>> = BTreeMap::new();
        for draft in drafts {
            partitions.entry(self.partition(&draft.stream)).or_default().push(draft);
        }
        for (partition, drafts) in partitions {
            let mut rest = drafts.into_iter().peekable();
            while rest.peek().is_some() {
                let mut group = Vec::new();
                let mut objects = ObjectBytes::default();
                while let Some(draft) = rest.next_if(|_| {
                    group.len() < APPEND_EVENTS_MAX && objects.bytes < APPEND_BYTES_MAX
                }) {
                    objects.add(&draft.event);
                    group.push(draft);
                }
                self.begin_group(partition, group, causes.clone()).await?;
            }
        }
        Ok(())
    }

    async fn begin_group(
        &mut self,
        partition: Partition,
        mut group: Vec<Draft>,
        causes: Arc<Vec<Span>>,
    ) -> Result<(), PublishError> {
        while !self.is_away(partition) && !self.has_room_in(partition) {
            self.advance().await?;
        }
        if self.is_away(partition) {
            self.left_out.insert(partition);
            return Ok(());
        }
        let partitions = self.follower.acceptance().metadata().partitions;
        loop {
            let mut drafts = group.clone();
            let spans = spans::appends(&mut drafts, partitions);
            let begun = self.writer.begin(drafts);
            match begun.inspect_err(|error| self.metrics.append_failed(error)) {
                Ok(begun) => {
                    let events = group.into_iter().map(|draft| draft.event).collect();
                    self.note_begun(&begun, events, spans, &causes);
                    return Ok(());
                }
                Err(WriterError::TooLarge { stream, key, bytes, bytes_max }) => {
                    tracing::error!(
                        %stream, %key, bytes, bytes_max,
                        "the object is too large for the log and is left out; make it smaller"
                    );
                    group.retain(|draft| {
                        draft.stream != stream
                            || draft.event.key().is_none_or(|entry| entry.as_str() != key)
                    });
                    self.refused.note(stream, key, RecordSize { bytes, bytes_max });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Notes which partitions of `log` have nothing unread; see [`LogFollower::note_ends`].
    pub(super) async fn note_ends(&mut self, log: &dyn Log) -> Result<(), PublishError> {
        Ok(self.follower.note_ends(log).await?)
    }

    /// Begins to append a head to each stream whose last event was a removal.
    pub(super) async fn append_heads(&mut self) -> Result<(), PublishError> {
        self.append(self.writer.heads(), Vec::new()).await
    }

    /// Begins to append the tombstones of bodies to which no published entry refers.
    pub(super) async fn retire_bodies(&mut self) -> Result<(), PublishError> {
        while !self.has_room() {
            self.advance().await?;
        }
        let lags = &self.lags;
        let takes_records = |body: &Result<BodyAddress, EngineError>| {
            body.as_ref().map_or(true, |at| !lags.contains(at.partition))
        };
        // Bodies of partitions that are away must not take the place of others.
        let unreferenced = BodyReferences::unreferenced(&*self.engine)
            .filter(takes_records)
            .take(BODIES_RETIRED_AT_ONCE)
            .collect::<Result<Vec<_>, _>>()?;
        let begun = self.writer.begin_retiring(unreferenced)?;
        self.note_begun(&begun, Vec::new(), Vec::new(), &Arc::default());
        Ok(())
    }

    /// Waits until an append has finished, reads what comes next in the log, or notes a partition that
    /// lags, whichever is first. A higher claim ends this writer, and so does a suspended partition that
    /// takes records again. Cancel safe.
    pub(super) async fn advance(&mut self) -> Result<(), PublishError> {
        let lag = self.lags.deadline();
        tokio::select! {
            biased;
            partition = self.probes.next() => {
                return Err(PublishError::PartitionReturned { partition });
            }
            finished = self.writer.finished(), if self.writer.pending() > 0 => {
                let finished = finished.inspect_err(|error| self.metrics.append_failed(error))?;
                self.note_finished(finished);
            }
            step = self.follower.next() => self.observe(&step?)?,
            () = sleep_until(lag.unwrap_or_else(Instant::now)), if lag.is_some() => {
                for partition in self.lags.begin(Instant::now()) {
                    tracing::warn!(%partition, "the partition lags; the others go on without it");
                }
                self.show_away();
            }
        }
        Ok(())
    }

    /// Waits until every append has finished and was read back, except in partitions that are away: the
    /// fold is what the log holds.
    pub(super) async fn flush(&mut self) -> Result<(), PublishError> {
        while !self.is_idle() {
            self.advance().await?;
        }
        Ok(())
    }

    /// As [`WritableLog::flush`]. Meanwhile suspended partitions may return, each once.
    ///
    /// # Errors
    /// As [`WritableLog::advance`], but for [`PublishError::PartitionReturned`].
    pub(super) async fn flush_whatever_returns(&mut self) -> Result<(), PublishError> {
        loop {
            match self.flush().await {
                Err(PublishError::PartitionReturned { .. }) => {}
                flushed => return flushed,
            }
        }
    }

    /// Begins to append the published entry again for each key that a fenced record has touched, so
    /// that compaction does not keep that record.
    pub(super) async fn repair(&mut self) -> Result<(), PublishError> {
        if !std::mem::take(&mut self.needs_repair) {
            return Ok(());
        }
        let mut drafts = Vec::new();
        for (stream, touched) in self.writer.repairs(self.follower.acceptance()) {
            let present = match &touched {
                RepairKey::Head => None,
                RepairKey::Entry(key) => {
                    self.entry(&stream, key)?.map(|entry| applied(key.clone(), entry))
                }
            };
            drafts.push(repair(stream, touched, present));
        }
        self.append(drafts, Vec::new()).await
    }

    /// Begins to append the record that everything that the sources listed is in the log. The log is
    /// idle and whole.
    pub(super) fn begin_reconciled(&mut self) -> Result<(), PublishError> {
        let begun = self.writer.begin_reconciled()?;
        self.note_begun(&begun, Vec::new(), Vec::new(), &Arc::default());
        Ok(())
    }

    /// Appends the last heartbeat, by which a standby takes over without waiting for a silence.
    pub(super) async fn release(mut self) -> Result<(), PublishError> {
        self.flush_whatever_returns().await?;
        let partition = Partition(0);
        if self.lags.contains(partition) {
            return Err(WriterError::Suspended { partition, reason: "it lags".to_owned() }.into());
        }
        Ok(self.writer.release().await?)
    }

    /// Notes the calls of one append. All its events are in one partition.
    fn note_begun(
        &mut self,
        begun: &[BegunAppend],
        events: Vec<Event>,
        spans: Vec<(usize, Span)>,
        causes: &Arc<Vec<Span>>,
    ) {
        let began = Instant::now();
        let (mut events, mut spans) = (Some(events), Some(spans));
        for BegunAppend { partition, .. } in begun {
            let events = events.take().unwrap_or_default();
            let spans = spans.take().unwrap_or_default();
            let append = AppendInFlight { events, began, spans, _causes: causes.clone() };
            self.in_flight.entry(*partition).or_default().push_back(append);
            self.lags.note_begun(*partition, began);
        }
    }

    /// Notes what became of an append.
    fn note_finished(&mut self, finished: FinishedAppend) {
        match finished {
            FinishedAppend::Appended { partition, positions } => {
                self.note_appended(partition, &positions);
            }
            FinishedAppend::Suspended { partition, reason } => {
                self.metrics.append_suspended();
                self.note_suspended(partition, &reason);
                self.show_away();
            }
        }
    }

    /// Counts the oldest append of a partition: the log has its events durably, at `positions`.
    fn note_appended(&mut self, partition: Partition, positions: &[EventPosition]) {
        let Some(append) = self.in_flight.get_mut(&partition).and_then(VecDeque::pop_front) else {
            return;
        };
        let AppendInFlight { events, began, spans, .. } = append;
        let mut objects = ObjectBytes::default();
        events.iter().for_each(|event| objects.add(event));
        self.metrics.appended(events.iter(), objects.bytes, began.elapsed());
        spans::appended(spans, positions);
        // A count that readers look at when they want to. It wakes none of them: each append would wake the sink.
        self.progress.send_if_modified(|progress| {
            progress.appended += events.len() as u64;
            false
        });
        self.note_moved(partition);
    }

    /// Notes a partition to which this writer may append no more, and probes it.
    fn note_suspended(&mut self, partition: Partition, reason: &str) {
        tracing::warn!(%partition, reason, "the partition takes no appends; the others go on");
        self.in_flight.remove(&partition);
        self.lags.forget(partition);
        self.left_out.remove(&partition);
        self.probes.start(self.writer.heartbeats(), partition, Instant::now());
    }

    /// Notes that an append to a partition has finished, or that something of it was read.
    fn note_moved(&mut self, partition: Partition) {
        let is_idle =
            self.writer.pending_of(partition) == 0 && self.writer.in_flight_of(partition).keys == 0;
        if self.lags.note_moved(partition, is_idle, Instant::now()) {
            tracing::info!(%partition, "the partition has caught up");
            if self.left_out.remove(&partition) {
                self.recovered.push(partition);
            }
            self.needs_repair = true;
            self.show_away();
        }
    }

    /// Shows which partitions are away, and no other trouble.
    pub(super) fn show_away(&self) {
        let lagging = self.lags.lagging().map(|partition| format!("partition {partition} lags"));
        let suspended = self.writer.suspended().iter();
        let suspended = suspended
            .map(|(partition, reason)| format!("partition {partition} takes no appends: {reason}"));
        let away: Vec<String> = lagging.chain(suspended).collect();
        self.metrics.away(away.len());
        let trouble = (!away.is_empty())
            .then(|| format!("{}; changes of its streams wait, the others go on", away.join(", ")));
        self.progress.send_modify(|progress| progress.trouble = trouble);
    }

    /// Forgets that the log did not take an entry, which is compared now.
    pub(super) fn forget_refused(&mut self, entry: &EntryId) {
        self.refused.forget(&entry.stream, &entry.key);
    }

    /// Forgets which entries of a stream the log did not take. The stream is compared now.
    pub(super) fn forget_refused_of(&mut self, stream: &StreamId) {
        self.refused.forget_stream(stream);
    }

    /// Shows which objects are too large for the log, if that has changed.
    pub(super) fn show_left_out(&mut self) {
        if self.refused.take_change() {
            self.publish_left_out();
        }
    }

    fn publish_left_out(&self) {
        self.metrics.left_out(self.refused.objects());
        let left_out = self.refused.sentences();
        self.progress.send_if_modified(|progress| {
            let is_other = progress.left_out != left_out;
            progress.left_out = left_out;
            is_other
        });
    }

    /// Shows the writer what was read. A stream that has stopped accepts nothing more in this
    /// epoch, however often it is appended to: the next epoch continues it.
    fn observe(&mut self, step: &Step) -> Result<(), PublishError> {
        for outcome in &step.outcomes {
            self.writer.observe(outcome);
            self.needs_repair |= matches!(
                outcome,
                Outcome::Fenced(_)
                    | Outcome::Ignored(_)
                    | Outcome::Hole(_)
                    | Outcome::Malformed(_)
                    | Outcome::Claimed { .. }
            );
            let (stream, why) = match outcome {
                Outcome::Hole(hole) => {
                    (Some(&hole.stream), format!("seq {} is missing", hole.expected))
                }
                Outcome::Malformed(malformed) => (malformed.stream.as_ref(), malformed.to_string()),
                _ => continue,
            };
            let position = stream.and_then(|stream| self.follower.acceptance().stream(stream));
            let stopped = position.and_then(|position| position.stopped);
            let is_suspended =
                |stream: &StreamId| self.writer.suspended().contains_key(&self.partition(stream));
            if let Some(stream) = stream.filter(|_| stopped >= Some(self.writer.epoch()))
                && !is_suspended(stream)
            {
                return Err(PublishError::StreamStopped { stream: stream.clone(), why });
            }
        }
        if let Some((cursor, _)) = step.read {
            self.note_moved(cursor.partition);
        }
        // An event behind another writer's claim never comes back.
        if self.writer.is_alive() { Ok(()) } else { Err(PublishError::Fenced) }
    }
}

impl ObjectBytes {
    fn add(&mut self, event: &Event) {
        let Event::Applied(Applied { object, .. }) = event else { return };
        let place = |object: &Bytes| (object.as_ptr(), object.len());
        if self.last.as_ref().map(place) != Some(place(object)) {
            self.bytes += object.len();
            self.last = Some(object.clone());
        }
    }
}

fn applied(key: EntryKey, entry: Entry) -> Applied {
    let Entry { uid, resource_version, object, .. } = entry;
    Applied { key, uid, resource_version, object }
}
