//! An object as the API sends it: JSON, of which no field is lost.

use std::fmt;

use headwater_event::{KeyError, NodeName, ResourceKey};
use headwater_object::{Object, ObjectError};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::kind::Kind;

/// An object of the API.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RawObject(Value);

impl RawObject {
    /// The object in `value`.
    #[cfg(test)]
    pub(crate) fn new(value: Value) -> Self {
        serde_json::from_value(value).expect("any value is one")
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
        Fields::OfObject.deserialize(from).map(Self)
    }
}

/// Reads a value as it is, but for the record of an object's writers: that is often half of the object, and is passed
/// over, not read and dropped. What is no object is read, too: a value of a wrong type must not end a watch.
#[derive(Clone, Copy)]
enum Fields {
    OfObject,
    OfMetadata,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(field) = from.next_key::<String>()? {
            match (self, field.as_str()) {
                (Self::OfObject, "metadata") => {
                    fields.insert(field, from.next_value_seed(Self::OfMetadata)?);
                }
                (Self::OfMetadata, "managedFields") => {
                    from.next_value::<IgnoredAny>()?;
                }
                _ => {
                    fields.insert(field, from.next_value()?);
                }
            }
        }
        Ok(Value::Object(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(from))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
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
    fn a_value_of_any_type_is_read_as_it_is() {
        for value in [
            json!(null),
            json!(true),
            json!(-1),
            json!(1),
            json!(1.5),
            json!("a"),
            json!([1, {"managedFields": 2}]),
        ] {
            for value in [json!({"metadata": value}), value] {
                assert_eq!(RawObject::new(value.clone()).value(), &value);
            }
        }
    }
}
