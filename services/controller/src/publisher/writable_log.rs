//! The downstream log while this controller is its writer: appends, reads back, repairs.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{Applied, EntryKey, Event, StreamId, WriterEpoch};
use headwater_follow::{BodyReferences, Step};
use headwater_log::acceptance::RepairKey;
use headwater_log::{
    Draft, EventPosition, Heartbeats, InFlightEntry, Outcome, Writer, WriterError, repair,
};
use headwater_store::{Engine, EngineError};
use headwater_view::{Entry, EntrySummary, StreamReader};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Span;

use super::{LogFollower, Progress, PublishError};
use crate::metrics::PublisherMetrics;
use crate::spans;

/// Events, and bytes of objects, in one append: half of what an engine takes as one batch.
const APPEND_EVENTS_MAX: usize = 1024;
const APPEND_BYTES_MAX: usize = 4 << 20;

/// Appends whose outcome is awaited at the same time: enough that the log always has work, few
/// enough that changes meanwhile gather into larger appends.
const APPENDS_IN_FLIGHT_MAX: usize = 4;

/// Entries, and bytes of their objects, that were appended and not read back yet: what the writer
/// keeps in memory. One append may exceed each.
const ENTRIES_IN_FLIGHT_MAX: usize = 4096;
const BYTES_IN_FLIGHT_MAX: usize = 16 << 20;

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
    /// The appends that the writer has begun, oldest first.
    in_flight: VecDeque<AppendInFlight>,
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
    /// The spans of the changes that end when the log has these events.
    _causes: Vec<Span>,
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
        engine: Arc<dyn Engine>,
        progress: watch::Sender<Progress>,
        metrics: PublisherMetrics,
    ) -> Self {
        Self { follower, writer, in_flight: VecDeque::new(), engine, progress, metrics }
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

    /// As [`WritableLog::entry`], without the object.
    pub(super) fn entry_summary(
        &self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<EntrySummary>, EngineError> {
        match self.writer.in_flight_entry(stream, key) {
            Some(InFlightEntry::Removed) => Ok(None),
            Some(InFlightEntry::Applied { object_hash, applied, .. }) => {
                Ok(Some(EntrySummary { uid: applied.uid, object_hash, body: None }))
            }
            None => StreamReader::new(&*self.engine).summary(stream, key),
        }
    }

    /// The streams that are published. Appends in flight may have added some.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.follower.acceptance().streams().map(|(stream, _)| stream.clone()).collect()
    }

    /// Whether every append has finished and was read back.
    pub(super) fn is_idle(&self) -> bool {
        self.writer.pending() == 0 && self.writer.in_flight() == 0
    }

    /// Whether another append may begin without waiting for those in flight.
    pub(super) fn has_room(&self) -> bool {
        self.writer.pending() < APPENDS_IN_FLIGHT_MAX
            && self.writer.in_flight() < ENTRIES_IN_FLIGHT_MAX
            && self.writer.in_flight_bytes() < BYTES_IN_FLIGHT_MAX
    }

    /// Begins to append events, in groups, each as soon as there is room. `causes` are the spans that
    /// end when the log has all of them. An event that is too large for the log is left out and
    /// logged.
    pub(super) async fn append(
        &mut self,
        drafts: Vec<Draft>,
        causes: Vec<Span>,
    ) -> Result<(), PublishError> {
        let mut causes = Some(causes);
        let mut rest = drafts.into_iter().peekable();
        while rest.peek().is_some() {
            let mut group = Vec::new();
            let mut objects = ObjectBytes::default();
            while let Some(draft) = rest
                .next_if(|_| group.len() < APPEND_EVENTS_MAX && objects.bytes < APPEND_BYTES_MAX)
            {
                objects.add(&draft.event);
                group.push(draft);
            }
            let is_last = rest.peek().is_none();
            let causes = causes.take_if(|_| is_last).unwrap_or_default();
            self.begin_group(group, causes).await?;
        }
        Ok(())
    }

    async fn begin_group(
        &mut self,
        mut group: Vec<Draft>,
        causes: Vec<Span>,
    ) -> Result<(), PublishError> {
        while !self.has_room() {
            self.advance().await?;
        }
        let partitions = self.follower.acceptance().metadata().partitions;
        loop {
            let mut drafts = group.clone();
            let spans = spans::appends(&mut drafts, partitions);
            let began = Instant::now();
            let begun = self.writer.begin(drafts);
            match begun.inspect_err(|error| self.metrics.append_failed(error)) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    let events = group.into_iter().map(|draft| draft.event).collect();
                    let append = AppendInFlight { events, began, spans, _causes: causes };
                    self.in_flight.push_back(append);
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
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Begins to append a head to each stream whose last event was a removal.
    pub(super) async fn append_heads(&mut self) -> Result<(), PublishError> {
        while !self.has_room() {
            self.advance().await?;
        }
        let began = Instant::now();
        let heads = self.writer.begin_heads()?;
        if heads > 0 {
            let events = vec![Event::Head; heads];
            let append = AppendInFlight { events, began, spans: Vec::new(), _causes: Vec::new() };
            self.in_flight.push_back(append);
        }
        Ok(())
    }

    /// Begins to append the tombstones of bodies to which no published entry refers.
    pub(super) async fn retire_bodies(&mut self) -> Result<(), PublishError> {
        while !self.has_room() {
            self.advance().await?;
        }
        let began = Instant::now();
        let unreferenced = BodyReferences::unreferenced(&*self.engine, BODIES_RETIRED_AT_ONCE)?;
        if self.writer.begin_retiring(unreferenced)? > 0 {
            let events = Vec::new();
            let append = AppendInFlight { events, began, spans: Vec::new(), _causes: Vec::new() };
            self.in_flight.push_back(append);
        }
        Ok(())
    }

    /// Waits until the oldest append has finished, or reads what comes next in the log, whichever is
    /// first. A higher claim ends this writer. Cancel safe.
    pub(super) async fn advance(&mut self) -> Result<(), PublishError> {
        tokio::select! {
            biased;
            finished = self.writer.finished(), if self.writer.pending() > 0 => {
                let positions = finished.inspect_err(|error| self.metrics.append_failed(error))?;
                self.note_finished(&positions);
            }
            step = self.follower.next() => self.observe(&step?)?,
        }
        Ok(())
    }

    /// Waits until every append has finished and was read back: the fold is what the log holds.
    pub(super) async fn flush(&mut self) -> Result<(), PublishError> {
        while !self.is_idle() {
            self.advance().await?;
        }
        Ok(())
    }

    /// Begins to append the published entry again for each key that a fenced record has touched, so
    /// that compaction does not keep that record.
    pub(super) async fn repair(&mut self) -> Result<(), PublishError> {
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

    /// Appends the record that everything that the sources listed is in the log.
    pub(super) async fn append_reconciled(&mut self) -> Result<(), PublishError> {
        self.flush().await?;
        Ok(self.writer.reconciled().await?)
    }

    /// Appends the last heartbeat, by which a standby takes over without waiting for a silence.
    pub(super) async fn release(mut self) -> Result<(), PublishError> {
        self.flush().await?;
        Ok(self.writer.release().await?)
    }

    /// Counts the oldest append: the log has its events durably, at `positions`.
    fn note_finished(&mut self, positions: &[EventPosition]) {
        let Some(append) = self.in_flight.pop_front() else { return };
        let AppendInFlight { events, began, spans, .. } = append;
        let mut objects = ObjectBytes::default();
        events.iter().for_each(|event| objects.add(event));
        self.metrics.appended(events.iter(), objects.bytes, began.elapsed());
        spans::appended(spans, positions);
        self.progress.send_modify(|progress| progress.appended += events.len() as u64);
    }

    /// Shows the writer what was read. A stream that has stopped accepts nothing more in this
    /// epoch, however often it is appended to: the next epoch continues it.
    fn observe(&mut self, step: &Step) -> Result<(), PublishError> {
        for outcome in &step.outcomes {
            self.writer.observe(outcome);
            let (stream, why) = match outcome {
                Outcome::Hole(hole) => {
                    (Some(&hole.stream), format!("seq {} is missing", hole.expected))
                }
                Outcome::Malformed(malformed) => (malformed.stream.as_ref(), malformed.to_string()),
                _ => continue,
            };
            let position = stream.and_then(|stream| self.follower.acceptance().stream(stream));
            let stopped = position.and_then(|position| position.stopped);
            if let Some(stream) = stream.filter(|_| stopped >= Some(self.writer.epoch())) {
                return Err(PublishError::StreamStopped { stream: stream.clone(), why });
            }
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
