//! The objects that came over the socket and were not deleted, and their UIDs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use headwater_event::ResourceKey;
use headwater_object::Object;
use headwater_telemetry::error_chain;
use serde_json::Value;

use super::line::Request;
use crate::source::identity::immutable_digest;
use crate::source::manifest::origin::is_from_manifest;
use crate::source::{Cause, PublishedObject, SourceEvent};

/// Every object of the socket.
#[derive(Debug, Default)]
pub(crate) struct State {
    objects: HashMap<ResourceKey, SentObject>,
}

/// An object that an earlier run published, and what the socket keeps of it.
#[derive(Debug)]
pub(super) struct RestoredObject {
    object: Object,
    sent: SentObject,
}

/// As much of a sent object as decides about the next one of its key.
#[derive(Debug)]
struct SentObject {
    uid: Box<str>,
    immutable: blake3::Hash,
    content: blake3::Hash,
    /// Whether a published object names it, where this is found out.
    is_needed: bool,
}

impl State {
    /// Restores the object at `key` that an earlier run published; `None` for one of a manifest, and
    /// for one that is restored.
    fn restore(&mut self, key: ResourceKey, published: &PublishedObject) -> Option<Object> {
        if self.has(&key) {
            return None;
        }
        let restored = RestoredObject::of(&key, published)?;
        self.insert(key, restored)
    }

    /// Whether there is an object at `key`.
    pub(super) fn has(&self, key: &ResourceKey) -> bool {
        self.objects.contains_key(key)
    }

    /// Takes up a restored object, unless there is one at `key`.
    pub(super) fn insert(&mut self, key: ResourceKey, restored: RestoredObject) -> Option<Object> {
        let Entry::Vacant(none) = self.objects.entry(key) else { return None };
        none.insert(restored.sent);
        Some(restored.object)
    }

    /// [Restores](State::restore) the object at `key`, and takes it out of the state `before`. Returns what
    /// this changes. An object that is published as it was accepted is not parsed.
    pub(super) fn continue_from(
        &mut self,
        before: &mut Self,
        key: ResourceKey,
        published: &PublishedObject,
    ) -> Vec<SourceEvent> {
        let content = content_of(&published.resource_version, &published.payload);
        let is_same = |was: &SentObject| *was.uid == *published.uid && was.content == content;
        if before.objects.get(&key).is_some_and(is_same) {
            self.objects.extend(before.objects.remove_entry(&key));
            return Vec::new();
        }
        let Some(object) = self.restore(key.clone(), published) else { return Vec::new() };
        let was = before.objects.remove(&key);
        if was.as_ref().zip(self.objects.get(&key)).is_some_and(|(was, now)| was.is_as(now)) {
            return Vec::new();
        }
        let replaced = was.filter(|was| *was.uid != *object.uid());
        let mut events: Vec<_> = replaced.map(|was| was.deletion(key)).into_iter().collect();
        events.push(SourceEvent::Apply(object, Cause::default()));
        events
    }

    /// Whether there are objects that may be in no stream because no object needs them.
    pub(super) fn may_be_unused(&self) -> bool {
        self.objects.keys().any(|key| !is_pod(key))
    }

    /// Notes that a published object needs what it names.
    pub(super) fn note_needs(&mut self, published: &PublishedObject) {
        let Ok(object) = Object::from_published(&mut published.versioned_value()) else { return };
        for reference in object.references() {
            if let Some(needed) = self.objects.get_mut(&reference.key) {
                needed.is_needed = true;
            }
        }
    }

    /// Takes the objects of the state `before` that are not published and that no published object needs: they may be in
    /// no stream for that reason alone. Returns the deletions of the others, pods among them.
    pub(super) fn keep_unused(&mut self, before: Self) -> Vec<SourceEvent> {
        let mut deletions = Vec::new();
        for (key, object) in before.objects {
            if is_pod(&key) || object.is_needed {
                deletions.push(object.deletion(key));
            } else {
                self.objects.entry(key).or_insert(object);
            }
        }
        deletions
    }

    /// Applies a request.
    ///
    /// # Errors
    /// Why it is refused, in words for the client; nothing was changed.
    pub(crate) fn apply(
        &mut self,
        request: Request,
        new_uid: &mut dyn FnMut() -> String,
    ) -> Result<Vec<SourceEvent>, String> {
        match request {
            Request::Apply(object, cause) => self.set(*object, &cause, new_uid),
            Request::Delete { key, uid, cause } => self.delete(&key, uid.as_deref(), cause),
        }
    }

