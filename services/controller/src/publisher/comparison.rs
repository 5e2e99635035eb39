//! The comparison of what should be published with what is published.
//!
//! A writer compares stream by stream, and appends what its sources change meanwhile: first it
//! compares the streams of a change, so the first events of a stream in an epoch are always its
//! differences. Entries that should not be there follow once every stream has what it should have.
//!
//! ```text
//!  Comparing ──► nothing left, all appended ──► Marking ──► read back ──► Reconciled
//!      ▲                                           │  a partition is back     │
//!      └───────────────────────────────────────────┴──────────────────────────┘
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use headwater_event::{EntryKey, Partition, StreamId};
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

/// What an epoch has still to compare.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// The streams that were not compared yet, by partition.
    uncompared: BTreeMap<Partition, BTreeSet<StreamId>>,
    /// Entries of compared streams that are published and should not be; sorted once all are known.
    undesired: Vec<EntryId>,
    is_sorted: bool,
    stage: Stage,
    /// Whether the record of this epoch that everything is in the log has begun.
    is_marked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Comparing,
    /// The record that everything is in the log has begun.
    Marking,
    Reconciled,
}

/// The next step of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ComparisonStep {
    /// Compare this stream.
    Compare(StreamId),
    /// Remove these entries where nothing wants them.
    Remove(Vec<EntryId>),
    /// Begin to append the record that everything is in the log, once all appends have come back.
    Mark,
    /// The record was read back.
    Finish,
}

impl Comparison {
    /// A comparison of these streams. `partition` is that of a stream.
    pub(super) fn of(
        streams: impl IntoIterator<Item = StreamId>,
        partition: impl Fn(&StreamId) -> Partition,
    ) -> Self {
        let mut comparison = Self::default();
        comparison.add(streams, partition);
        comparison
    }

    /// Compares these streams, also if they were compared before.
    pub(super) fn add(
        &mut self,
        streams: impl IntoIterator<Item = StreamId>,
        partition: impl Fn(&StreamId) -> Partition,
    ) {
        for stream in streams {
            self.uncompared.entry(partition(&stream)).or_default().insert(stream);
        }
        self.stage = Stage::Comparing;
        self.is_sorted = false;
    }

    /// Takes a stream that is compared now; `false`: it was compared before.
    pub(super) fn take(&mut self, stream: &StreamId, partition: Partition) -> bool {
        let Some(streams) = self.uncompared.get_mut(&partition) else { return false };
        let is_taken = streams.remove(stream);
        if streams.is_empty() {
            self.uncompared.remove(&partition);
        }
        is_taken
    }

    /// Notes entries of a compared stream that are published and should not be.
    pub(super) fn note_undesired(&mut self, entries: impl IntoIterator<Item = EntryId>) {
        self.undesired.extend(entries);
        self.is_sorted = false;
    }

    /// Whether streams have still to be compared, or entries to be removed, in partitions that are not
    /// away.
    fn is_comparing(&self, is_away: impl Fn(Partition) -> bool) -> bool {
        let mut partitions = self.uncompared.keys();
        self.stage == Stage::Comparing
            && (!self.undesired.is_empty() || partitions.any(|partition| !is_away(*partition)))
    }

    /// Whether a step can be made now. `can_mark`: nothing is in flight, and no partition is away;
    /// `is_reconciled`: the record of this epoch was read back.
    fn is_due(
        &self,
        is_away: impl Fn(Partition) -> bool,
        can_mark: bool,
        is_reconciled: bool,
    ) -> bool {
        match self.stage {
            Stage::Comparing if self.awaits_appends() => can_mark,
            Stage::Comparing => self.is_comparing(is_away),
            Stage::Marking => is_reconciled,
            Stage::Reconciled => false,
        }
    }

