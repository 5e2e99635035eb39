//! The objects that came over the socket and were not deleted, and their UIDs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use headwater_event::{ObjectHash, ResourceKey};
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
    /// Of what no change of the object may touch.
    immutable: Digest,
    /// Of its payload and its resource version.
    content: Digest,
    /// During a takeover: whether it is published as it is here.
    is_published: bool,
    /// During a takeover: whether a published object names it, where this is found out.
    is_needed: bool,
}

/// The first 128 bits of a hash. There is one of each kind for every object, and a collision would need
/// 2^64 objects of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest([u8; 16]);

impl State {
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

    /// Continues with an object that another writer published. Returns what this changes. An object that is
    /// published as it was accepted is not parsed.
    pub(super) fn continue_with(
        &mut self,
        key: ResourceKey,
        published: &PublishedObject,
    ) -> Vec<SourceEvent> {
        if let Some(was) = self.objects.get_mut(&key) {
            let PublishedObject { resource_version, payload_hash, .. } = published;
            let content = || Digest::of_content(resource_version, payload_hash);
            // Another stream may have it too.
            if was.is_published || *was.uid == *published.uid && was.content == content() {
                was.is_published = true;
                return Vec::new();
            }
        }
        let Some(RestoredObject { object, sent }) = RestoredObject::of(published) else {
            return Vec::new();
        };
        let now = SentObject { is_published: true, ..sent };
        let was = self.objects.get(&key);
        // A schema may write the same object otherwise.
        let is_same = was.is_some_and(|was| was.uid == now.uid && was.content == now.content);
        let replaced = was.filter(|was| was.uid != now.uid).map(|was| was.deletion(key.clone()));
        self.objects.insert(key, now);
        let applied = (!is_same).then(|| SourceEvent::Apply(object, Cause::default()));
        replaced.into_iter().chain(applied).collect()
    }

    /// Whether there are objects that are not published, and may be in no stream because no object needs them.
    pub(super) fn may_be_unused(&self) -> bool {
        self.objects.iter().any(|(key, object)| !object.is_published && !is_pod(key))
    }

    /// Notes that a published object needs what it names.
    pub(super) fn note_needs(&mut self, published: &PublishedObject) {
        let Ok(object) = published.object(&mut published.value()) else { return };
        for reference in object.references() {
            if let Some(needed) = self.objects.get_mut(&reference.key) {
                needed.is_needed = true;
            }
        }
    }

    /// Keeps the objects that are published, and those that no published object needs: they may be in no stream for that
    /// reason alone. Returns the deletions of the others, pods among them.
    pub(super) fn end_takeover(&mut self) -> Vec<SourceEvent> {
        let mut deletions = Vec::new();
        self.objects.retain(|key, object| {
            let stays = object.is_published || !is_pod(key) && !object.is_needed;
            if !stays {
                deletions.push(object.deletion(key.clone()));
            }
            (object.is_published, object.is_needed) = (false, false);
            stays
        });
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
        // The UID is no part of it.
        let immutable = Digest::of_immutable(&key, object.value());
        let object = if object.uid().is_empty() {
            let same = before.filter(|before| before.immutable == immutable);
            let uid = same.map_or_else(new_uid, |before| before.uid.to_string());
            let mut value = object.versioned_value();
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("uid".to_owned(), uid.into());
            }
            Object::from_value(value).map_err(|error| error_chain(&error))?
        } else {
            object
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
    /// Restores an object; `None` for one of a manifest.
    pub(super) fn of(published: &PublishedObject) -> Option<Self> {
        let mut value = published.value();
        if is_from_manifest(&value) {
            return None;
        }
        let object = published.object(&mut value).ok()?;
        let sent = SentObject::new(&object, Digest::of_immutable(object.key(), value));
        Some(Self { object, sent })
    }
}

impl SentObject {
    fn new(object: &Object, immutable: Digest) -> Self {
        let content = Digest::of_content(object.resource_version(), object.payload_hash());
        let uid = object.uid().into();
        Self { uid, immutable, content, is_published: false, is_needed: false }
    }

    fn deletion(&self, key: ResourceKey) -> SourceEvent {
        SourceEvent::Delete { key, uid: self.uid.to_string(), cause: Cause::default() }
    }
}

impl Digest {
    fn of_content(resource_version: &str, payload: &ObjectHash) -> Self {
        let mut content = blake3::Hasher::new();
        content.update(&payload.0).update(resource_version.as_bytes());
        content.finalize().into()
    }

    fn of_immutable(key: &ResourceKey, object: Value) -> Self {
        immutable_digest(key, object).into()
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        let (first, _) = hash.as_bytes().split_at(size_of::<Self>());
        // The array has the length of the slice.
        Self(first.try_into().unwrap_or_default())
    }
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
        let published = PublishedObject::new("u".into(), "7".into(), "no JSON".into());
        let content = Digest::of_content("7", &published.payload_hash);
        let sent = SentObject {
            uid: "u".into(),
            immutable: blake3::hash(b"").into(),
            content,
            is_published: false,
            is_needed: true,
        };
        let mut state = State { objects: HashMap::from([(key.clone(), sent)]) };
        assert!(state.continue_with(key.clone(), &published).is_empty());
        // Another stream has it too, and may have an older form of it.
        let older = PublishedObject::new("u".into(), "7".into(), "{}".into());
        assert!(state.continue_with(key, &older).is_empty());
        assert!(state.end_takeover().is_empty());
        assert_eq!(state.objects.len(), 1);
    }
}
