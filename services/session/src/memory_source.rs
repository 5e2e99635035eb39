//! A fold in memory: the [`StreamSource`] of tests and simulation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use headwater_event::{
    Applied, Assignment, Change, Checkpoint, EntryKey, Envelope, Event, Identity, LogId, NodeName,
    ObjectHash, Removed, ResourceKey, Seq, StateHash, StreamId, WriterEpoch,
};

use crate::comparison::Comparison;
use crate::message::{PushedChange, change_bytes};
use crate::source::{
    FoldStatus, Readiness, SourceError, StreamSource, TailEvent, TransferPart, TransferReader,
};

/// Folds envelopes in memory. It receives only the events that count, in order.
#[derive(Clone, Debug)]
pub struct MemorySource {
    log_id: Option<LogId>,
    claimed: WriterEpoch,
    readiness: Readiness,
    raw_events_max: usize,
    folds: BTreeMap<StreamId, Fold>,
    known: BTreeMap<NodeName, Identity>,
}

/// An event that does not continue its stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} of {stream} is not after {folded}, the last event folded")]
pub struct FoldOrderError {
    /// The stream.
    pub stream: StreamId,
    /// The event.
    pub seq: Seq,
    /// The last event folded.
    pub folded: Seq,
}

/// One stream.
#[derive(Clone, Debug, Default)]
struct Fold {
    epoch: WriterEpoch,
    seq: Seq,
    hash: StateHash,
    /// By the key's text, in the order of a store of bytes.
    entries: BTreeMap<String, Latest<Applied>>,
    removed: BTreeMap<EntryKey, Latest<Removed>>,
    raw: VecDeque<Envelope>,
    delta_from: Seq,
    /// The first seq of each epoch.
    epochs: BTreeMap<WriterEpoch, Seq>,
}

#[derive(Clone, Debug)]
struct Latest<T> {
    seq: Seq,
    traceparent: Option<String>,
    what: T,
}

