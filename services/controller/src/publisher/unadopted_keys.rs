//! The objects whose published UIDs this controller has still to adopt.
//!
//! A standby adopts every UID once, when its sources have listed. From then on it notes what another
//! writer publishes and what its own sources change, so a take-over adopts these alone.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{BodyAddress, Envelope, Event, ResourceKey, StreamId, WriterEpoch};
use headwater_follow::{BodyReferences, DerivedRows};
use headwater_store::EngineError;
use headwater_view::{Continuity, StreamState};

use crate::picture::DepartedPods;

/// With more keys than this, some 15 MB, everything is adopted again.
const KEYS_MAX: usize = 100_000;

/// The keys, as the fold of the log and the intake note them. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnadoptedKeys(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    scope: AdoptionScope,
    /// The epochs of this controller since another one wrote.
    own: RangeInclusive<WriterEpoch>,
}

/// What is to be adopted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum AdoptionScope {
    /// Every key.
    #[default]
    Everything,
    /// These keys, each with the stream of its last event, if one was read.
    Keys(HashMap<ResourceKey, Option<StreamId>>),
}

/// The rows of the log's fold, and what it notes.
pub(crate) struct PublishedRows {
    pub(super) references: BodyReferences,
    pub(super) unadopted: UnadoptedKeys,
    pub(super) departed: DepartedPods,
}

impl UnadoptedKeys {
    /// Notes the key of an event of another writer.
    fn note_event(&self, envelope: &Envelope) {
        let Some(key) = envelope.event.key().and_then(|key| key.resource()) else { return };
        let mut state = self.lock();
        if state.own.contains(&envelope.epoch) {
            return;
        }
        // A removal from one stream leaves the object in others.
        let stream = matches!(envelope.event, Event::Applied(_)).then(|| envelope.stream.clone());
        state.note(key, stream);
    }

    /// Notes an object that a source of this controller has changed.
    pub(super) fn note_change(&self, key: &ResourceKey) {
        self.lock().note(key, None);
    }

    /// Notes that every key is to be adopted.
    pub(super) fn note_everything(&self) {
        self.lock().scope = AdoptionScope::Everything;
    }

    /// Notes the epoch of this controller's claim. `is_takeover`: another controller may have written since
    /// the claim before.
    pub(super) fn note_claim(&self, own: WriterEpoch, is_takeover: bool) {
        let mut state = self.lock();
        let first = if is_takeover { own } else { (*state.own.start()).min(own) };
        state.own = first..=own;
    }

    /// Forgets the keys that sources alone have noted, and an adoption of everything. Returns whether
    /// keys of events are left.
    pub(super) fn retain_events(&self) -> bool {
        let mut state = self.lock();
        match &mut state.scope {
            AdoptionScope::Everything => state.scope = AdoptionScope::Keys(HashMap::new()),
            AdoptionScope::Keys(keys) => keys.retain(|_, stream| stream.is_some()),
        }
        state.scope != AdoptionScope::Keys(HashMap::new())
    }

    /// Whether every key is to be adopted.
    pub(super) fn is_everything(&self) -> bool {
        self.lock().scope == AdoptionScope::Everything
    }

    /// Takes what is to be adopted. Nothing is left.
    pub(super) fn take(&self) -> AdoptionScope {
        let nothing = AdoptionScope::Keys(HashMap::new());
        std::mem::replace(&mut self.lock().scope, nothing)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for State {
    fn default() -> Self {
        // No epoch.
        let own = WriterEpoch(u64::MAX)..=WriterEpoch(0);
        Self { scope: AdoptionScope::default(), own }
    }
}

impl State {
    fn note(&mut self, key: &ResourceKey, stream: Option<StreamId>) {
        let AdoptionScope::Keys(keys) = &mut self.scope else { return };
        if let Some(known) = keys.get_mut(key) {
            *known = stream.or_else(|| known.take());
        } else if keys.len() < KEYS_MAX {
            keys.insert(key.clone(), stream);
        } else {
            self.scope = AdoptionScope::Everything;
        }
    }
}

impl DerivedRows for PublishedRows {
    fn derive(
        &mut self,
        envelope: &Envelope,
        continuity: Continuity,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        self.unadopted.note_event(envelope);
        self.departed.derive(envelope, state)?;
        self.references.derive(envelope, continuity, state)
    }

    fn body_added(
        &mut self,
        body: &BodyAddress,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        self.references.body_added(body, state)
    }

    fn body_retired(
        &mut self,
        body: &BodyAddress,
        state: &mut StreamState,
    ) -> Result<(), EngineError> {
        self.references.body_retired(body, state)
    }

    fn reset(&mut self) {
        self.unadopted.note_everything();
        self.references.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ResourceKey {
        format!("d/pod/{name}").parse().expect("a key")
    }

    #[test]
    fn after_everything_was_adopted_only_what_changes_is_left() {
        let keys = UnadoptedKeys::default();
        keys.note_change(&key("a"));
        assert_eq!(keys.take(), AdoptionScope::Everything);
        assert!(!keys.is_everything());
        keys.note_change(&key("a"));
        let stream: StreamId = "node/n".parse().expect("a stream");
        keys.lock().note(&key("b"), Some(stream.clone()));
        // Its source changes it too, and it is still where it was.
        keys.note_change(&key("b"));
        let expected = HashMap::from([(key("a"), None), (key("b"), Some(stream))]);
        assert_eq!(keys.take(), AdoptionScope::Keys(expected));
        assert_eq!(keys.take(), AdoptionScope::Keys(HashMap::new()));
    }

    #[test]
    fn more_keys_than_memory_is_spared_for_are_everything() {
        let keys = UnadoptedKeys::default();
        let _ = keys.take();
        for number in 0..=KEYS_MAX {
            keys.note_change(&key(&format!("p{number}")));
        }
        assert!(keys.is_everything());
    }
}
