//! The digest of JSON: equal for equal content, however the API server spells it.

use serde_json::{Map, Value};

/// A digest.
pub(crate) type Digest = blake3::Hash;

/// The digest of `value`. The order of fields does not count, nor a field that is null or empty: the API
/// server leaves some of those out and adds others.
pub(crate) fn digest(value: &Value) -> Digest {
    let mut hasher = blake3::Hasher::new();
    write(value, &mut hasher);
    hasher.finalize()
}

fn write(value: &Value, to: &mut blake3::Hasher) {
    match value {
        Value::Null => {
            to.update(b"n");
        }
        Value::Bool(value) => {
            to.update(if *value { b"t" } else { b"f" });
        }
        Value::Number(number) => write_text(b'#', &number.to_string(), to),
        Value::String(text) => write_text(b's', text, to),
        Value::Array(items) => {
            to.update(b"[");
            items.iter().for_each(|item| write(item, to));
            to.update(b"]");
        }
        Value::Object(fields) => write_fields(fields, to),
    }
}

fn write_fields(fields: &Map<String, Value>, to: &mut blake3::Hasher) {
    let mut sorted: Vec<_> = fields.iter().filter(|(_, value)| !is_empty(value)).collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    to.update(b"{");
    for (key, value) in sorted {
        write_text(b'k', key, to);
        write(value, to);
    }
    to.update(b"}");
}

fn write_text(tag: u8, text: &str, to: &mut blake3::Hasher) {
    to.update(&[tag]);
    to.update(&(text.len() as u64).to_le_bytes());
    to.update(text.as_bytes());
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_leaves_out_or_adds_empty_does_not_count() {
        let spelled = json!({"a": {"x": null, "y": "", "z": [], "w": {}, "v": 1}, "c": false});
        assert_eq!(digest(&spelled), digest(&json!({"c": false, "a": {"v": 1}})));
        assert_ne!(digest(&spelled), digest(&json!({"a": {"v": 1}})), "false is a value");
        assert_ne!(digest(&json!(["ab", "c"])), digest(&json!(["a", "bc"])));
        assert_ne!(digest(&json!({"a": "1"})), digest(&json!({"a": 1})));
    }
}
