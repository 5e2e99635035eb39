//! An object as the API sends it: JSON, of which no field is lost.

use std::fmt;

use headwater_event::{KeyError, NodeName, ResourceKey};
use headwater_object::{Object, ObjectError};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::kind::Kind;

/// An object of the API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawObject(Value);

impl RawObject {
    /// The object in `value`.
    ///
    /// # Panics
    /// When it is no object.
    #[cfg(test)]
    pub(crate) fn new(value: Value) -> Self {
        serde_json::from_value(value).expect("an object")
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

/// The record of an object's writers, in its metadata.
const MANAGED_FIELDS: &str = "managedFields";

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectFields).map(Self)
    }
}

/// Reads the fields of an object.
struct ObjectFields;

/// Reads the metadata of an object without the record of its writers, which is often half of the object: it is passed
/// over, not read and dropped.
struct MetadataFields;

impl<'de> Visitor<'de> for ObjectFields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(field) = from.next_key::<String>()? {
            let value = match field.as_str() {
                "metadata" => from.next_value_seed(MetadataFields)?,
                _ => from.next_value()?,
            };
            fields.insert(field, value);
        }
        Ok(Value::Object(fields))
    }
}

impl<'de> DeserializeSeed<'de> for MetadataFields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MetadataFields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(field) = from.next_key::<String>()? {
            if field == MANAGED_FIELDS {
                from.next_value::<IgnoredAny>()?;
            } else {
                fields.insert(field, from.next_value()?);
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_without_the_record_of_its_writers() {
        let text = r#"{"metadata": {"name": "a", "managedFields": [{"manager": "kubectl"}], "labels": {"managedFields": "b"}},
            "spec": {"managedFields": 1}, "status": null}"#;
        let read: RawObject = serde_json::from_str(text).expect("an object");
        let metadata = json!({"name": "a", "labels": {"managedFields": "b"}});
        let spec = json!({"managedFields": 1});
        let expected = json!({"metadata": metadata, "spec": spec, "status": null});
        assert_eq!(read.value(), &expected);
    }

    #[test]
    fn an_object_without_metadata_has_no_name_and_what_is_no_object_is_an_error() {
        for text in ["{}", r#"{"metadata": null}"#] {
            let read: RawObject = serde_json::from_str(text).expect("an object");
            assert_eq!((read.name(), read.uid()), ("", ""), "{text}");
        }
        for text in ["null", "[]", r#"{"metadata": 1}"#] {
            assert!(serde_json::from_str::<RawObject>(text).is_err(), "{text}");
        }
    }
}
