//! The fold as a session reads it during one step.
//!
//! Most steps read nothing: an acknowledgement changes the session alone. So the source takes its
//! snapshot of the fold at the first question. A session that keeps up asks for the ends of streams
//! and their newest events, which are in memory ([`super::heads`]). The source reads everything
//! else from the store, at the same moment, and reads a stream's history once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_event::{
    Assignment, Change, Checkpoint, EntryKey, Identity, LogId, NodeName, Removed, ResourceKey, Seq,
    StateHash, StreamId, WriterEpoch,
};
use headwater_object::references::{REFERRING_TYPES, references};
use headwater_session::message::PushedChange;
use headwater_session::{
    Comparison, FoldStatus, Readiness, SharedPush, SourceError, StreamSource, TailEvent,
    TransferReader, tail_push,
};
use headwater_store::{EngineError, Json, Proto, Read};
use headwater_view::{Entry, Selection, StreamReader};

use super::heads::StreamHead;
use super::history_rows::{CHANGES, EVENTS, STREAMS, StreamHistory};
use super::transfer::{PendingChanges, StreamEntries, applied};
use super::{Fold, FoldState};

/// Entries that are read from the store at once.
const CHUNK_ENTRIES: usize = 256;

/// The fold at the moment of the first question.
pub(crate) struct FoldSource<'f> {
    fold: &'f Fold,
    /// The streams whose heads are read from memory.
    streams: &'f [StreamId],
    snapshot: OnceCell<FoldSnapshot<'f>>,
    may_transfer: bool,
    wants_transfer: Cell<bool>,
}

/// The fold at one moment.
pub(super) struct FoldSnapshot<'f> {
    pub(super) state: Arc<FoldState>,
    /// The stored state.
    pub(super) stored: Box<dyn Read + 'f>,
    /// Heads of the same moment as `stored`.
    heads: Vec<(StreamId, Arc<StreamHead>)>,
    /// The histories that were read so far.
    histories: RefCell<BTreeMap<StreamId, Arc<StreamHistory>>>,
}

impl<'f> FoldSnapshot<'f> {
    pub(super) fn new(
        state: Arc<FoldState>,
        heads: Vec<(StreamId, Arc<StreamHead>)>,
        stored: Box<dyn Read + 'f>,
    ) -> Self {
        Self { state, stored, heads, histories: RefCell::default() }
    }
}

impl<'f> FoldSource<'f> {
    /// A source that reads everything from the store, and may begin transfers.
    pub(super) fn new(fold: &'f Fold) -> Self {
        let (snapshot, wants_transfer) = (OnceCell::new(), Cell::new(false));
        Self { fold, streams: &[], snapshot, may_transfer: true, wants_transfer }
    }

    /// Reads the heads of these streams from memory.
    pub(crate) fn with_heads_of(self, streams: &'f [StreamId]) -> Self {
        Self { streams, ..self }
    }

    /// Lets a transfer begin only if `may_transfer`.
    pub(crate) fn with_transfer(self, may_transfer: bool) -> Self {
        Self { may_transfer, ..self }
    }

    /// Whether a transfer was due and had to wait.
    pub(crate) fn wants_transfer(&self) -> bool {
        self.wants_transfer.get()
    }