    fn set(
        &mut self,
        object: Object,
        cause: &Cause,
        new_uid: &mut dyn FnMut() -> String,
    ) -> Result<Vec<SourceEvent>, String> {
        let key = object.key().clone();
        let before = self.objects.get(&key);
        let mut value = object.versioned_value();
        let (object, immutable) = if object.uid().is_empty() {
            let immutable = immutable_digest(&key, &value, value["spec"].clone());
            let same = before.filter(|before| before.immutable == immutable);
            let uid = same.map_or_else(new_uid, |before| before.uid.to_string());
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("uid".to_owned(), uid.into());
            }
            (Object::from_value(value).map_err(|error| error_chain(&error))?, immutable)
        } else {
            let spec = value["spec"].take();
            (object, immutable_digest(&key, &value, spec))
        };
        let mut events = Vec::new();
        if let Some(before) = before.filter(|before| *before.uid != *object.uid()) {
            let uid = before.uid.to_string();
            events.push(SourceEvent::Delete { key: key.clone(), uid, cause: cause.clone() });
        }
        self.objects.insert(key, SentObject::new(&object, immutable));
        events.push(SourceEvent::Apply(object, cause.clone()));
        Ok(events)
    }

    fn delete(
        &mut self,
        key: &ResourceKey,
        uid: Option<&str>,
        cause: Cause,
    ) -> Result<Vec<SourceEvent>, String> {
        let Some(object) = self.objects.get(key) else {
            return Err(format!("{key}: the socket has no such object; nothing was deleted"));
        };
        if let Some(uid) = uid.filter(|uid| *uid != &*object.uid) {
            let found = &object.uid;
            return Err(format!("{key}: the UID is {found}, not {uid}; nothing was deleted"));
        }
        let uid = object.uid.to_string();
        self.objects.remove(key);
        Ok(vec![SourceEvent::Delete { key: key.clone(), uid, cause }])
    }
}

impl RestoredObject {
    /// Restores the object at `key`; `None` for one of a manifest.
    pub(super) fn of(key: &ResourceKey, published: &PublishedObject) -> Option<Self> {
        let mut value = published.versioned_value();
        if is_from_manifest(&value) {
            return None;
        }
        let object = Object::from_published(&mut value).ok()?;
        let spec = value["spec"].take();
        let sent = SentObject::new(&object, immutable_digest(key, &value, spec));
        Some(Self { object, sent })
    }
}

impl SentObject {
    fn new(object: &Object, immutable: blake3::Hash) -> Self {
        let content = content_of(object.resource_version(), object.payload());
        Self { uid: object.uid().into(), immutable, content, is_needed: false }
    }

    /// Whether the same object has the same content.
    fn is_as(&self, other: &Self) -> bool {
        self.uid == other.uid && self.content == other.content
    }

    fn deletion(self, key: ResourceKey) -> SourceEvent {
        SourceEvent::Delete { key, uid: self.uid.into(), cause: Cause::default() }
    }
}

fn content_of(resource_version: &str, payload: &[u8]) -> blake3::Hash {
    let mut content = blake3::Hasher::new();
    // No version has a zero byte.
    content.update(resource_version.as_bytes()).update(&[0]).update(payload);
    content.finalize()
}

fn is_pod(key: &ResourceKey) -> bool {
    key.kind() == "pod"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_published_as_it_was_accepted_is_not_parsed() {
        let key: ResourceKey = "d/pod/p".parse().expect("a key");
        let payload = "no JSON".into();
        let published = PublishedObject { uid: "u".into(), resource_version: "7".into(), payload };
        let content = content_of("7", &published.payload);
        let immutable = blake3::hash(b"");
        let sent = SentObject { uid: "u".into(), immutable, content, is_needed: false };
        let mut before = State { objects: HashMap::from([(key.clone(), sent)]) };
        let mut state = State::default();
        assert!(state.continue_from(&mut before, key.clone(), &published).is_empty());
        assert!(before.objects.is_empty() && state.objects.contains_key(&key));
        // Another stream has it too.
        assert!(state.continue_from(&mut before, key, &published).is_empty());
        assert_eq!(state.objects.len(), 1);
    }
}