impl MemorySource {
    /// An empty fold that keeps the last `raw_events_max` events of each stream.
    pub fn new(raw_events_max: usize) -> Self {
        Self {
            log_id: None,
            claimed: WriterEpoch::default(),
            readiness: Readiness::Folding,
            raw_events_max,
            folds: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Begins the fold of a log, empty.
    pub fn begin(&mut self, log_id: LogId) {
        self.log_id = Some(log_id);
        self.readiness = Readiness::Folding;
        self.claimed = WriterEpoch::default();
        self.folds.clear();
    }

    /// Folds a writer's claim of `epoch`, in every partition at once.
    pub fn claim(&mut self, epoch: WriterEpoch) {
        self.claimed = self.claimed.max(epoch);
    }

    /// Sets what a hub may serve from now on.
    pub fn set_readiness(&mut self, readiness: Readiness) {
        self.readiness = readiness;
    }

    /// Sets the highest identity of a node in the cloud.
    pub fn set_known_identity(&mut self, identity: Identity) {
        self.known.insert(identity.node.clone(), identity);
    }

    /// Forgets the removals up to `seq`: an older replica needs a snapshot.
    pub fn forget_removals(&mut self, stream: &StreamId, seq: Seq) {
        let Some(fold) = self.folds.get_mut(stream) else { return };
        fold.removed.retain(|_, removed| removed.seq > seq);
        fold.delta_from = fold.delta_from.max(seq.min(fold.seq));
    }

    /// Folds the next event that counts. A gap before it is a hole that compaction left.
    ///
    /// # Errors
    /// When the event is not after the last one folded; nothing changes then.
    pub fn fold(&mut self, envelope: Envelope) -> Result<(), FoldOrderError> {
        let fold = self.folds.entry(envelope.stream.clone()).or_default();
        let (seq, traceparent) = (envelope.seq, envelope.traceparent.clone());
        if seq <= fold.seq {
            return Err(FoldOrderError { stream: envelope.stream, seq, folded: fold.seq });
        }
        if seq.0 - fold.seq.0 > 1 {
            fold.delta_from = Seq(seq.0 - 1);
            fold.raw.clear();
        }
        fold.epochs.entry(envelope.epoch).or_insert(envelope.epoch_first_seq);
        (fold.epoch, fold.seq, fold.hash) = (envelope.epoch, seq, envelope.hash);
        match &envelope.event {
            Event::Applied(applied) => {
                fold.removed.remove(&applied.key);
                let what = applied.clone();
                let key = applied.key.as_str().to_owned();
                fold.entries.insert(key, Latest { seq, traceparent, what });
            }
            Event::Removed(removed) => {
                fold.entries.remove(removed.key.as_str());
                let what = removed.clone();
                fold.removed.insert(removed.key.clone(), Latest { seq, traceparent, what });
            }
            Event::Head => {}
        }
        fold.raw.push_back(envelope);
        while fold.raw.len() > self.raw_events_max {
            fold.raw.pop_front();
        }
        Ok(())
    }

    /// The last event folded of a stream.
    pub fn folded(&self, stream: &StreamId) -> Seq {
        self.folds.get(stream).map_or(Seq::ZERO, |fold| fold.seq)
    }

    fn unread(&self) -> SourceError {
        SourceError { reason: "it has no log yet".to_owned() }
    }
}

impl StreamSource for MemorySource {
    fn log_id(&self) -> Option<LogId> {
        self.log_id
    }

    fn streams(&self, node: &NodeName) -> Result<BTreeSet<StreamId>, SourceError> {
        let private = self.folds.get(&StreamId::node(node));
        let entry = private.and_then(|fold| fold.entries.get(EntryKey::Streams.as_str()));
        let assignment = match entry {
            None => Assignment::new(node, []),
            Some(entry) => Assignment::decode(node, &entry.what.object)
                .map_err(|error| SourceError { reason: error.to_string() })?,
        };
        Ok(assignment.streams().clone())
    }

    fn known_identity(&self, node: &NodeName) -> Result<Option<Identity>, SourceError> {
        Ok(self.known.get(node).cloned())
    }

    fn status(&self, stream: &StreamId) -> Result<FoldStatus, SourceError> {
        let log_id = self.log_id.ok_or_else(|| self.unread())?;
        let empty = Fold::default();
        let fold = self.folds.get(stream).unwrap_or(&empty);
        Ok(FoldStatus {
            checkpoint: Checkpoint { log_id, epoch: fold.epoch.max(self.claimed), seq: fold.seq },
            hash: fold.hash,
            readiness: self.readiness,
            raw_from: fold.raw.front().map_or(fold.seq, |first| Seq(first.seq.0 - 1)),
            delta_from: fold.delta_from,
        })
    }

    fn next_epoch_from(
        &self,
        stream: &StreamId,
        epoch: WriterEpoch,
    ) -> Result<Option<Seq>, SourceError> {
        let epochs = self.folds.get(stream).map(|fold| &fold.epochs);
        let next = epochs
            .and_then(|epochs| epochs.range((Bound::Excluded(epoch), Bound::Unbounded)).next());
        Ok(next.map(|(_, first)| *first))
    }

    fn events(
        &self,
        stream: &StreamId,
        from: Seq,
        to: Seq,
        bytes_max: u64,
    ) -> Result<Vec<TailEvent>, SourceError> {
        let mut events = Vec::new();
        let mut bytes = 0;
        for event in self.folds.get(stream).into_iter().flat_map(|fold| &fold.raw) {
            if event.seq <= from || event.seq > to {
                continue;
            }
            bytes += event.event.change().as_ref().map_or(0, change_bytes);
            if !events.is_empty() && bytes > bytes_max {
                break;
            }
            events.push(event.clone().into());
        }
        Ok(events)
    }

    fn delta(&self, stream: &StreamId, since: Seq) -> Result<Box<dyn TransferReader>, SourceError> {
        let mut changes = BTreeMap::new();
        if let Some(fold) = self.folds.get(stream) {
            for latest in fold.entries.values().filter(|latest| latest.seq > since) {
                let traceparent = latest.traceparent.clone();
                let change = Change::Applied(latest.what.clone());
                changes.insert(latest.seq, PushedChange { traceparent, ..change.into() });
            }
            for latest in fold.removed.values().filter(|latest| latest.seq > since) {
                let traceparent = latest.traceparent.clone();
                let change = Change::Removed(latest.what.clone());
                changes.insert(latest.seq, PushedChange { traceparent, ..change.into() });
            }
        }
        Ok(Box::new(MemoryTransfer { changes: changes.into_values().collect() }))
    }

    fn snapshot(&self, stream: &StreamId) -> Result<Box<dyn TransferReader>, SourceError> {
        let entries = self.folds.get(stream).into_iter().flat_map(|fold| fold.entries.values());
        let changes = entries.map(|latest| Change::Applied(latest.what.clone()).into());
        Ok(Box::new(MemoryTransfer { changes: changes.collect() }))
    }

    fn correction(
        &self,
        stream: &StreamId,
        comparison: &mut Comparison,
    ) -> Result<Box<dyn TransferReader>, SourceError> {
        let entries = self.folds.get(stream).into_iter().flat_map(|fold| fold.entries.values());
        let lacking = entries.map(|latest| &latest.what).filter(|entry| {
            let object = ObjectHash::of(&entry.object);
            !comparison.has(&entry.key, &entry.uid, &entry.resource_version, &object)
        });
        let changes = lacking.map(|entry| Change::Applied(entry.clone()).into());
        Ok(Box::new(MemoryTransfer { changes: changes.collect() }))
    }

    fn has_object(&self, node: &NodeName, key: &ResourceKey) -> Result<bool, SourceError> {
        let private = self.folds.get(&StreamId::node(node));
        Ok(private.is_some_and(|fold| fold.entries.contains_key(key.as_str())))
    }

    /// None: its objects are no Kubernetes objects.
    fn references(&self, _: &NodeName) -> Result<BTreeSet<ResourceKey>, SourceError> {
        Ok(BTreeSet::new())
    }
}

/// A transfer whose changes are all in memory.
struct MemoryTransfer {
    changes: VecDeque<PushedChange>,
}

impl TransferReader for MemoryTransfer {
    fn next(&mut self, bytes_max: u64) -> Result<TransferPart, SourceError> {
        let mut part = TransferPart::default();
        let mut bytes = 0;
        while let Some(pushed) = self.changes.front() {
            bytes += change_bytes(&pushed.change);
            if !part.changes.is_empty() && bytes > bytes_max {
                return Ok(part);
            }
            part.changes.extend(self.changes.pop_front());
        }
        part.last = true;
        Ok(part)
    }
}
