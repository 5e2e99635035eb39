//! The ends of streams and their last events, in memory: what a session asks for that keeps up, so
//! that to push an event nothing is read of the store.
//!
//! ```text
//!  absent ───an event───► moving ──committed──► shown
//!    ▲                       ▲                    │
//!    │                       └──────an event──────┤
//!    └──the fold is not dense, is lost, too many──┘
//! ```
//!
//! A head is taken away before what moves its stream is written. So who finds it shown, and takes a
//! snapshot of the store under the same lock, has both of one moment.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use headwater_event::{Checkpoint, EntryKey, Seq, StateHash, StreamId};
use headwater_session::TailEvent;
use headwater_store::{EngineError, Json, Read};
use headwater_view::{PositionChanges, StreamReader};

use super::history::{STREAMS, StreamHistory};

/// How much is remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Streams of which the end is remembered, about 300 bytes each. Above it all are forgotten,
    /// and read of the store when they are asked for.
    pub(super) streams_max: usize,
    /// What the events of all streams may weigh together.
    pub(super) bytes_max: u64,
    /// Events remembered at most: about 300 bytes each beside what they weigh.
    pub(super) events_max: usize,
}

impl Default for Bounds {
    /// Who keeps up wants the last event or two of a stream; a burst of a thousand pods of 2 KB
    /// fits in twice.
    fn default() -> Self {
        Self { streams_max: 65_536, bytes_max: 4 << 20, events_max: 8_192 }
    }
}

/// Where a stream ends: what its rows in the store say, and its last events.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) position: (Checkpoint, StateHash),
    pub(super) history: Arc<StreamHistory>,
    /// The streams of the node whose private one this is, once somebody has read them.
    pub(super) streams: OnceLock<BTreeSet<StreamId>>,
    events: Events,
}

/// The last events of a stream without a gap, the newest last.
#[derive(Clone, Debug, Default)]
struct Events(VecDeque<(u64, Arc<TailEvent>)>);

/// What an event makes of a head.
pub(super) struct Told {
    pub(super) event: TailEvent,
    /// What the event counts as, with its object whole.
    pub(super) bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Newest {
    bounds: Bounds,
    heads: Mutex<Heads>,
}

#[derive(Debug, Default)]
struct Heads {
    shown: HashMap<StreamId, Arc<Head>>,
    moving: HashMap<StreamId, Moving>,
    /// What all events weigh.
    bytes: u64,
    /// Whose events these are, the oldest first. Of streams that were forgotten too: then somebody's
    /// event goes a little early.
    order: VecDeque<StreamId>,
}

/// A head whose stream an open batch moves.
#[derive(Debug, Default)]
struct Moving {
    history: Arc<StreamHistory>,
    streams: OnceLock<BTreeSet<StreamId>>,
    events: Events,
}

impl Newest {
    /// Nothing is remembered yet.
    #[cfg(test)]
    pub(super) fn within(bounds: Bounds) -> Self {
        Self { bounds, heads: Mutex::default() }
    }

    /// What is known of the history of a stream, the open batch included.
    pub(super) fn history(&self, stream: &StreamId) -> Option<Arc<StreamHistory>> {
        let heads = self.lock();
        let moving = heads.moving.get(stream).map(|moving| &moving.history);
        moving.or_else(|| heads.shown.get(stream).map(|head| &head.history)).cloned()
    }

    /// An event of `stream` is about to be written. It continues those before it.
    pub(super) fn accepted(&self, stream: &StreamId, told: Told, history: StreamHistory) {
        let mut heads = self.lock();
        let mut moving = heads.take(stream).unwrap_or_default();
        let is_assignment = told
            .event
            .change
            .as_ref()
            .is_some_and(|change| change.change.key() == &EntryKey::Streams);
        if is_assignment {
            moving.streams = OnceLock::new();
        }
        moving.history = Arc::new(history);
        if !moving.events.ends_before(told.event.seq) {
            heads.bytes -= moving.events.bytes();
            moving.events = Events::default();
        }
        heads.bytes += told.bytes;
        moving.events.0.push_back((told.bytes, Arc::new(told.event)));
        heads.moving.insert(stream.clone(), moving);
        heads.order.push_back(stream.clone());
        heads.forget_above(&self.bounds);
    }

    /// What moves `stream` is about to be written, and events before it may be missing.
    pub(super) fn forget(&self, stream: &StreamId) {
        let mut heads = self.lock();
        if let Some(moving) = heads.take(stream) {
            heads.bytes -= moving.events.bytes();
        }
    }

