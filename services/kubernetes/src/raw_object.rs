//! An object as the API sends it: JSON, of which no field is lost.

use headwater_event::{KeyError, NodeName, ResourceKey};
use headwater_object::{Object, ObjectError};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::kind::Kind;

/// An object of the API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawObject(Value);

impl RawObject {
    /// The object in `value`. The record of its writers, often half of it, is dropped.
    pub(crate) fn new(mut value: Value) -> Self {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Self(value)
    }

    /// The key of this object of the kind `kind`.
    pub(crate) fn key(&self, kind: Kind) -> Result<ResourceKey, KeyError> {
        let namespace = kind.object_type().namespaced.then(|| self.metadata("namespace"));
        ResourceKey::new(namespace, kind.name(), self.metadata("name"))
    }

    /// The object.
    pub(crate) fn value(&self) -> &Value {
        &self.0
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.metadata("name")
    }

    /// The UID.
    pub(crate) fn uid(&self) -> &str {
        self.metadata("uid")
    }

    /// The opaque resource version.
    pub(crate) fn resource_version(&self) -> &str {
        self.metadata("resourceVersion")
    }

    /// The resource version as a number, by which two versions of one kind are ordered: guaranteed
    /// from Kubernetes 1.35 on, and true of every earlier API on etcd.
    pub(crate) fn order(&self) -> Option<u64> {
        self.resource_version().parse().ok()
    }

    /// The node in the spec.
    pub(crate) fn node(&self) -> Option<NodeName> {
        self.0["spec"]["nodeName"].as_str()?.parse().ok()
    }

    /// The object as the controller takes it.
    pub(crate) fn into_object(self, kind: Kind) -> Result<Object, ObjectError> {
        Object::of_cluster(kind.object_type(), self.0)
    }

    /// Its name in a message, even where that is no valid name.
    pub(crate) fn described(&self, kind: Kind) -> String {
        let (namespace, name) = (self.metadata("namespace"), self.metadata("name"));
        let separator = if namespace.is_empty() { "" } else { "/" };
        format!("{} {namespace}{separator}{name}", kind.object_type().kind)
    }

    fn metadata(&self, field: &str) -> &str {
        self.0["metadata"][field].as_str().unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self::new)
    }
}
