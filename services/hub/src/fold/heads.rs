//! The ends of streams and their newest events, in memory: a session that keeps up reads nothing
//! from the store.
//!
//! ```text
//!  absent ───an event───► pending ──committed──► visible
//!    ▲                       ▲                     │
//!    │                       └───────an event──────┤
//!    └──── not dense, fold suspended, over bounds ─┘
//! ```
//!
//! A head leaves `visible` before the batch that moves its stream is written. A reader that takes
//! heads and a snapshot of the store under the same lock therefore has both of one moment.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use headwater_event::{Checkpoint, EntryKey, Seq, StateHash, StreamId};
use headwater_session::TailEvent;
use headwater_store::{EngineError, Json, Read};
use headwater_view::{PositionChanges, StreamReader};

use super::history_rows::{STREAMS, StreamHistory};
use super::shared_tails::SharedTails;

/// How much is kept in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadBounds {
    /// Streams whose end is kept, about 300 bytes each. Above it all heads are discarded; a
    /// session then reads the end from the store.
    pub(super) streams_max: usize,
    /// Bytes of the events of all streams together.
    pub(super) bytes_max: u64,
    /// Events of all streams together, about 300 bytes each besides their objects.
    pub(super) events_max: usize,
}

impl Default for HeadBounds {
    /// A session that keeps up reads the last event or two of a stream; a burst of a thousand
    /// pods of 2 KB fits twice.
    fn default() -> Self {
        Self { streams_max: 65_536, bytes_max: 4 << 20, events_max: 8_192 }
    }
}

/// The end of a stream: the content of its rows in the store, and its newest events.
#[derive(Clone, Debug)]
pub(super) struct StreamHead {
    pub(super) position: (Checkpoint, StateHash),
    pub(super) history: Arc<StreamHistory>,
    /// Of a private stream: the streams of its node, once a session has read them.
    pub(super) streams: OnceLock<BTreeSet<StreamId>>,
    /// Of a shared stream: the pushes to this end.
    pub(super) tails: Option<Arc<SharedTails>>,
    events: Events,
}

/// The newest events of a stream without a gap, with their bytes; the newest last.
#[derive(Clone, Debug, Default)]
struct Events(VecDeque<(u64, Arc<TailEvent>)>);

/// An event of a head.
pub(super) struct SizedEvent {
    pub(super) event: TailEvent,
    /// Its bytes in a push, with the whole object.
    pub(super) bytes: u64,
}

/// The heads of all streams; see the module.
#[derive(Debug, Default)]
pub(super) struct StreamHeads {
    bounds: HeadBounds,
    heads: Mutex<HeadTable>,
}

#[derive(Debug, Default)]
struct HeadTable {
    visible: HashMap<StreamId, Arc<StreamHead>>,
    pending: HashMap<StreamId, PendingHead>,
    /// The bytes of all events.
    bytes: u64,
    /// The stream of each event, the oldest first. A stream whose head was discarded stays in it;
    /// its entry then evicts an event of another stream a little early.
    order: VecDeque<StreamId>,
}

/// A head whose stream the open batch moves.
#[derive(Debug, Default)]
struct PendingHead {
    history: Arc<StreamHistory>,
    streams: OnceLock<BTreeSet<StreamId>>,
    events: Events,
}

impl StreamHeads {
    /// No heads yet.
    #[cfg(test)]
    pub(super) fn within(bounds: HeadBounds) -> Self {
        Self { bounds, heads: Mutex::default() }
    }

    /// The history of a stream, including the open batch.
    pub(super) fn history(&self, stream: &StreamId) -> Option<Arc<StreamHistory>> {
        let heads = self.lock();
        let pending = heads.pending.get(stream).map(|pending| &pending.history);
        pending.or_else(|| heads.visible.get(stream).map(|head| &head.history)).cloned()
    }

    /// The open batch will write an event of `stream` that continues the ones before it.
    pub(super) fn accepted(
        &self,
        stream: &StreamId,
        accepted: SizedEvent,
        history: Arc<StreamHistory>,
    ) {
        let SizedEvent { event, bytes } = accepted;
        let mut heads = self.lock();
        let mut pending = heads.take(stream).unwrap_or_default();
        let change = event.change.as_ref();
        if change.is_some_and(|pushed| pushed.change.key() == &EntryKey::Streams) {
            pending.streams = OnceLock::new();
        }
        pending.history = history;
        if !pending.events.ends_before(event.seq) {
            heads.bytes -= pending.events.bytes();
            pending.events = Events::default();
        }
        heads.bytes += bytes;
        pending.events.0.push_back((bytes, Arc::new(event)));
        heads.pending.insert(stream.clone(), pending);
        heads.order.push_back(stream.clone());
        heads.evict(&self.bounds);
    }

    /// The open batch will move `stream`, and events may be missing before its new end.
    pub(super) fn discard(&self, stream: &StreamId) {
        let mut heads = self.lock();
        if let Some(pending) = heads.take(stream) {
            heads.bytes -= pending.events.bytes();
        }
    }

