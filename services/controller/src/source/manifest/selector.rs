//! The selector of a workload, which must select the pods of the workload's own template.

use serde_json::{Map, Value};

/// Returns the requirement of `spec.selector` that the labels of `spec.template` do not meet, in words;
/// `None` for another object, and for a workload without a selector, which selects its own pods.
pub(crate) fn mismatch(object: &Value) -> Option<String> {
    let selector = &object["spec"]["selector"];
    let (by_label, expressions) = match object["kind"].as_str()? {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => {
            (&selector["matchLabels"], &selector["matchExpressions"])
        }
        "ReplicationController" => (selector, &Value::Null),
        _ => return None,
    };
    let no_labels = Map::new();
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    let labels = labels.as_object().unwrap_or(&no_labels);
    let text = |key: &str| labels.get(key).and_then(Value::as_str);
    for (key, wanted) in by_label.as_object().into_iter().flatten() {
        let Some(wanted) = wanted.as_str() else { continue };
        if text(key) != Some(wanted) {
            return Some(unmet(key, text(key), &format!("wants {wanted:?}")));
        }
    }
    for expression in expressions.as_array().into_iter().flatten() {
        let Some(key) = expression["key"].as_str() else { continue };
        let values: Vec<&str> = expression["values"]
            .as_array()
            .map(|values| values.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let found = text(key);
        let is_listed = found.is_some_and(|found| values.contains(&found));
        let (is_met, wanted) = match expression["operator"].as_str().unwrap_or_default() {
            "In" => (is_listed, format!("wants one of {}", values.join(", "))),
            "NotIn" => (!is_listed, format!("wants none of {}", values.join(", "))),
            "Exists" => (labels.contains_key(key), "wants any value".to_owned()),
            "DoesNotExist" => (!labels.contains_key(key), "wants no value".to_owned()),
            _ => continue,
        };
        if !is_met {
            return Some(unmet(key, found, &wanted));
        }
    }
    None
}

fn unmet(key: &str, found: Option<&str>, wanted: &str) -> String {
    let found = found.map_or_else(|| "is missing".to_owned(), |found| format!("is {found:?}"));
    format!(
        "spec.selector does not match spec.template.metadata.labels: the label {key} {found}, the \
         selector {wanted}; correct one of the two"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(kind: &str, selector: Value, labels: Value) -> Option<String> {
        mismatch(&json!({
            "kind": kind,
            "spec": {"selector": selector, "template": {"metadata": {"labels": labels}}},
        }))
    }

    #[test]
    fn a_requirement_that_the_template_does_not_meet_is_named() {
        let labels = || json!({"app": "web", "tier": "front"});
        for (selector, end) in [
            (json!({"matchLabels": {"app": "web"}}), None),
            (
                json!({"matchLabels": {"app": "wbe"}}),
                Some("app is \"web\", the selector wants \"wbe\""),
            ),
            (
                json!({"matchLabels": {"role": "x"}}),
                Some("role is missing, the selector wants \"x\""),
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]}),
                None,
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}),
                Some("tier is \"front\", the selector wants one of a, b"),
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}),
                Some("wants none of front"),
            ),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
                Some("wants no value"),
            ),
            (json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), None),
            (Value::Null, None),
            (json!("nonsense"), None),
        ] {
            let text = found("Deployment", selector.clone(), labels());
            assert_eq!(text.is_some(), end.is_some(), "{selector}: {text:?}");
            assert!(text.unwrap_or_default().contains(end.unwrap_or_default()), "{selector}");
        }
    }

    #[test]
    fn the_selector_of_a_replication_controller_is_a_map_of_labels() {
        let labels = json!({"app": "web"});
        assert_eq!(found("ReplicationController", labels.clone(), labels.clone()), None);
        assert!(found("ReplicationController", json!({"app": "x"}), labels.clone()).is_some());
        assert_eq!(found("Service", json!({"app": "x"}), labels), None);
    }
}
