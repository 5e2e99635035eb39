//! The metadata of objects.

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::resource::Resource;

/// A field of the metadata that is a text; empty where it is absent.
pub(crate) fn metadata<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Whether an object is being deleted.
pub(crate) fn is_ending(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether something else must happen before the object goes.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    let is_list = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    is_list(&object["metadata"]["finalizers"])
        || (object["kind"] == "Namespace" && is_list(&object["spec"]["finalizers"]))
}

/// A moment as the API writes it.
pub(crate) fn timestamp(ms: i64) -> String {
    let moment = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Brings an object that a client sent into the form of the store: without what is empty, and without the
/// record of writers.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) {
    drop_nulls(object);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("selfLink");
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            let is_empty = match metadata.get(field) {
                Some(Value::Object(map)) => map.is_empty(),
                Some(Value::Array(list)) => list.is_empty(),
                _ => false,
            };
            if is_empty {
                metadata.remove(field);
            }
        }
    }
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.api_version().into();
}

/// Drops fields without a value.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The metadata of an object, which is an object itself.
pub(crate) fn metadata_mut(object: &mut Value) -> Result<&mut Map<String, Value>, Failure> {
    let Some(fields) = object.as_object_mut() else {
        return Err(Failure::bad_request("the object provided is no JSON object"));
    };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().ok_or_else(|| Failure::bad_request("metadata is no JSON object"))
}

/// Checks that a name is one of DNS-1123.
pub(crate) fn check_name(resource: &Resource, name: &str) -> Result<(), Failure> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_name = name.len() <= 253
        && name.chars().all(is_inner)
        && is_end(name.chars().next())
        && is_end(name.chars().next_back());
    if is_name {
        return Ok(());
    }
    let why = format!(
        "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case \
                       alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
                       character"
    );
    Err(Failure::invalid(resource, name, "metadata.name", "FieldValueInvalid", &why))
}