    /// The open batch is written; `moved` has the new ends.
    pub(super) fn committed(&self, moved: &PositionChanges) {
        let mut heads = self.lock();
        for (stream, pending) in std::mem::take(&mut heads.pending) {
            let PendingHead { history, streams, events } = pending;
            match moved.get(&stream) {
                Some(Some(position)) => {
                    let (position, tails) = (*position, shared_tails(&stream));
                    let head = StreamHead { position, history, streams, tails, events };
                    heads.visible.insert(stream, Arc::new(head));
                }
                _ => heads.bytes -= events.bytes(),
            }
        }
    }

    /// Discards every head.
    pub(super) fn clear(&self) {
        *self.lock() = HeadTable::default();
    }

    /// Loads the end of every stream from the store, while nothing writes to it.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub(super) fn load(&self, from: &dyn Read) -> Result<(), EngineError> {
        // One scan costs far less than a read of each row: after a first fold, each looks into many files.
        let mut histories = HashMap::new();
        for row in STREAMS.rows(from) {
            let (stream, Json(history)) = row?;
            histories.insert(stream, history);
        }
        for at in StreamReader::new(from).streams()? {
            let history = Arc::new(histories.remove(&at.stream).unwrap_or_default());
            let mut heads = self.lock();
            if heads.visible.len() >= self.bounds.streams_max {
                return Ok(());
            }
            let tails = shared_tails(&at.stream);
            heads.visible.entry(at.stream).or_insert_with(|| {
                let position = (at.checkpoint, at.hash);
                let (streams, events) = (OnceLock::new(), Events::default());
                Arc::new(StreamHead { position, history, streams, tails, events })
            });
        }
        Ok(())
    }

    /// The visible heads of `streams`, and the result of `read_store` at the same moment.
    pub(super) fn with<T>(
        &self,
        streams: &[StreamId],
        read_store: impl FnOnce() -> T,
    ) -> (Vec<(StreamId, Arc<StreamHead>)>, T) {
        let heads = self.lock();
        let visible = streams.iter().filter_map(|stream| heads.visible.get_key_value(stream));
        let visible = visible.map(|(stream, head)| (stream.clone(), head.clone())).collect();
        (visible, read_store())
    }

    fn lock(&self) -> MutexGuard<'_, HeadTable> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamHead {
    /// The events of `(from, to]`, at least one, cut before they exceed `bytes_max`; `None` if
    /// some of them are not kept.
    pub(super) fn events(&self, from: Seq, to: Seq, bytes_max: u64) -> Option<Vec<TailEvent>> {
        let Events(events) = &self.events;
        let first = events.front()?.1.seq;
        let skipped = from.next().0.checked_sub(first.0)?;
        let mut taken = Vec::new();
        let mut bytes = 0;
        for (event_bytes, event) in events.iter().skip(usize::try_from(skipped).ok()?) {
            bytes += event_bytes;
            if event.seq > to || (bytes > bytes_max && !taken.is_empty()) {
                break;
            }
            taken.push(TailEvent::clone(event));
        }
        Some(taken)
    }
}

/// The pushes of a head; a private stream has one session.
fn shared_tails(stream: &StreamId) -> Option<Arc<SharedTails>> {
    (!matches!(stream, StreamId::Node(_))).then(Arc::default)
}

impl Events {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(bytes, _)| bytes).sum()
    }

    /// Whether the event of `seq` continues these.
    fn ends_before(&self, seq: Seq) -> bool {
        self.0.back().is_none_or(|(_, last)| last.seq.next() == seq)
    }
}

impl HeadTable {
    /// Removes the head of a stream.
    fn take(&mut self, stream: &StreamId) -> Option<PendingHead> {
        let visible = self.visible.remove(stream).map(Arc::unwrap_or_clone);
        let visible = visible.map(|StreamHead { history, streams, events, .. }| PendingHead {
            history,
            streams,
            events,
        });
        visible.or_else(|| self.pending.remove(stream))
    }

    /// Discards the oldest events, and then heads, above the bounds.
    fn evict(&mut self, bounds: &HeadBounds) {
        while self.bytes > bounds.bytes_max || self.order.len() > bounds.events_max {
            let Some(stream) = self.order.pop_front() else { break };
            let events = match self.pending.get_mut(&stream) {
                Some(pending) => Some(&mut pending.events),
                None => self.visible.get_mut(&stream).map(|head| &mut Arc::make_mut(head).events),
            };
            let evicted = events.and_then(|events| events.0.pop_front());
            self.bytes -= evicted.map_or(0, |(bytes, _)| bytes);
        }
        if self.visible.len() >= bounds.streams_max {
            let discarded = std::mem::take(&mut self.visible);
            self.bytes -= discarded.values().map(|head| head.events.bytes()).sum::<u64>();
        }
    }
}
