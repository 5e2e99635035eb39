//! Each event as a patch, made once when the event is folded, for every session that pushes it in
//! a tail.
//!
//! The patch of an update applies to the object that the entry had. The patch of a new entry
//! applies to the newest entry of its kind in the stream: the pods of one node are much alike. An
//! edge that receives the event in a tail is at the position right before it and therefore has the
//! base, byte for byte.

use std::collections::HashMap;

use bytes::Bytes;
use headwater_event::{Applied, BodyAddress, EntryKey, Envelope, Event, StreamId};
use headwater_object::patch::create_patch;
use headwater_store::EngineError;
use headwater_view::{Continuity, StreamState};

/// Kinds of streams whose newest entry is kept, about 150 bytes each. Above it all are discarded,
/// and the next entry of each kind is pushed whole.
const KINDS_MAX: usize = 65_536;

/// An object as a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    /// The entry whose object is the base; `None`: the entry that the event changes.
    pub(super) base: Option<EntryKey>,
    pub(super) bytes: Bytes,
}

/// Makes patches.
#[derive(Debug, Default)]
pub(super) struct Patches {
    /// By stream and kind: the entry that was applied last.
    newest: HashMap<(StreamId, String), EntryKey>,
    /// The patch between two bodies that was made last: a change of a shared object is an event of
    /// many streams, one after the other.
    between_bodies: Option<((BodyAddress, BodyAddress), Option<Patch>)>,
}

impl Patches {
    /// The object of `envelope` as a patch of an object in `state`, which is right before the
    /// event; `None` if the whole object is as good.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub(super) fn patch(
        &mut self,
        envelope: &Envelope,
        continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<Option<Patch>, EngineError> {
        let Event::Applied(applied) = &envelope.event else { return Ok(None) };
        // If events are missing, the state is not the one right before the event.
        let Some(key) = applied.key.resource().filter(|_| continuity == Continuity::Dense) else {
            return Ok(None);
        };
        let kind = (envelope.stream.clone(), key.kind().to_owned());
        if self.newest.len() >= KINDS_MAX && !self.newest.contains_key(&kind) {
            self.newest.clear();
        }
        let similar = self.newest.insert(kind, applied.key.clone());
        let stream = &envelope.stream;
        if let Some(before) = state.entry_summary(stream, &applied.key)? {
            if before.uid != applied.uid {
                return Ok(None);
            }
            let bodies = before.body.zip(envelope.shared.map(|shared| shared.body));
            if let Some((of, patch)) = &self.between_bodies
                && Some(*of) == bodies
            {
                return Ok(patch.clone());
            }
            let before = state.entry(stream, &applied.key)?;
            let patch = before.and_then(|before| patch_of(None, &before.object, applied));
            if let Some(bodies) = bodies {
                self.between_bodies = Some((bodies, patch.clone()));
            }
            return Ok(patch);
        }
        let Some(similar) = similar else { return Ok(None) };
        let base = state.entry(stream, &similar)?;
        Ok(base.and_then(|base| patch_of(Some(similar), &base.object, applied)))
    }
}

fn patch_of(base: Option<EntryKey>, before: &[u8], applied: &Applied) -> Option<Patch> {
    create_patch(before, &applied.object).map(|bytes| Patch { base, bytes })
}