    /// Takes the next step.
    fn take_step(&mut self, is_away: impl Fn(Partition) -> bool) -> ComparisonStep {
        if self.stage == Stage::Marking {
            return ComparisonStep::Finish;
        }
        let mut partitions = self.uncompared.iter().filter(|(partition, _)| !is_away(**partition));
        if let Some(stream) = partitions.find_map(|(_, streams)| streams.first()) {
            return ComparisonStep::Compare(stream.clone());
        }
        if !self.is_sorted {
            // Pods leave first, then what they named. The first is the last here.
            self.undesired.sort_by_cached_key(|entry| {
                let is_pod = entry.key.resource().is_some_and(|key| key.kind() == "pod");
                Reverse((!is_pod, entry.key.clone()))
            });
            self.is_sorted = true;
        }
        if self.undesired.is_empty() {
            return ComparisonStep::Mark;
        }
        let from = self.undesired.len().saturating_sub(COMPARE_CHUNK);
        let mut entries = self.undesired.split_off(from);
        entries.reverse();
        ComparisonStep::Remove(entries)
    }

    /// Whether all differences are known and begun, and only their appends are awaited.
    pub(super) fn awaits_appends(&self) -> bool {
        match self.stage {
            Stage::Comparing => self.uncompared.is_empty() && self.undesired.is_empty(),
            Stage::Marking => true,
            Stage::Reconciled => false,
        }
    }
}

impl Publisher {
    /// Begins to compare everything that is published or desired.
    pub(super) fn begin_comparison(&mut self, log: &WritableLog) -> Result<(), PublishError> {
        self.intake.adopt(&*self.engine)?;
        let streams = self.intake.streams().into_iter().chain(log.streams());
        self.comparison = Comparison::of(streams, |stream| log.partition(stream));
        Ok(())
    }

    /// Compares the streams of partitions that have caught up once more: changes for them were left
    /// out.
    pub(super) fn compare_recovered(&mut self, log: &mut WritableLog) {
        let recovered = log.take_recovered();
        if recovered.is_empty() {
            return;
        }
        let streams = self.intake.streams().into_iter().chain(log.streams());
        let streams = streams.filter(|stream| recovered.contains(&log.partition(stream)));
        self.comparison.add(streams, |stream| log.partition(stream));
    }

    /// Whether something is still to be compared in partitions that are not away.
    pub(super) fn is_comparing(&self, log: &WritableLog) -> bool {
        self.comparison.is_comparing(|partition| log.is_away(partition))
    }

    /// Whether the comparison can go on now.
    pub(super) fn can_compare(&self, log: &WritableLog) -> bool {
        let is_away = |partition| log.is_away(partition);
        let can_mark = log.is_idle() && log.is_whole();
        log.has_room() && self.comparison.is_due(is_away, can_mark, log.is_reconciled())
    }

    /// Makes one step of the comparison: changes of the sources wait no longer than for that.
    pub(super) async fn compare(&mut self, log: &mut WritableLog) -> Result<(), PublishError> {
        match self.comparison.take_step(|partition| log.is_away(partition)) {
            ComparisonStep::Compare(stream) => {
                self.compare_stream(log, &stream, &HashMap::new()).await?;
            }
            ComparisonStep::Remove(entries) => {
                let changes = entries.into_iter().map(EntryChange::from).collect();
                self.publish_differences(log, changes, Vec::new()).await?;
            }
            ComparisonStep::Mark => {
                log.repair().await?;
                if log.is_idle() && log.is_whole() {
                    if !std::mem::replace(&mut self.comparison.is_marked, true) {
                        log.begin_reconciled()?;
                    }
                    self.comparison.stage = Stage::Marking;
                }
            }
            ComparisonStep::Finish => self.finish_comparison()?,
        }
        Ok(())
    }

    /// Ends the comparison: the log has all differences, and the record that says so.
    fn finish_comparison(&mut self) -> Result<(), PublishError> {
        self.comparison.stage = Stage::Reconciled;
        if self.progress.borrow().reconciled {
            return Ok(());
        }
        backup::clear(&*self.engine)?;
        self.metrics.reconciled();
        self.progress.send_modify(|progress| progress.reconciled = true);
        Ok(())
    }

