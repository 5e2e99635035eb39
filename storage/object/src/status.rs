//! The equality of pod statuses, for the edge that reports them and the cloud that folds them.

use serde_json::Value;

/// Whether two pod statuses, each as JSON, are equal for a report.
///
/// The time of a condition's last probe is ignored, and a missing field equals a null field. A status
/// that does not parse equals only its own bytes.
pub fn same_status(a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    let parse = |bytes| serde_json::from_slice(bytes).ok().map(essence);
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

fn essence(mut status: Value) -> Value {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastProbeTime");
        }
    }
    drop_nulls(&mut status);
    status
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_found_nothing_new_is_no_change() {
        let at = |probed: &str, status: &str| {
            format!(
                r#"{{"conditions":[{{"type":"Ready","status":"{status}","lastProbeTime":{probed}}}]}}"#
            )
        };
        assert!(same_status(at("null", "True").as_bytes(), at("\"12:00\"", "True").as_bytes()));
        assert!(!same_status(at("null", "True").as_bytes(), at("null", "False").as_bytes()));
        assert!(same_status(br#"{"phase":"Running","reason":null}"#, br#"{"phase":"Running"}"#));
        assert!(!same_status(b"{}", b"nonsense"));
        assert!(!same_status(b"7", b"8"));
    }
}
