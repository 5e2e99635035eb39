//! The defaults of a Kubernetes API server on which readers rely.
//!
//! Objects from a cluster have them already. Objects from files and sockets receive them here, so
//! that both have the same form at an edge.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::object_type::ObjectType;

/// The namespace of an object without one.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Maps from text to text, in which a missing value means the empty text.
const TEXT_MAPS: [&str; 4] =
    ["/metadata/labels", "/metadata/annotations", "/data", "/spec/nodeSelector"];

/// Fills in the namespace, a Secret's `stringData`, and the empty values of maps of text. Returns whether this changed
/// the object.
pub fn fill_in(object_type: &ObjectType, object: &mut Value) -> bool {
    let mut is_changed = false;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if !object_type.namespaced {
            is_changed |= metadata.remove("namespace").is_some();
        } else if metadata.get("namespace").is_none_or(is_blank) {
            metadata.insert("namespace".to_owned(), DEFAULT_NAMESPACE.into());
            is_changed = true;
        }
    }
    for path in TEXT_MAPS {
        for value in object.pointer_mut(path).and_then(Value::as_object_mut).into_iter().flatten() {
            if value.1.is_null() {
                *value.1 = Value::String(String::new());
                is_changed = true;
            }
        }
    }
    if object_type.name == "secret" {
        is_changed |= encode_string_data(object);
    }
    is_changed
}

fn is_blank(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

/// Moves `stringData` to `data`, where it replaces equal keys, as the API server does. Returns whether there was one.
fn encode_string_data(secret: &mut Value) -> bool {
    let Some(fields) = secret.as_object_mut() else { return false };
    if !fields.get("stringData").is_some_and(Value::is_object) {
        return false;
    }
    let Some(Value::Object(plain)) = fields.remove("stringData") else { return false };
    let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    for (key, value) in plain {
        if let (Some(data), Some(text)) = (data.as_object_mut(), value.as_str()) {
            data.insert(key, STANDARD.encode(text).into());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled_in(kind: &str, mut object: Value) -> Value {
        fill_in(ObjectType::of("v1", kind).expect("known"), &mut object);
        object
    }

    #[test]
    fn an_object_without_namespace_lies_in_the_default_one() {
        let metadata =
            |kind, metadata| filled_in(kind, json!({ "metadata": metadata }))["metadata"].clone();
        assert_eq!(metadata("Pod", json!({})), json!({"namespace": "default"}));
        assert_eq!(metadata("Pod", json!({"namespace": "shop"})), json!({"namespace": "shop"}));
        assert_eq!(metadata("Node", json!({"namespace": "shop"})), json!({}));
    }

    #[test]
    fn plain_secret_values_are_encoded_and_win() {
        let secret = json!({"data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "hello"}});
        assert_eq!(filled_in("Secret", secret), json!({"data": {"a": "eA==", "b": "aGVsbG8="}}));
        assert_eq!(
            filled_in("Secret", json!({"stringData": {"b": "hello"}})),
            json!({"data": {"b": "aGVsbG8="}})
        );
    }

    #[test]
    fn an_entry_without_value_is_the_empty_text() {
        let map = json!({"data": {"empty": null, "full": "x"}});
        assert_eq!(filled_in("ConfigMap", map), json!({"data": {"empty": "", "full": "x"}}));
    }
}
