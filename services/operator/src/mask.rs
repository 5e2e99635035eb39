//! Hides values of Secrets unless a request asks for them.

use bytes::Bytes;
use serde_json::Value;

/// The replacement of a hidden value.
const MASK: &str = "***";

/// The fields with a Secret's values.
const VALUES: [&str; 2] = ["data", "stringData"];

/// The annotation with kubectl's copy of the whole object, and its values.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the values of a Secret; other objects stay unchanged.
pub(super) fn mask(kind: &str, object: &mut Value) {
    if kind != "secret" {
        return;
    }
    for values in VALUES {
        if let Some(values) = object.get_mut(values).and_then(Value::as_object_mut) {
            values.values_mut().for_each(|value| *value = MASK.into());
        }
    }
    if let Some(copy) =
        object.get_mut("metadata").and_then(|m| m.get_mut("annotations")?.get_mut(LAST_APPLIED))
    {
        *copy = MASK.into();
    }
}

/// [`mask`] for an object in bytes. Bytes that are not JSON are hidden completely.
pub(super) fn mask_bytes(kind: &str, object: Bytes) -> Bytes {
    if kind != "secret" {
        return object;
    }
    match serde_json::from_slice::<Value>(&object) {
        Ok(mut value) => {
            mask(kind, &mut value);
            value.to_string().into()
        }
        Err(_) => Bytes::from_static(b"\"***\""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_value_of_a_secret_is_left() {
        let mut secret = json!({
            "metadata": {"name": "s", "annotations": {LAST_APPLIED: "{\"data\":\"aHVzaA==\"}"}},
            "data": {"password": "aHVzaA=="}, "stringData": {"other": "hush"},
        });
        mask("secret", &mut secret);
        let text = secret.to_string();
        assert!(!text.contains("hush") && !text.contains("aHVzaA=="), "{text}");
        assert!(text.contains("password"), "the keys are not secret");
        let config = Bytes::from_static(b"{\"data\":{\"a\":\"b\"}}");
        assert_eq!(mask_bytes("configmap", config.clone()), config);
        assert_eq!(mask_bytes("secret", Bytes::from_static(b"no json")), "\"***\"");
    }
}