    /// Compares a stream, if it was not compared yet, and begins to append what it lacks. `traces`
    /// are those of the changes that are published behind it.
    async fn compare_stream(
        &mut self,
        log: &mut WritableLog,
        stream: &StreamId,
        traces: &HashMap<EntryId, Option<String>>,
    ) -> Result<(), PublishError> {
        let partition = log.partition(stream);
        if log.is_away(partition) || !self.comparison.take(stream, partition) {
            return Ok(());
        }
        log.forget_refused_of(stream);
        let mut published = published_entries(&*self.engine, stream).await?;
        let differing = self.intake.take_differing(stream, &mut published);
        self.comparison.note_undesired(entries_of(stream, published));
        for chunk in differing.chunks(COMPARE_CHUNK) {
            let change = |entry: &EntryId| {
                let traceparent = traces.get(entry).cloned().flatten();
                EntryChange { entry: entry.clone(), traceparent }
            };
            self.publish_differences(log, chunk.iter().map(change).collect(), Vec::new()).await?;
        }
        log.show_left_out();
        Ok(())
    }

    /// Begins to append the differences of the changed entries, each entry once, and before them
    /// those of their streams. `causes` are the spans of the changes.
    pub(super) async fn publish(
        &mut self,
        log: &mut WritableLog,
        mut changes: Vec<EntryChange>,
        causes: Vec<Span>,
    ) -> Result<(), PublishError> {
        changes.retain(|change| !log.leaves_out(&change.entry.stream));
        if !self.comparison.uncompared.is_empty() {
            let trace = |change: &EntryChange| (change.entry.clone(), change.traceparent.clone());
            let traces = changes.iter().map(trace).collect();
            let streams: HashSet<_> = changes.iter().map(|change| &change.entry.stream).collect();
            let mut streams: Vec<_> = streams.into_iter().collect();
            streams.sort();
            for stream in streams {
                self.compare_stream(log, stream, &traces).await?;
            }
        }
        self.publish_differences(log, changes, causes).await
    }

    /// Begins to append the differences of the changed entries, each entry once.
    async fn publish_differences(
        &mut self,
        log: &mut WritableLog,
        changes: Vec<EntryChange>,
        causes: Vec<Span>,
    ) -> Result<(), PublishError> {
        changes.iter().for_each(|change| log.forget_refused(&change.entry));
        let mut drafts = self.differences(log, changes)?;
        // A group has many causes. What a pod names stays before the pod, and leaves after it.
        drafts.sort_by_key(|draft| rank(&draft.event));
        log.append(drafts, causes).await?;
        log.show_left_out();
        Ok(())
    }

    fn differences(
        &self,
        log: &mut WritableLog,
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
            if log.is_away(log.partition(&stream)) {
                // Asked again after the interval of requests.
                self.snapshot_requests.add(node);
                continue;
            }
            let published = log.entry_summary(&stream, &EntryKey::SnapshotRequest)?;
            drafts.push(snapshot_request(stream, published.as_ref(), (self.new_uuid)()));
            self.metrics.snapshot_requested();
            tracing::info!(%node, "the node's pod statuses do not match; requesting all of them");
        }
        log.append(drafts, Vec::new()).await
    }
}

/// The entries of a stream as they are published. Nothing of the stream that changes an object may be
/// in flight.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_ends_with_the_record_that_is_read_back_however_long_that_takes() {
        let is_away = |_| false;
        let mut comparison = Comparison::of([], |_| Partition(0));
        assert!(!comparison.is_due(is_away, false, false), "appends are in flight");
        assert!(comparison.is_due(is_away, true, false));
        assert_eq!(comparison.take_step(is_away), ComparisonStep::Mark);
        comparison.stage = Stage::Marking;
        // The partitions that have not taken it may lag meanwhile.
        for can_mark in [true, false] {
            assert!(!comparison.is_due(is_away, can_mark, false));
        }
        assert!(comparison.is_due(is_away, false, true));
        assert_eq!(comparison.take_step(is_away), ComparisonStep::Finish);
    }
}
