//! The fold as a session reads it during one step.
//!
//! Most steps read nothing: an acknowledgement moves the session alone. So the fold is looked at
//! when something is first asked of it. A session that keeps up asks how its streams end and for
//! their last events, which are remembered ([`super::newest`]); whatever else it asks is read of the
//! store, at the same moment, and what it asks again and again once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_event::{
    Assignment, Change, Checkpoint, EntryKey, Identity, LogId, NodeName, Removed, ResourceKey, Seq,
    StateHash, StreamId, WriterEpoch,
};
use headwater_object::references::references;
use headwater_session::message::PushedChange;
use headwater_session::{
    CatchUp, Comparison, FoldStatus, Readiness, SourceError, StreamSource, TailEvent,
};
use headwater_store::{EngineError, Json, Proto, Read};
use headwater_view::{Entry, Selection, StreamReader};

use super::catch_up::{Changes, Entries, applied};
use super::history::{CHANGES, EVENTS, STREAMS, StreamHistory};
use super::newest::Head;
use super::{Facts, Fold};

/// Entries read from the store at once.
const CHUNK_ENTRIES: usize = 256;

/// The fold at one moment: that of the first question.
pub(crate) struct FoldSource<'f> {
    fold: &'f Fold,
    /// Those whose heads are looked for in memory.
    streams: Option<&'f BTreeSet<StreamId>>,
    moment: OnceCell<Moment<'f>>,
    has_turn: bool,
    asked: Cell<bool>,
}

/// What does not move while a step lasts.
pub(super) struct Moment<'f> {
    pub(super) facts: Arc<Facts>,
    /// What is remembered of streams, of the same moment as `read`.
    heads: BTreeMap<StreamId, Arc<Head>>,
    pub(super) read: Box<dyn Read + 'f>,
    /// The histories that were read.
    histories: RefCell<BTreeMap<StreamId, Arc<StreamHistory>>>,
}

impl<'f> Moment<'f> {
    pub(super) fn new(
        facts: Arc<Facts>,
        heads: BTreeMap<StreamId, Arc<Head>>,
        read: Box<dyn Read + 'f>,
    ) -> Self {
        Self { facts, heads, read, histories: RefCell::default() }
    }
}

impl<'f> FoldSource<'f> {
    pub(super) fn new(fold: &'f Fold) -> Self {
        let (moment, asked) = (OnceCell::new(), Cell::new(false));
        Self { fold, streams: None, moment, has_turn: true, asked }
    }

    /// As a session reads it that waits for these streams: how they end is remembered.
    pub(crate) fn of(self, streams: &'f BTreeSet<StreamId>) -> Self {
        Self { streams: Some(streams), ..self }
    }

    /// As a session reads it whose turn it is to catch up, or is not.
    pub(crate) fn in_turn(self, has_turn: bool) -> Self {
        Self { has_turn, ..self }
    }

    /// Whether a catch-up was due and had to wait.
    pub(crate) fn has_asked(&self) -> bool {
        self.asked.get()
    }

    fn moment(&self) -> &Moment<'f> {
        self.moment.get_or_init(|| self.fold.moment(self.streams))
    }

    fn facts(&self) -> &Facts {
        &self.moment().facts
    }

    fn read(&self) -> &dyn Read {
        &*self.moment().read
    }

    fn reader(&self) -> StreamReader<'_> {
        StreamReader::new(self.read())
    }

    fn head(&self, stream: &StreamId) -> Option<&Head> {
        self.moment().heads.get(stream).map(|head| &**head)
    }

    fn history(&self, stream: &StreamId) -> Result<Arc<StreamHistory>, SourceError> {
        if let Some(head) = self.head(stream) {
            return Ok(head.history.clone());
        }
        let Moment { read, histories, .. } = self.moment();
        if let Some(history) = histories.borrow().get(stream) {
            return Ok(history.clone());
        }
        let row = STREAMS.get(&**read, stream).map_err(unreadable)?;
        let history = Arc::new(row.map(|Json(history)| history).unwrap_or_default());
        histories.borrow_mut().insert(stream.clone(), history.clone());
        Ok(history)
    }

    /// When the first of what lies behind `since` was appended, as far as it is known: of a key that
    /// changed again meanwhile, the last time.
    pub(crate) fn changed_ms(
        &self,
        stream: &StreamId,
        since: Seq,
    ) -> Result<Option<i64>, SourceError> {
        let raw_from = self.history(stream)?.raw_from;
        let mut changes =
            CHANGES.rows_of_from(self.read(), stream, &(stream.clone(), since.next()));
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

    /// All entries of a stream, read once for all who give them out.
    fn entries(&self, stream: &StreamId) -> Result<Arc<Entries>, SourceError> {
        let read = || {
            let mut entries = Entries::default();
            self.each_entry(stream, Selection::All, |key, entry| {
                entries.push(key, entry);
                true
            })?;
            Ok(entries)
        };
        // One node's stream has one reader, at one time.
        if matches!(stream, StreamId::Node(_)) {
            return read().map(Arc::new);
        }
        let position = self.reader().position(stream).map_err(unreadable)?;
        self.fold.snapshots.at(stream, position, read)
    }

    /// Calls `each` with every selected entry, in chunks, until it says stop.
    fn each_entry(
        &self,
        stream: &StreamId,
        selection: Selection<'_>,
        mut each: impl FnMut(EntryKey, Entry) -> bool,
    ) -> Result<(), SourceError> {
        let mut after = None;
        loop {
            let chunk = self
                .reader()
                .entries(stream, selection, after.as_ref(), CHUNK_ENTRIES)
                .map_err(unreadable)?;
            let last = chunk.len() < CHUNK_ENTRIES;
            for (key, entry) in chunk {
                after = Some(key.clone());
                if !each(key, entry) {
                    return Ok(());
                }
            }
            if last {
                return Ok(());
            }
        }
    }
}

