//! The checked object, which the rest of Headwater uses in place of JSON.

use std::sync::Arc;

use bytes::Bytes;
use headwater_event::name::{check_dns1123_label, check_dns1123_subdomain};
use headwater_event::{Applied, NameError, NodeName, ObjectHash, ResourceKey};
use serde_json::Value;

use crate::defaults::{DEFAULT_NAMESPACE, fill_in};
use crate::error::ObjectError;
use crate::object_type::ObjectType;
use crate::payload::{OBJECT_BYTES_MAX, canonical, prune, prune_cluster, set_resource_version};
use crate::references::{Reference, references};
use crate::shape;

/// A checked Kubernetes object with its replicated payload. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    head: ObjectHead,
    payload: Bytes,
    payload_hash: ObjectHash,
}

/// An object without its payload, for an owner that stores payloads in another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    object_type: &'static ObjectType,
    key: ResourceKey,
    uid: String,
    resource_version: String,
    node: Option<NodeName>,
    references: Arc<[Reference]>,
}

/// Returns the type and the key of the object in `value`, with the default namespace.
///
/// # Errors
/// When its kind or name is missing or invalid, or its type is not replicated.
pub fn identify(value: &Value) -> Result<(&'static ObjectType, ResourceKey), ObjectError> {
    let found = match value {
        Value::Object(_) => None,
        Value::Null => Some("nothing"),
        Value::Bool(_) => Some("a boolean"),
        Value::Number(_) => Some("a number"),
        Value::String(_) => Some("a text"),
        Value::Array(_) => Some("a list"),
    };
    if let Some(found) = found {
        return Err(ObjectError::NotAMap { found });
    }
    let text = |field: &'static str| {
        value[field].as_str().filter(|text| !text.is_empty()).ok_or(ObjectError::Untyped { field })
    };
    let kind = text("kind")?;
    let api_version = text("apiVersion")?;
    let object_type = ObjectType::of(api_version, kind)
        .filter(|object_type| object_type.replicated)
        .ok_or_else(|| ObjectError::NotReplicated {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })?;
    Ok((object_type, key_of(object_type, value)?))
}

/// Returns the key of the object of the type `object_type` in `value`, with the default namespace.
fn key_of(object_type: &'static ObjectType, value: &Value) -> Result<ResourceKey, ObjectError> {
    let kind = object_type.kind.to_owned();
    let metadata = &value["metadata"];
    let Some(name) = metadata["name"].as_str().filter(|name| !name.is_empty()) else {
        return Err(ObjectError::Nameless { kind });
    };
    if let Err(source) = check_name(object_type, name) {
        return Err(ObjectError::Name { kind, source });
    }
    let namespace = match metadata["namespace"].as_str() {
        None | Some("") => DEFAULT_NAMESPACE,
        Some(namespace) => namespace,
    };
    let namespace = object_type.namespaced.then_some(namespace);
    if let Some(Err(source)) = namespace.map(check_dns1123_label) {
        return Err(ObjectError::Namespace { kind, name: name.to_owned(), source });
    }
    ResourceKey::new(namespace, object_type.name, name)
        .map_err(|source| ObjectError::Key { kind, source })
}

impl Object {
    /// Checks `value`, adds the defaults of an API server, and extracts its payload.
    ///
    /// # Errors
    /// When the value is not a valid object. The error names the object as far as it is known.
    pub fn from_value(mut value: Value) -> Result<Self, ObjectError> {
        let (object_type, key) = identify(&value)?;
        fill_in(object_type, &mut value);
        shape::check(object_type, &key, &value)?;
        Self::extract(object_type, key, &mut value)
    }

    /// Returns the object of a published payload, whose shape was checked before it was published. The payload stays as
    /// it is, unless this build fills in more or replicates less than the build that published it. `payload_hash` is its
    /// BLAKE3 hash, and `value` its value, which becomes that of the object.
    ///
    /// # Errors
    /// When the value has no valid name or type, or is too large.
    pub fn from_published(
        payload: &Bytes,
        payload_hash: &ObjectHash,
        resource_version: &str,
        value: &mut Value,
    ) -> Result<Self, ObjectError> {
        let (object_type, key) = identify(value)?;
        let version = match resource_version {
            // An earlier version of Headwater has it in the payload.
            "" => resource_version_of(value).to_owned(),
            version => version.to_owned(),
        };
        let is_changed = fill_in(object_type, value) | prune(object_type, value);
        let payload =
            if is_changed { hashed(canonical(value)) } else { (payload.clone(), *payload_hash) };
        Self::of_payload((object_type, key, version), payload, value)
    }

    /// Returns the object of the type `object_type` that a Kubernetes API sent. The API has checked it
    /// and filled in the defaults, so its fields are not checked: a field that a newer API has stays.
    /// `value` may lack `apiVersion` and `kind`, as the items of a list do. The payload has no
    /// bookkeeping of the API's clients.
    ///
    /// # Errors
    /// When the value has no name that makes a key, or is too large.
    pub fn of_cluster(
        object_type: &'static ObjectType,
        mut value: Value,
    ) -> Result<Self, ObjectError> {
        let key = key_of(object_type, &value)?;
        prune_cluster(object_type, &mut value);
        Self::extract(object_type, key, &mut value)
    }

