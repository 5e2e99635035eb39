//! The comparison of what should be published with what is published.

use std::collections::{HashMap, HashSet};

use headwater_event::{EntryKey, StreamId};
use headwater_log::Draft;
use headwater_store::Engine;
use headwater_view::{EntrySummary, StreamReader};
use tokio::task::yield_now;
use tokio::time::Instant;
use tracing::Span;

use super::difference::{rank, snapshot_request};
use super::entry_differences::EntryDifferences;
use super::intake::EntryChange;
use super::writable_log::WritableLog;
use super::{PublishError, Publisher, backup};
use crate::interest::EntryId;

/// Entries of the fold compared between two appends of a comparison of everything.
const COMPARE_CHUNK: usize = 256;

/// Requests for snapshots in one append: the changes behind it wait no longer than for each other.
const REQUESTS_AT_ONCE: usize = 256;

impl Publisher {
    /// Compares every entry that is published or desired, appends the differences, and then the
    /// record that the log is reconciled.
    pub(super) async fn compare_everything(
        &mut self,
        log: &mut WritableLog,
    ) -> Result<(), PublishError> {
        let engine = self.engine.clone();
        log.flush().await?;
        if self.intake.must_adopt() {
            self.intake.adopt(&backup::published(&*engine)?);
        }
        // Desired entries come first, so that nothing vanishes before its replacement is there.
        let (mut compared, mut undesired) = (HashSet::new(), Vec::new());
        for stream in self.intake.streams() {
            let mut published = published_entries(&*engine, &stream).await?;
            let differing = self.intake.take_differing(&stream, &mut published);
            self.publish_entries(log, &differing).await?;
            undesired.extend(entries_of(&stream, published));
            compared.insert(stream);
        }
        for stream in log.streams() {
            if !compared.contains(&stream) {
                undesired.extend(entries_of(&stream, published_entries(&*engine, &stream).await?));
            }
        }
        // Pods leave first, then what they named.
        undesired.sort_by_key(|entry| {
            (entry.key.resource().is_none_or(|key| key.kind() != "pod"), entry.key.clone())
        });
        self.publish_entries(log, &undesired).await?;
        log.flush().await?;
        log.repair().await?;
        log.append_reconciled().await?;
        backup::clear(&*engine)?;
        self.metrics.reconciled();
        self.progress.send_modify(|progress| progress.reconciled = true);
        Ok(())
    }

    /// Begins to append the differences of `entries`.
    async fn publish_entries(
        &mut self,
        log: &mut WritableLog,
        entries: &[EntryId],
    ) -> Result<(), PublishError> {
        for chunk in entries.chunks(COMPARE_CHUNK) {
            let changes = chunk.iter().cloned().map(EntryChange::from).collect();
            self.publish(log, changes, Vec::new()).await?;
        }
        Ok(())
    }

    /// Begins to append the differences of the changed entries, each entry once. `causes` are the
    /// spans of the changes.
    pub(super) async fn publish(
        &mut self,
        log: &mut WritableLog,
        changes: Vec<EntryChange>,
        causes: Vec<Span>,
    ) -> Result<(), PublishError> {
        let mut drafts = self.differences(log, changes)?;
        // A group has many causes. What a pod names stays before the pod, and leaves after it.
        drafts.sort_by_key(|draft| rank(&draft.event));
        log.append(drafts, causes).await
    }

    fn differences(
        &self,
        log: &WritableLog,
        changes: Vec<EntryChange>,
    ) -> Result<Vec<Draft>, PublishError> {
        // The last change of an entry made it what it is now.
        let mut traces = HashMap::new();
        for EntryChange { entry, traceparent } in &changes {
            traces.insert(entry.clone(), traceparent.clone());
        }
        let mut drafts = Vec::new();
        let mut differences = EntryDifferences::new(&self.intake, log, self.shares_objects);
        for EntryChange { entry, .. } in changes {
            let Some(traceparent) = traces.remove(&entry) else { continue };
            let draft = differences.draft(&entry)?;
            drafts.extend(draft.map(|draft| Draft { traceparent, ..draft }));
        }
        Ok(drafts)
    }

    /// Begins to append the requests for whole pod status snapshots that are due.
    pub(super) async fn request_snapshots(
        &mut self,
        log: &mut WritableLog,
    ) -> Result<(), PublishError> {
        let mut drafts = Vec::new();
        for node in self.snapshot_requests.take_due(Instant::now(), REQUESTS_AT_ONCE) {
            let stream = StreamId::node(&node);
            let published = log.entry_summary(&stream, &EntryKey::SnapshotRequest)?;
            drafts.push(snapshot_request(stream, published.as_ref(), (self.new_uuid)()));
            self.metrics.snapshot_requested();
            tracing::info!(%node, "the node's pod statuses do not match; requesting all of them");
        }
        log.append(drafts, Vec::new()).await
    }
}

/// The entries of a stream as they are published. Nothing of the stream may be in flight.
async fn published_entries(
    engine: &dyn Engine,
    stream: &StreamId,
) -> Result<HashMap<EntryKey, EntrySummary>, PublishError> {
    let mut published = HashMap::new();
    let mut after = None;
    loop {
        let chunk = StreamReader::new(engine).summaries(stream, after.as_ref(), COMPARE_CHUNK)?;
        let is_last = chunk.len() < COMPARE_CHUNK;
        after = chunk.last().map(|(key, _)| key.clone());
        published.extend(chunk);
        // A stream without a difference waits for nothing else.
        yield_now().await;
        if is_last {
            return Ok(published);
        }
    }
}

fn entries_of(
    stream: &StreamId,
    published: HashMap<EntryKey, EntrySummary>,
) -> impl Iterator<Item = EntryId> {
    let stream = stream.clone();
    published.into_keys().map(move |key| EntryId { stream: stream.clone(), key })
}
