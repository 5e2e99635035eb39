//! What an event changes, as a patch: made once, when the event is folded, for every session that
//! tells it in a tail.
//!
//! An update is said against the object that the entry had, a new entry against the last one of
//! its kind in the stream: the pods of one node look much alike. Whoever takes the event in a tail
//! stands right before it, so that it has the base, byte for byte.

use std::collections::HashMap;

use bytes::Bytes;
use headwater_event::{Applied, EntryKey, Envelope, Event, StreamId};
use headwater_object::patch::patch;
use headwater_store::EngineError;
use headwater_view::{Continuity, StreamState};

/// Kinds of streams of which the last entry is remembered, about 150 bytes each. Above it all are
/// forgotten, and the next entry of each goes whole.
const NEWEST_MAX: usize = 65_536;

/// An object said as a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    /// The entry with the object that it is a patch of; `None`: the one that it changes.
    pub(super) base: Option<EntryKey>,
    pub(super) bytes: Bytes,
}

/// Makes them.
#[derive(Debug, Default)]
pub(super) struct Patches {
    /// By stream and kind, the entry that was applied last.
    newest: HashMap<(StreamId, String), EntryKey>,
}

impl Patches {
    /// The object that `envelope` brings as a patch against what `state` holds before it, where
    /// that is worth its while.
    pub(super) fn patch(
        &mut self,
        envelope: &Envelope,
        continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<Option<Patch>, EngineError> {
        let Event::Applied(applied) = &envelope.event else { return Ok(None) };
        // Over a hole the state is not what is right before the event.
        let Some(key) = applied.key.resource().filter(|_| continuity == Continuity::Dense) else {
            return Ok(None);
        };
        let kind = (envelope.stream.clone(), key.kind().to_owned());
        if self.newest.len() >= NEWEST_MAX && !self.newest.contains_key(&kind) {
            self.newest.clear();
        }
        let alike = self.newest.insert(kind, applied.key.clone());
        let stream = &envelope.stream;
        if let Some(before) = state.entry(stream, &applied.key)? {
            let same = before.uid == applied.uid;
            return Ok(same.then(|| of(None, &before.object, applied)).flatten());
        }
        let Some(alike) = alike else { return Ok(None) };
        let base = state.entry(stream, &alike)?;
        Ok(base.and_then(|base| of(Some(alike), &base.object, applied)))
    }
}

fn of(base: Option<EntryKey>, before: &[u8], applied: &Applied) -> Option<Patch> {
    patch(before, &applied.object).map(|bytes| Patch { base, bytes })
}
