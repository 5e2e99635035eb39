//! The objects that an earlier run published, as a source reads them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{NodeName, ObjectHash, ResourceKey};
use headwater_object::payload::set_resource_version;
use headwater_object::{Object, ObjectError};
use headwater_owner::run_blocking;
use headwater_store::EngineError;
use serde_json::Value;
use tokio::task::JoinError;

use super::SourceError;
use crate::packed::{PackedPayload, PayloadPacker};

/// An object that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedObject {
    /// Its UID.
    pub uid: String,
    /// Its resource version; empty if it has none.
    pub resource_version: String,
    /// Its payload.
    pub payload: Bytes,
    /// The BLAKE3 hash of the payload; that of the missing payload, where the fold has lost it.
    pub payload_hash: ObjectHash,
}

impl PublishedObject {
    /// An object that was published with this payload.
    pub fn new(uid: String, resource_version: String, payload: Bytes) -> Self {
        let payload_hash = ObjectHash::of(&payload);
        Self { uid, resource_version, payload, payload_hash }
    }

    /// The payload as a value; null if it is no JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.payload).unwrap_or_default()
    }

    /// The object; `value` is the payload as a value, and becomes that of the object.
    ///
    /// # Errors
    /// As [`Object::from_published`].
    pub(super) fn object(&self, value: &mut Value) -> Result<Object, ObjectError> {
        let Self { resource_version, payload, payload_hash, .. } = self;
        Object::from_published(payload, payload_hash, resource_version, value)
    }

    /// The payload as a value, with the resource version.
    pub fn versioned_value(&self) -> Value {
        let mut value = self.value();
        set_resource_version(&mut value, &self.resource_version);
        value
    }

    /// The node that a published pod was assigned to.
    pub fn node(&self) -> Option<NodeName> {
        self.value()["spec"]["nodeName"].as_str()?.parse().ok()
    }
}

/// Reads every object that was published in any stream and not removed since.
pub trait PublishedReader: Send + Sync {
    /// Calls `each` with the objects of one moment, until it breaks. An object that several streams
    /// have comes once for each of them.
    ///
    /// Blocks on the disk.
    ///
    /// # Errors
    /// When the store cannot be read; `each` has had some of the objects then.
    fn read(
        &self,
        each: &mut dyn FnMut(ResourceKey, PublishedObject) -> ControlFlow<()>,
    ) -> Result<(), EngineError>;

    /// The object at `key`, as the first stream has it that does.
    ///
    /// Blocks on the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn find(&self, key: &ResourceKey) -> Result<Option<PublishedObject>, EngineError>;
}

/// Reads what is published on a thread of its own, because that blocks on the disk. On a single-threaded
/// runtime it reads at once: `read` may wait for no other task.
///
/// # Errors
/// When the store cannot be read.
pub async fn read_published<T: Send + 'static>(
    published: Arc<dyn PublishedReader>,
    read: impl FnOnce(&dyn PublishedReader) -> Result<T, EngineError> + Send + 'static,
) -> Result<T, SourceError> {
    read_result(run_blocking(move || read(&*published)).await)
}

/// The result of a thread that read what is published.
pub(super) fn read_result<T>(
    read: Result<Result<T, EngineError>, JoinError>,
) -> Result<T, SourceError> {
    let read = read.map_err(|error| SourceError::task_ended("restore", error))?;
    read.map_err(SourceError::published_unreadable)
}

/// Published objects, to be looked up by their keys.
pub trait PublishedObjects: Send + Sync {
    /// The object at `key`.
    fn get(&self, key: &ResourceKey) -> Option<PublishedObject>;

    /// The keys of all objects, each once, in order.
    fn keys(&self) -> Vec<ResourceKey>;
}

/// All published objects in memory, in little of it.
#[derive(Debug, Default)]
pub(crate) struct PublishedMap {
    objects: BTreeMap<ResourceKey, PackedPublished>,
    packer: PayloadPacker,
}

/// A published object, in little memory.
#[derive(Debug)]
struct PackedPublished {
    uid: String,
    resource_version: String,
    payload: PackedPayload,
}

impl PublishedMap {
    /// Reads all objects of `published`. Blocks on the disk.
    pub(crate) fn read(published: &dyn PublishedReader) -> Result<Self, EngineError> {
        let mut map = Self::default();
        published.read(&mut |key, object| {
            map.insert(key, object);
            ControlFlow::Continue(())
        })?;
        Ok(map)
    }

    fn insert(&mut self, key: ResourceKey, object: PublishedObject) {
        if self.objects.contains_key(&key) {
            return;
        }
        let PublishedObject { uid, resource_version, payload, payload_hash } = object;
        let payload = self.packer.pack_hashed(key.kind(), &payload, payload_hash);
        self.objects.insert(key, PackedPublished { uid, resource_version, payload });
    }
}

impl PublishedObjects for PublishedMap {
    fn get(&self, key: &ResourceKey) -> Option<PublishedObject> {
        let PackedPublished { uid, resource_version, payload } = self.objects.get(key)?;
        let (uid, resource_version) = (uid.clone(), resource_version.clone());
        let payload_hash = *payload.digest();
        Some(PublishedObject { uid, resource_version, payload: payload.unpack(), payload_hash })
    }

    fn keys(&self) -> Vec<ResourceKey> {
        self.objects.keys().cloned().collect()
    }
}

impl PublishedObjects for BTreeMap<ResourceKey, PublishedObject> {
    fn get(&self, key: &ResourceKey) -> Option<PublishedObject> {
        Self::get(self, key).cloned()
    }

    fn keys(&self) -> Vec<ResourceKey> {
        Self::keys(self).cloned().collect()
    }
}

impl PublishedReader for BTreeMap<ResourceKey, PublishedObject> {
    fn read(
        &self,
        each: &mut dyn FnMut(ResourceKey, PublishedObject) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let _ = self.iter().try_for_each(|(key, object)| each(key.clone(), object.clone()));
        Ok(())
    }

    fn find(&self, key: &ResourceKey) -> Result<Option<PublishedObject>, EngineError> {
        Ok(Self::get(self, key).cloned())
    }
}