impl StreamSource for FoldSource<'_> {
    fn log_id(&self) -> Option<LogId> {
        // Before identities are known, a hello could not be answered rightly.
        let facts = self.facts();
        facts.log_id.filter(|_| facts.knows_identities)
    }

    fn may_catch_up(&self) -> bool {
        if !self.has_turn {
            self.asked.set(true);
        }
        self.has_turn
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
            // Who else has read them has read the same.
            let _ = known.set(streams.clone());
        }
        Ok(streams)
    }

    fn known_identity(&self, node: &NodeName) -> Result<Option<Identity>, SourceError> {
        Ok(self.fold.known.of(node))
    }

    fn status(&self, stream: &StreamId) -> Result<FoldStatus, SourceError> {
        let facts = self.facts();
        let log_id = facts.log_id;
        let log_id =
            log_id.ok_or_else(|| SourceError { reason: "no log is folded yet".to_owned() })?;
        let claimed = facts.claimed(stream);
        let nothing = Checkpoint { log_id, epoch: claimed, seq: Seq::ZERO };
        let position = match self.head(stream) {
            Some(head) => Some(head.position),
            None => self.reader().position(stream).map_err(unreadable)?,
        };
        let (mut checkpoint, hash) = position.unwrap_or((nothing, StateHash::EMPTY));
        checkpoint.epoch = checkpoint.epoch.max(claimed);
        let history = self.history(stream)?;
        let readiness = match facts {
            facts if !facts.folded || facts.damaged.contains(stream) => Readiness::Folding,
            facts if !facts.reconciled => Readiness::Folded,
            _ => Readiness::Reconciled,
        };
        let (raw_from, delta_from) = (history.raw_from, history.delta_from);
        Ok(FoldStatus { checkpoint, hash, readiness, raw_from, delta_from })
    }

    fn next_epoch_from(
        &self,
        stream: &StreamId,
        epoch: WriterEpoch,
    ) -> Result<Option<Seq>, SourceError> {
        let history = self.history(stream)?;
        Ok(history.epochs.iter().find(|(above, _)| *above > epoch).map(|(_, first)| *first))
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
        for row in EVENTS.rows_between(self.read(), &first, &end) {
            let ((_, seq), Proto(row)) = row.map_err(unreadable)?;
            let bytes_before = bytes;
            bytes += row.change_bytes();
            if bytes > bytes_max && bytes_before > 0 {
                break;
            }
            let event = row.tail_event(seq);
            events.push(event.map_err(|error| SourceError { reason: error.to_string() })?);
        }
        Ok(events)
    }

    fn delta(&self, stream: &StreamId, since: Seq) -> Result<Box<dyn CatchUp>, SourceError> {
        let first = (stream.clone(), since.next());
        let mut changes = Vec::new();
        for row in CHANGES.rows_of_from(self.read(), stream, &first) {
            let (_, Json(row)) = row.map_err(unreadable)?;
            let traceparent = row.traceparent;
            let change = match row.removed {
                Some(uid) => Change::Removed(Removed { key: row.key, uid }),
                None => {
                    let entry = self.entry(stream, &row.key)?.ok_or_else(|| SourceError {
                        reason: format!("{stream} changed {} but does not hold it", row.key),
                    })?;
                    applied(row.key, entry)
                }
            };
            changes.push(PushedChange { traceparent, ..change.into() });
        }
        Ok(Box::new(Changes::new(changes)))
    }

    fn snapshot(&self, stream: &StreamId) -> Result<Box<dyn CatchUp>, SourceError> {
        Ok(Box::new(Changes::shared(self.entries(stream)?)))
    }

    fn correction(
        &self,
        stream: &StreamId,
        comparison: &mut Comparison,
    ) -> Result<Box<dyn CatchUp>, SourceError> {
        if !matches!(stream, StreamId::Node(_)) {
            return Ok(Box::new(Changes::lacking(self.entries(stream)?, comparison)));
        }
        // What the edge has is not even held.
        let mut changes = Vec::new();
        self.each_entry(stream, Selection::All, |key, entry| {
            let Entry { uid, resource_version, object_hash, .. } = &entry;
            if !comparison.has(&key, uid, resource_version, object_hash) {
                changes.push(applied(key, entry).into());
            }
            true
        })?;
        Ok(Box::new(Changes::new(changes)))
    }

    fn may_request(&self, node: &NodeName, key: &ResourceKey) -> Result<bool, SourceError> {
        let stream = StreamId::node(node);
        if self.entry(&stream, &EntryKey::from(key.clone()))?.is_some() {
            return Ok(true);
        }
        // Named, but not there: the cloud may have it by now.
        let mut named = false;
        self.each_entry(&stream, Selection::Kind("pod"), |pod, entry| {
            let object = serde_json::from_slice(&entry.object).unwrap_or_default();
            named = pod.resource().is_some_and(|pod| {
                references(pod, &object).iter().any(|reference| &reference.key == key)
            });
            !named
        })?;
        Ok(named)
    }
}

fn unreadable(error: EngineError) -> SourceError {
    SourceError { reason: error.to_string() }
}
