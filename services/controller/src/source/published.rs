//! The objects that an earlier run published, as a source reads them.

use std::collections::BTreeMap;

use bytes::Bytes;
use headwater_event::{NodeName, ResourceKey};
use serde_json::Value;

/// An object that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedObject {
    /// Its UID.
    pub uid: String,
    /// Its payload.
    pub payload: Bytes,
}

impl PublishedObject {
    /// The payload as a value; null if it is no JSON.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.payload).unwrap_or_default()
    }

    /// The node that a published pod was assigned to.
    pub fn node(&self) -> Option<NodeName> {
        self.value()["spec"]["nodeName"].as_str()?.parse().ok()
    }
}

/// Every object that was published in any stream and not removed since.
pub trait PublishedObjects: Send + Sync {
    /// The object at `key`.
    fn get(&self, key: &ResourceKey) -> Option<PublishedObject>;

    /// The keys of all objects, each once, in order.
    fn keys(&self) -> Vec<ResourceKey>;
}

impl PublishedObjects for BTreeMap<ResourceKey, PublishedObject> {
    fn get(&self, key: &ResourceKey) -> Option<PublishedObject> {
        Self::get(self, key).cloned()
    }

    fn keys(&self) -> Vec<ResourceKey> {
        Self::keys(self).cloned().collect()
    }
}
