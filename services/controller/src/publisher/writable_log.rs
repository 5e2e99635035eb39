//! The downstream log while this controller is its writer: appends, reads back, repairs.

use std::sync::Arc;

use headwater_event::{Applied, EntryKey, Event, StreamId, WriterEpoch};
use headwater_follow::{Follower, Step};
use headwater_log::acceptance::RepairKey;
use headwater_log::{Draft, Outcome, Writer, WriterError, repair};
use headwater_store::{Engine, EngineError};
use headwater_view::{Entry, Selection, StreamReader};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Progress, PublishError};
use crate::metrics::PublisherMetrics;
use crate::spans;

/// Events, and bytes of objects, in one append: half of what an engine takes as one batch.
const APPEND_EVENTS_MAX: usize = 1024;
const APPEND_BYTES_MAX: usize = 4 << 20;

/// The writer, and the fold of everything that it has appended.
///
/// Every append returns after its events were read back, so the fold is always what the log holds.
/// After an error the log must be claimed again.
pub(super) struct WritableLog {
    follower: Follower<()>,
    writer: Writer,
    engine: Arc<dyn Engine>,
    progress: watch::Sender<Progress>,
    metrics: PublisherMetrics,
}

impl WritableLog {
    pub(super) fn new(
        follower: Follower<()>,
        writer: Writer,
        engine: Arc<dyn Engine>,
        progress: watch::Sender<Progress>,
        metrics: PublisherMetrics,
    ) -> Self {
        Self { follower, writer, engine, progress, metrics }
    }

    /// The writer's epoch.
    pub(super) fn epoch(&self) -> WriterEpoch {
        self.writer.epoch()
    }

    /// The entry as it is published.
    pub(super) fn entry(
        &self,
        stream: &StreamId,
        key: &EntryKey,
    ) -> Result<Option<Entry>, EngineError> {
        StreamReader::new(&*self.engine).entry(stream, key)
    }

    /// Up to `max` keys of a stream as it is published, after `after`.
    pub(super) fn keys(
        &self,
        stream: &StreamId,
        selection: Selection<'_>,
        after: Option<&EntryKey>,
        max: usize,
    ) -> Result<Vec<EntryKey>, EngineError> {
        let entries = StreamReader::new(&*self.engine).entries(stream, selection, after, max)?;
        Ok(entries.into_iter().map(|(key, _)| key).collect())
    }

    /// The streams that are published.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.follower.acceptance().streams().map(|(stream, _)| stream.clone()).collect()
    }

    /// Appends events in groups, and reads each group back. An event that is too large for the log
    /// is left out and logged.
    pub(super) async fn append(&mut self, drafts: Vec<Draft>) -> Result<(), PublishError> {
        let mut rest = drafts.into_iter().peekable();
        while rest.peek().is_some() {
            let mut group = Vec::new();
            let mut bytes = 0;
            while let Some(draft) =
                rest.next_if(|_| group.len() < APPEND_EVENTS_MAX && bytes < APPEND_BYTES_MAX)
            {
                bytes += object_bytes(&draft.event);
                group.push(draft);
            }
            self.append_group(group).await?;
        }
        Ok(())
    }

    async fn append_group(&mut self, mut group: Vec<Draft>) -> Result<(), PublishError> {
        let partitions = self.follower.acceptance().metadata().partitions;
        loop {
            let mut drafts = group.clone();
            let spans = spans::appends(&mut drafts, partitions);
            let began = Instant::now();
            let outcome = self.writer.append(drafts).await;
            if let Err(error) = &outcome {
                self.metrics.append_failed(error);
            }
            match outcome {
                Ok(written) => {
                    let events = group.iter().map(|draft| &draft.event);
                    let bytes = events.clone().map(object_bytes).sum();
                    self.metrics.appended(events, bytes, began.elapsed());
                    spans::appended(spans, &written);
                    return self.read_back(written.len()).await;
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

    /// Appends a head to each stream whose last event was a removal.
    pub(super) async fn append_heads(&mut self) -> Result<(), PublishError> {
        let began = Instant::now();
        let heads = self.writer.append_heads().await?;
        let events = heads.iter().map(|_| &Event::Head);
        self.metrics.appended(events, 0, began.elapsed());
        self.read_back(heads.len()).await
    }

    /// Reads until every appended event has come back.
    async fn read_back(&mut self, appended: usize) -> Result<(), PublishError> {
        self.progress.send_modify(|progress| progress.appended += appended as u64);
        while self.writer.in_flight() > 0 {
            let step = self.follower.next().await?;
            self.observe(&step)?;
            // An event behind another writer's claim never comes back.
            if !self.writer.is_alive() {
                return Err(PublishError::Fenced);
            }
        }
        Ok(())
    }

    /// Reads what comes next in the log; cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Step, PublishError> {
        Ok(self.follower.next().await?)
    }

    /// Handles what other writers wrote. A higher claim ends this writer; the keys that a fenced
    /// record touched are repaired.
    pub(super) async fn handle(&mut self, step: &Step) -> Result<(), PublishError> {
        self.observe(step)?;
        if !self.writer.is_alive() {
            return Err(PublishError::Fenced);
        }
        self.repair().await
    }

    /// Appends the published entry again for each key that a fenced record has touched, so that
    /// compaction does not keep that record.
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
        self.append(drafts).await
    }

    /// Appends a heartbeat.
    pub(super) async fn heartbeat(&mut self) -> Result<(), PublishError> {
        Ok(self.writer.heartbeat().await?)
    }

    /// Appends the record that everything that the sources listed is in the log.
    pub(super) async fn append_reconciled(&mut self) -> Result<(), PublishError> {
        Ok(self.writer.reconciled().await?)
    }

    /// Appends the last heartbeat, by which a standby takes over without waiting for a silence.
    pub(super) async fn release(self) -> Result<(), WriterError> {
        self.writer.release().await
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
        Ok(())
    }
}

fn object_bytes(event: &Event) -> usize {
    match event {
        Event::Applied(applied) => applied.object.len(),
        Event::Removed(_) | Event::Head => 0,
    }
}

fn applied(key: EntryKey, entry: Entry) -> Applied {
    let Entry { uid, resource_version, object, .. } = entry;
    Applied { key, uid, resource_version, object }
}