    fn snapshot(&self) -> &FoldSnapshot<'f> {
        self.snapshot.get_or_init(|| self.fold.snapshot(self.streams))
    }

    fn state(&self) -> &FoldState {
        &self.snapshot().state
    }

    fn stored(&self) -> &dyn Read {
        &*self.snapshot().stored
    }

    fn reader(&self) -> StreamReader<'_> {
        StreamReader::new(self.stored())
    }

    fn head(&self, stream: &StreamId) -> Option<&StreamHead> {
        let mut heads = self.snapshot().heads.iter();
        heads.find(|(of, _)| of == stream).map(|(_, head)| &**head)
    }

    fn history(&self, stream: &StreamId) -> Result<Arc<StreamHistory>, SourceError> {
        if let Some(head) = self.head(stream) {
            return Ok(head.history.clone());
        }
        let FoldSnapshot { stored, histories, .. } = self.snapshot();
        if let Some(history) = histories.borrow().get(stream) {
            return Ok(history.clone());
        }
        let row = STREAMS.get(&**stored, stream).map_err(unreadable)?;
        let history = Arc::new(row.map(|Json(history)| history).unwrap_or_default());
        histories.borrow_mut().insert(stream.clone(), history.clone());
        Ok(history)
    }

    /// When the first event above `since` was appended, as far as the fold knows. Of a key that
    /// changed several times above `since` only the last change counts.
    ///
    /// # Errors
    /// When the fold cannot be read.
    pub(crate) fn changed_ms(
        &self,
        stream: &StreamId,
        since: Seq,
    ) -> Result<Option<i64>, SourceError> {
        let raw_from = self.history(stream)?.raw_from;
        let mut changes =
            CHANGES.rows_of_from(self.stored(), stream, &(stream.clone(), since.next()));
        if since < raw_from
            && let Some((_, Json(change))) = changes.next().transpose().map_err(unreadable)?
        {
            return Ok(change.time_ms);
        }
        let from = since.max(raw_from);
        let first = self.events(stream, from, from.next(), 1)?;
        Ok(first.first().map(|event| event.time_ms))
    }

    fn entry(&self, stream: &StreamId, key: &EntryKey) -> Result<Option<Entry>, SourceError> {
        self.reader().entry(stream, key).map_err(unreadable)
    }

    /// All entries of a stream. Sessions that push a shared stream share one read.
    fn entries(&self, stream: &StreamId) -> Result<Arc<StreamEntries>, SourceError> {
        let read = || {
            let mut entries = StreamEntries::default();
            self.each_entry(stream, Selection::All, |key, entry| {
                entries.push(key, entry);
                true
            })?;
            Ok(entries)
        };
        // A private stream has one session at a time.
        if matches!(stream, StreamId::Node(_)) {
            return read().map(Arc::new);
        }
        let position = self.reader().position(stream).map_err(unreadable)?;
        self.fold.snapshots.at(stream, position, read)
    }

    /// Calls `each` with every selected entry until it returns `false`.
    fn each_entry(
        &self,
        stream: &StreamId,
        selection: Selection<'_>,
        mut each: impl FnMut(EntryKey, Entry) -> bool,
    ) -> Result<(), SourceError> {
        for entry in self.reader().all_entries(stream, selection, CHUNK_ENTRIES) {
            let (key, entry) = entry.map_err(unreadable)?;
            if !each(key, entry) {
                break;
            }
        }
        Ok(())
    }
}