    /// What was about to be written is; these streams are there now.
    pub(super) fn committed(&self, moved: &PositionChanges) {
        let mut heads = self.lock();
        for (stream, moving) in std::mem::take(&mut heads.moving) {
            let Moving { history, streams, events } = moving;
            match moved.get(&stream) {
                Some(Some(position)) => {
                    let head = Head { position: *position, history, streams, events };
                    heads.shown.insert(stream, Arc::new(head));
                }
                _ => heads.bytes -= events.bytes(),
            }
        }
    }

    /// Nothing of what is remembered holds any more.
    pub(super) fn clear(&self) {
        *self.lock() = Heads::default();
    }

    /// Remembers the end of every stream in the store. Nobody writes to it meanwhile.
    ///
    /// # Errors
    /// As [`Read::scan`].
    pub(super) fn load(&self, from: &dyn Read) -> Result<(), EngineError> {
        for at in StreamReader::new(from).streams()? {
            let history = STREAMS.get(from, &at.stream)?;
            let history = Arc::new(history.map(|Json(history)| history).unwrap_or_default());
            let mut heads = self.lock();
            if heads.shown.len() >= self.bounds.streams_max {
                return Ok(());
            }
            heads.shown.entry(at.stream).or_insert_with(|| {
                let position = (at.checkpoint, at.hash);
                let (streams, events) = (OnceLock::new(), Events::default());
                Arc::new(Head { position, history, streams, events })
            });
        }
        Ok(())
    }

    /// The heads of `streams` that are shown, and what `look` sees in the store at that moment.
    pub(super) fn with<T>(
        &self,
        streams: Option<&BTreeSet<StreamId>>,
        look: impl FnOnce() -> T,
    ) -> (BTreeMap<StreamId, Arc<Head>>, T) {
        let heads = self.lock();
        let streams = streams.into_iter().flatten();
        let shown = streams.filter_map(|stream| heads.shown.get_key_value(stream));
        let shown = shown.map(|(stream, head)| (stream.clone(), head.clone())).collect();
        (shown, look())
    }

    fn lock(&self) -> MutexGuard<'_, Heads> {
        // Nobody panics with it; a poisoned one is still whole.
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Head {
    /// The events of `(from, to]`, cut where they exceed `bytes_max` but at least one; `None` where
    /// not all of them are remembered.
    pub(super) fn events(&self, from: Seq, to: Seq, bytes_max: u64) -> Option<Vec<TailEvent>> {
        let Events(events) = &self.events;
        let first = events.front()?.1.seq;
        let skipped = from.next().0.checked_sub(first.0)?;
        let mut taken = Vec::new();
        let mut bytes = 0;
        for (weight, event) in events.iter().skip(usize::try_from(skipped).ok()?) {
            bytes += weight;
            if event.seq > to || (bytes > bytes_max && !taken.is_empty()) {
                break;
            }
            taken.push(TailEvent::clone(event));
        }
        Some(taken)
    }
}

impl Events {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(bytes, _)| bytes).sum()
    }

    /// Whether an event of this seq continues them.
    fn ends_before(&self, seq: Seq) -> bool {
        self.0.back().is_none_or(|(_, last)| last.seq.next() == seq)
    }
}

impl Heads {
    /// Takes away what is remembered of a stream.
    fn take(&mut self, stream: &StreamId) -> Option<Moving> {
        let shown = self.shown.remove(stream).map(Arc::unwrap_or_clone);
        let shown =
            shown.map(|Head { history, streams, events, .. }| Moving { history, streams, events });
        shown.or_else(|| self.moving.remove(stream))
    }

    fn forget_above(&mut self, bounds: &Bounds) {
        while self.bytes > bounds.bytes_max || self.order.len() > bounds.events_max {
            let Some(stream) = self.order.pop_front() else { break };
            let events = match self.moving.get_mut(&stream) {
                Some(moving) => Some(&mut moving.events),
                None => self.shown.get_mut(&stream).map(|head| &mut Arc::make_mut(head).events),
            };
            let gone = events.and_then(|events| events.0.pop_front());
            self.bytes -= gone.map_or(0, |(bytes, _)| bytes);
        }
        if self.shown.len() >= bounds.streams_max {
            let gone = std::mem::take(&mut self.shown);
            self.bytes -= gone.values().map(|head| head.events.bytes()).sum::<u64>();
        }
    }
}
