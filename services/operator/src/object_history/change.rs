//! The fields in which two versions of an object differ, without their values.

use serde_json::{Map, Value};

/// The depth of named fields: `spec.containers`, `data.text`.
const DEPTH_MAX: usize = 2;

/// The most fields that are named.
const FIELDS_SHOWN_MAX: usize = 3;

/// Describes the change of an object from `before`.
pub(super) fn of(before: Option<&[u8]>, now: &[u8]) -> String {
    let Some(before) = before else { return "created".to_owned() };
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    let (before, now) = (read(before), read(now));
    let uid = |object: &Value| object.pointer("/metadata/uid").cloned();
    if uid(&before) != uid(&now) {
        return "replaced by a new object of the same name".to_owned();
    }
    fields(&before, &now)
}

/// Names the fields in which two values differ, for people.
pub(super) fn fields(before: &Value, now: &Value) -> String {
    let mut differing = Vec::new();
    differ(before, now, "", &mut differing);
    let more = differing.len().saturating_sub(FIELDS_SHOWN_MAX);
    differing.truncate(FIELDS_SHOWN_MAX);
    match (differing.is_empty(), more) {
        (true, _) => "sent again, unchanged".to_owned(),
        (false, 0) => differing.join(", "),
        (false, more) => format!("{} and {more} more", differing.join(", ")),
    }
}

fn differ(before: &Value, now: &Value, path: &str, differing: &mut Vec<String>) {
    if before == now {
        return;
    }
    let depth = path.split('.').filter(|part| !part.is_empty()).count();
    let nothing = Map::new();
    let of = |value: &'_ Value| match value {
        Value::Object(fields) => Some(fields.clone()),
        Value::Null => Some(nothing.clone()),
        _ => None,
    };
    match (of(before), of(now)) {
        (Some(before), Some(now)) if depth < DEPTH_MAX => {
            let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let at =
                    |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                differ(&at(&before), &at(&now), &path, differing);
            }
        }
        _ => differing.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_by_where_it_is() {
        for (before, now, expected) in [
            (None, r#"{"a":1}"#, "created"),
            (Some(r#"{"data":{"a":"hush"}}"#), r#"{"data":{"a":"secret"}}"#, "data.a"),
            (
                Some(r#"{"spec":{"c":[1]}}"#),
                r#"{"spec":{"c":[2]},"data":{"x":"y"}}"#,
                "data.x, spec.c",
            ),
            (Some(r#"{"a":1}"#), r#"{"a":1}"#, "sent again, unchanged"),
            (
                Some(r#"{"metadata":{"uid":"1"}}"#),
                r#"{"metadata":{"uid":"2"}}"#,
                "replaced by a new object of the same name",
            ),
            (Some("{}"), r#"{"a":1,"b":2,"c":3,"d":4,"e":5}"#, "a, b, c and 2 more"),
        ] {
            assert_eq!(of(before.map(str::as_bytes), now.as_bytes()), expected, "{before:?} {now}");
        }
    }
}