    /// Reduces `value` to its payload, and reads the head from it.
    fn extract(
        object_type: &'static ObjectType,
        key: ResourceKey,
        value: &mut Value,
    ) -> Result<Self, ObjectError> {
        let version = resource_version_of(value).to_owned();
        prune(object_type, value);
        Self::of_payload((object_type, key, version), hashed(canonical(value)), value)
    }

    /// Reads the rest of the head from `value`, the value of `payload`.
    fn of_payload(
        (object_type, key, resource_version): (&'static ObjectType, ResourceKey, String),
        (payload, payload_hash): (Bytes, ObjectHash),
        value: &Value,
    ) -> Result<Self, ObjectError> {
        if payload.len() > OBJECT_BYTES_MAX {
            return Err(ObjectError::TooLarge { key, bytes: payload.len() });
        }
        let head = ObjectHead {
            object_type,
            uid: value["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            resource_version,
            node: node_of(object_type, &key, value),
            references: references(&key, value).into(),
            key,
        };
        Ok(Self { head, payload, payload_hash })
    }

    /// Parses JSON and continues as [`Object::from_value`].
    ///
    /// # Errors
    /// When the bytes are not JSON, and as [`Object::from_value`].
    pub fn from_json(json: &[u8]) -> Result<Self, ObjectError> {
        Self::from_value(serde_json::from_slice(json).map_err(ObjectError::Json)?)
    }

    /// Returns the type.
    pub fn object_type(&self) -> &'static ObjectType {
        self.head.object_type
    }

    /// Returns the key.
    pub fn key(&self) -> &ResourceKey {
        &self.head.key
    }

    /// Returns the UID; empty if its source has not assigned one yet.
    pub fn uid(&self) -> &str {
        &self.head.uid
    }

    /// Returns the opaque resource version; empty if the source has none.
    pub fn resource_version(&self) -> &str {
        &self.head.resource_version
    }

    /// Returns the node of a Pod or VolumeAttachment, or the name of a Node.
    pub fn node(&self) -> Option<&NodeName> {
        self.head.node.as_ref()
    }

    /// Returns the objects that this object names.
    pub fn references(&self) -> &[Reference] {
        &self.head.references
    }

    /// Returns the replicated bytes: canonical JSON without the fields that edges report.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Returns the BLAKE3 hash of the payload.
    pub fn payload_hash(&self) -> &ObjectHash {
        &self.payload_hash
    }

    /// Returns the payload as a value.
    pub fn value(&self) -> Value {
        // The payload is the serialized form of a value.
        serde_json::from_slice(&self.payload).unwrap_or_default()
    }

    /// Returns the payload as a value, with the resource version.
    pub fn versioned_value(&self) -> Value {
        let mut value = self.value();
        set_resource_version(&mut value, &self.head.resource_version);
        value
    }

    /// Returns the object as an entry of a stream's state.
    pub fn to_applied(&self) -> Applied {
        Applied {
            key: self.head.key.clone().into(),
            uid: self.head.uid.clone(),
            resource_version: self.head.resource_version.clone(),
            object: self.payload.clone(),
        }
    }

    /// Separates the payload and its hash. [`ObjectHead::with_payload`] puts them together again.
    pub fn into_parts(self) -> (ObjectHead, Bytes, ObjectHash) {
        (self.head, self.payload, self.payload_hash)
    }
}

impl ObjectHead {
    /// Returns the key.
    pub fn key(&self) -> &ResourceKey {
        &self.key
    }

    /// Returns the UID; empty if its source has not assigned one yet.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Returns the node of a Pod or VolumeAttachment, or the name of a Node.
    pub fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    /// Returns the objects that the object names.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// The object, from the payload and the hash that [`Object::into_parts`] returned with this head.
    pub fn with_payload(&self, payload: Bytes, payload_hash: ObjectHash) -> Object {
        Object { head: self.clone(), payload, payload_hash }
    }
}

fn hashed(payload: Bytes) -> (Bytes, ObjectHash) {
    let hash = ObjectHash::of(&payload);
    (payload, hash)
}

fn resource_version_of(value: &Value) -> &str {
    value["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

fn node_of(object_type: &ObjectType, key: &ResourceKey, value: &Value) -> Option<NodeName> {
    match object_type.name {
        "pod" | "volumeattachment" => value["spec"]["nodeName"].as_str()?.parse().ok(),
        "node" => key.name().parse().ok(),
        _ => None,
    }
}

/// Checks a name as the API server does for its type.
fn check_name(object_type: &ObjectType, name: &str) -> Result<(), NameError> {
    match object_type.name {
        "service" => check_dns1123_label(name),
        _ => check_dns1123_subdomain(name),
    }
}

#[cfg(test)]
mod tests;