impl StreamSource for FoldSource<'_> {
    fn log_id(&self) -> Option<LogId> {
        self.state().log_id
    }

    fn may_transfer(&self) -> bool {
        if !self.may_transfer {
            self.wants_transfer.set(true);
        }
        self.may_transfer
    }

    fn streams(&self, node: &NodeName) -> Result<BTreeSet<StreamId>, SourceError> {
        let private = StreamId::node(node);
        let known = self.head(&private).map(|head| &head.streams);
        if let Some(streams) = known.and_then(|known| known.get()) {
            return Ok(streams.clone());
        }
        let streams = match self.entry(&private, &EntryKey::Streams)? {
            None => BTreeSet::from([private]),
            Some(entry) => Assignment::decode(node, &entry.object)
                .map(|assignment| assignment.streams().clone())
                .map_err(|error| SourceError { reason: error.to_string() })?,
        };
        if let Some(known) = known {
            // Another session that set it read the same streams.
            let _ = known.set(streams.clone());
        }
        Ok(streams)
    }

    fn knows_identities_of(&self, node: &NodeName) -> bool {
        self.fold.identities.are_complete_for(node)
    }

    fn known_identity(&self, node: &NodeName) -> Result<Option<Identity>, SourceError> {
        Ok(self.fold.identities.of(node))
    }

    fn status(&self, stream: &StreamId) -> Result<FoldStatus, SourceError> {
        let state = self.state();
        let log_id = state
            .log_id
            .ok_or_else(|| SourceError { reason: "the hub has folded no log yet".to_owned() })?;
        let claimed = state.claimed(stream);
        let nothing = Checkpoint { log_id, epoch: claimed, seq: Seq::ZERO };
        let position = match self.head(stream) {
            Some(head) => Some(head.position),
            None => self.reader().position(stream).map_err(unreadable)?,
        };
        let (mut checkpoint, hash) = position.unwrap_or((nothing, StateHash::EMPTY));
        checkpoint.epoch = checkpoint.epoch.max(claimed);
        let history = self.history(stream)?;
        let readiness = if !state.is_folded(stream) {
            Readiness::Folding
        } else if !state.reconciled {
            Readiness::Folded
        } else {
            Readiness::Reconciled
        };
        let (raw_from, delta_from) = (history.raw_from, history.delta_from);
        Ok(FoldStatus { checkpoint, hash, readiness, raw_from, delta_from })
    }

    fn next_epoch_from(
        &self,
        stream: &StreamId,
        epoch: WriterEpoch,
    ) -> Result<Option<Seq>, SourceError> {
        Ok(self.history(stream)?.next_epoch_from(epoch))
    }

    fn events(
        &self,
        stream: &StreamId,
        from: Seq,
        to: Seq,
        bytes_max: u64,
    ) -> Result<Vec<TailEvent>, SourceError> {
        let head = self.head(stream);
        if let Some(events) = head.and_then(|head| head.events(from, to, bytes_max)) {
            return Ok(events);
        }
        let (first, end) = ((stream.clone(), from.next()), (stream.clone(), to.next()));
        let mut events = Vec::new();
        let mut bytes = 0;
        for row in EVENTS.rows_between(self.stored(), &first, &end) {
            let ((_, seq), Proto(row)) = row.map_err(unreadable)?;
            let bytes_before = bytes;
            bytes += row.change_bytes();
            if bytes > bytes_max && bytes_before > 0 {
                break;
            }
            let in_body = match row.body() {
                None => None,
                Some(body) => {
                    let object = self.reader().body(&body).map_err(unreadable)?;
                    if object.is_none() {
                        // A later event has replaced the object, and its body is retired.
                        break;
                    }
                    object
                }
            };
            let event = row.tail_event(seq, in_body);
            events.push(event.map_err(|error| SourceError { reason: error.to_string() })?);
        }
        Ok(events)
    }

    fn shared_tail(
        &self,
        stream: &StreamId,
        from: Seq,
        status: &FoldStatus,
        bytes_max: u64,
    ) -> Result<Option<Arc<SharedPush>>, SourceError> {
        let Some(tails) = self.head(stream).and_then(|head| head.tails.as_ref()) else {
            return Ok(None);
        };
        tails.behind(from, bytes_max, || tail_push(self, stream, from, status, bytes_max))
    }

    fn delta(&self, stream: &StreamId, since: Seq) -> Result<Box<dyn TransferReader>, SourceError> {
        let first = (stream.clone(), since.next());
        let mut changes = Vec::new();
        for row in CHANGES.rows_of_from(self.stored(), stream, &first) {
            let (_, Json(row)) = row.map_err(unreadable)?;
            let traceparent = row.traceparent;
            let change = match row.removed {
                Some(uid) => Change::Removed(Removed { key: row.key, uid }),
                None => {
                    let entry = self.entry(stream, &row.key)?.ok_or_else(|| SourceError {
                        reason: format!("{stream} has a change of {} but no entry", row.key),
                    })?;
                    applied(row.key, entry)
                }
            };
            changes.push(PushedChange { traceparent, ..change.into() });
        }
        Ok(Box::new(PendingChanges::new(changes)))
    }

    fn snapshot(&self, stream: &StreamId) -> Result<Box<dyn TransferReader>, SourceError> {
        Ok(Box::new(PendingChanges::shared(self.entries(stream)?)))
    }

    fn correction(
        &self,
        stream: &StreamId,
        comparison: &mut Comparison,
    ) -> Result<Box<dyn TransferReader>, SourceError> {
        if !matches!(stream, StreamId::Node(_)) {
            return Ok(Box::new(PendingChanges::missing(self.entries(stream)?, comparison)));
        }
        // Entries that the edge has are not kept in memory.
        let mut changes = Vec::new();
        self.each_entry(stream, Selection::All, |key, entry| {
            let Entry { uid, resource_version, object_hash, .. } = &entry;
            if !comparison.has(&key, uid, resource_version, object_hash) {
                changes.push(applied(key, entry).into());
            }
            true
        })?;
        Ok(Box::new(PendingChanges::new(changes)))
    }

    fn has_object(&self, node: &NodeName, key: &ResourceKey) -> Result<bool, SourceError> {
        Ok(self.entry(&StreamId::node(node), &EntryKey::from(key.clone()))?.is_some())
    }

    fn references(&self, node: &NodeName) -> Result<BTreeSet<ResourceKey>, SourceError> {
        let mut keys = BTreeSet::new();
        for kind in REFERRING_TYPES {
            self.each_entry(&StreamId::node(node), Selection::Kind(kind), |key, entry| {
                let object = serde_json::from_slice(&entry.object).unwrap_or_default();
                if let Some(key) = key.resource() {
                    let found = references(key, &object).into_iter();
                    keys.extend(found.map(|reference| reference.key));
                }
                true
            })?;
        }
        Ok(keys)
    }
}

fn unreadable(error: EngineError) -> SourceError {
    SourceError { reason: error.to_string() }
}
