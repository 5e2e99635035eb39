//! The digest of JSON: equal for equal content, however the API server spells it.

use serde_json::{Map, Value};

use crate::whole_seconds;

/// A digest.
pub(crate) type Digest = blake3::Hash;

/// Room for the text of a pod's status with a container or two.
const USUAL_BYTES: usize = 2 << 10;

/// The digest of `value`. The order of fields does not count, nor a field that is null or empty: the API
/// server leaves some of those out and adds others.
pub(crate) fn digest(value: &Value) -> Digest {
    let mut text = Vec::new();
    write(value, Times::Exact, &mut text);
    blake3::hash(&text)
}

/// The digest of parts of a status: their times count in whole seconds, and nothing is copied from the status.
#[derive(Debug)]
pub(crate) struct StatusDigest {
    text: Vec<u8>,
}

/// How exactly times count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// As any text.
    Exact,
    /// As the API server stores them.
    WholeSeconds,
}

impl StatusDigest {
    /// The digest of nothing yet.
    pub(crate) fn new() -> Self {
        Self { text: Vec::with_capacity(USUAL_BYTES) }
    }

    /// Adds a field. One that is null or empty does not count.
    pub(crate) fn field(&mut self, field: &str, value: &Value) {
        write_field(field, value, Times::WholeSeconds, &mut self.text);
    }

    /// Begins the next item of a list: the fields that are added from here on are those of the item.
    pub(crate) fn item(&mut self) {
        self.text.push(b',');
    }

    /// The digest of what was added, in this order.
    pub(crate) fn finish(self) -> Digest {
        blake3::hash(&self.text)
    }
}

fn write(value: &Value, times: Times, to: &mut Vec<u8>) {
    match value {
        Value::Null => to.push(b'n'),
        Value::Bool(value) => to.push(if *value { b't' } else { b'f' }),
        Value::Number(number) => write_text(b'#', &number.to_string(), to),
        Value::String(text) => write_text(b's', text, to),
        Value::Array(items) => {
            to.push(b'[');
            items.iter().for_each(|item| write(item, times, to));
            to.push(b']');
        }
        Value::Object(fields) => write_fields(fields, times, to),
    }
}

/// Writes fields, which a map of serde_json has in the order of their names.
fn write_fields(fields: &Map<String, Value>, times: Times, to: &mut Vec<u8>) {
    to.push(b'{');
    for (field, value) in fields {
        write_field(field, value, times, to);
    }
    to.push(b'}');
}

fn write_field(field: &str, value: &Value, times: Times, to: &mut Vec<u8>) {
    if is_empty(value) {
        return;
    }
    write_text(b'k', field, to);
    match value {
        Value::String(text) if times == Times::WholeSeconds => {
            write_text(b's', &whole_seconds::stored(field, text), to);
        }
        value => write(value, times, to),
    }
}

fn write_text(tag: u8, text: &str, to: &mut Vec<u8>) {
    to.push(tag);
    to.extend_from_slice(&(text.len() as u64).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
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
    use std::slice;

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

    #[test]
    fn parts_of_a_status_differ_by_field_and_item_and_not_by_fractions_of_a_second() {
        let of = |items: &[&[(&str, Value)]]| {
            let mut digest = StatusDigest::new();
            for item in items {
                digest.item();
                item.iter().for_each(|(field, value)| digest.field(field, value));
            }
            digest.finish()
        };
        let (a, b) = (("a", json!("x")), ("b", json!([1])));
        let both = of(&[&[a.clone(), b.clone()]]);
        assert_ne!(both, of(&[slice::from_ref(&a), slice::from_ref(&b)]));
        assert_ne!(both, of(&[slice::from_ref(&a)]));
        assert_eq!(both, of(&[&[a, ("c", json!("")), ("d", Value::Null), b]]));
        let began = |time: &str| of(&[&[("state", json!([{"startedAt": time, "note": "n"}]))]]);
        assert_eq!(began("2026-01-02T03:04:05.6Z"), began("2026-01-02T03:04:05Z"));
        assert_ne!(began("2026-01-02T03:04:05Z"), began("2026-01-02T03:04:06Z"));
        let noted = |text: &str| of(&[&[("note", json!(text))]]);
        assert_ne!(noted("2026-01-02T03:04:05.6Z"), noted("2026-01-02T03:04:05Z"));
    }
}
