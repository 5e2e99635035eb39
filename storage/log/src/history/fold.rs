//! Folds the events of one stream and decides which of its states are available.
//!
//! A state is complete if its hash equals the hash that its writer recorded. A state without an
//! entry that compaction has dropped has another hash.

use std::collections::BTreeMap;

use headwater_event::record::LogMetadata;
use headwater_event::{
    EntryKey, Envelope, Event, HashKey, ObjectHash, Seq, StateHash, StreamId, WriterEpoch,
};

use super::{HistoryError, PastEntry, PastState, Until};

pub(super) struct StreamFold {
    stream: StreamId,
    hash_key: HashKey,
    until: Until,
    state: PastState,
    hashes: BTreeMap<EntryKey, ObjectHash>,
    /// The hash that the last event carries.
    recorded: StateHash,
    /// The wanted state is not available. The fold continues to the first state that is.
    missed: bool,
    /// The reason why the stream is stopped, if it is.
    stopped: Option<HistoryError>,
}

impl StreamFold {
    pub(super) fn new(stream: StreamId, metadata: &LogMetadata, until: Until) -> Self {
        let state = PastState {
            seq: Seq::ZERO,
            epoch: WriterEpoch::default(),
            time_ms: 0,
            hash: StateHash::EMPTY,
            entries: BTreeMap::new(),
        };
        Self {
            stream,
            hash_key: HashKey::new(&metadata.log_id),
            until,
            state,
            hashes: BTreeMap::new(),
            recorded: StateHash::EMPTY,
            missed: false,
            stopped: None,
        }
    }

    /// Stops the stream until a later epoch resumes it.
    pub(super) fn stop(&mut self, why: HistoryError) {
        self.stopped = Some(why);
    }

    /// Applies the next event. Returns the result once it is known.
    pub(super) fn take(&mut self, envelope: Envelope) -> Option<Result<PastState, HistoryError>> {
        self.stopped = None;
        if envelope.seq <= self.state.seq {
            // The next writer goes back to the hole: the events after it do not count.
            self.missed = false;
        } else if !self.missed && self.is_behind(&envelope) {
            if self.can_be_shown(envelope.seq) {
                return Some(Ok(self.state.clone()));
            }
            self.missed = true;
        }
        self.apply(envelope);
        if self.missed && self.is_whole() {
            let earliest = Some((self.state.seq, self.state.time_ms));
            return Some(Err(self.compacted(earliest)));
        }
        None
    }

    /// Returns the result when there is no further event.
    pub(super) fn end(mut self) -> Result<PastState, HistoryError> {
        let (stream, tail) = (self.stream.clone(), self.state.seq);
        match self.until {
            _ if self.missed => Err(self.compacted(None)),
            Until::Seq(wanted) if wanted > tail => {
                let not_reached = HistoryError::NotReached { stream, wanted, tail };
                Err(self.stopped.take().unwrap_or(not_reached))
            }
            Until::Tail => match self.stopped.take() {
                Some(stopped) => Err(stopped),
                None if self.is_whole() => Ok(self.state),
                None => {
                    let (folded, recorded) = (self.state.hash, self.recorded);
                    Err(HistoryError::Diverged { stream, seq: tail, folded, recorded })
                }
            },
            _ if self.is_whole() => Ok(self.state),
            Until::Seq(_) | Until::Time(_) => Err(self.compacted(None)),
        }
    }

    /// Whether `envelope` lies after the wanted position.
    fn is_behind(&self, envelope: &Envelope) -> bool {
        match self.until {
            Until::Seq(wanted) => envelope.seq > wanted,
            Until::Time(wanted_ms) => envelope.time_ms > wanted_ms,
            Until::Tail => false,
        }
    }

    /// Whether the state is the wanted one and complete; `next` is the seq of the event after it.
    fn can_be_shown(&self, next: Seq) -> bool {
        let last_is_there = match self.until {
            Until::Seq(wanted) => self.state.seq == wanted,
            Until::Time(_) => self.state.seq.next() == next,
            Until::Tail => true,
        };
        last_is_there && self.is_whole()
    }

    /// Whether the state is complete.
    pub(super) fn is_whole(&self) -> bool {
        self.state.hash == self.recorded
    }

    /// Applies the next event, whatever state is wanted.
    pub(super) fn apply(&mut self, envelope: Envelope) {
        let Envelope { seq, epoch, time_ms, hash, event, .. } = envelope;
        let state = &mut self.state;
        (state.seq, state.epoch, state.time_ms, self.recorded) = (seq, epoch, time_ms, hash);
        let Some(key) = event.key() else { return };
        if let Some(before) = self.hashes.remove(key) {
            state.hash.subtract(&self.hash_key, key, &before);
            state.entries.remove(key);
        }
        if let Event::Applied(applied) = event {
            let (key, object) = (applied.key.clone(), ObjectHash::of(&applied.object));
            state.hash.add(&self.hash_key, &key, &object);
            self.hashes.insert(key.clone(), object);
            state.entries.insert(key, PastEntry { seq, time_ms, applied });
        }
    }

    fn compacted(&self, earliest: Option<(Seq, i64)>) -> HistoryError {
        let wanted = match self.until {
            Until::Seq(seq) => format!("seq {seq}"),
            Until::Time(time_ms) => format!("{time_ms} ms since the epoch"),
            Until::Tail => "its end".to_owned(),
        };
        HistoryError::Compacted { stream: self.stream.clone(), wanted, earliest }
    }
}
