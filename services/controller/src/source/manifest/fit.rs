//! Fit: whether a pod may run on a node, by what the pod asks of it and what the node keeps away.
//!
//! Node selectors, required node affinity, taints and cordons, as a cluster's scheduler reads
//! them. Preferences, resources and relations between pods are left to real schedulers.

use std::collections::BTreeMap;

use headwater_event::NodeName;
use serde_json::{Value, json};

/// A node as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeTraits {
    /// Its name.
    pub(crate) name: NodeName,
    labels: BTreeMap<String, String>,
    /// `spec.taints`, as they are.
    taints: Vec<Value>,
    cordoned: bool,
}

impl NodeTraits {
    /// A node of which there may be a Node object.
    pub(crate) fn new(name: &NodeName, object: Option<&Value>) -> Self {
        // What a kubelet says of itself when it registers; a Node object may say otherwise.
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), name.to_string()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("kubernetes.io/arch".to_owned(), architecture().to_owned()),
        ]);
        let object = object.unwrap_or(&Value::Null);
        for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
            labels.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
        Self {
            name: name.clone(),
            labels,
            taints: object["spec"]["taints"].as_array().cloned().unwrap_or_default(),
            cordoned: object["spec"]["unschedulable"] == Value::Bool(true),
        }
    }

    /// A pod with nothing but what decides where it fits.
    pub(crate) fn asking_pod(pod: &Value) -> Value {
        let [selector, affinity, tolerations] = Self::asked_by(pod);
        json!({"spec": {
            "nodeSelector": selector, "affinity": {"nodeAffinity": affinity},
            "tolerations": tolerations,
        }})
    }

    /// Everything in a pod that decides where it fits: pods that ask alike fit alike.
    pub(crate) fn asked_by(pod: &Value) -> [Value; 3] {
        let spec = &pod["spec"];
        let affinity = &spec["affinity"]["nodeAffinity"];
        [&spec["nodeSelector"], affinity, &spec["tolerations"]].map(Value::clone)
    }

    /// Whether a pod may be placed here.
    pub(crate) fn fits(&self, pod: &Value) -> bool {
        !self.cordoned && self.fits_daemon(pod)
    }

    /// Whether a pod of a DaemonSet may be placed here: a cordon does not keep it away.
    pub(crate) fn fits_daemon(&self, pod: &Value) -> bool {
        let spec = &pod["spec"];
        self.is_selected(&spec["nodeSelector"])
            && self.is_preferred(&spec["affinity"]["nodeAffinity"])
            && self.taints.iter().all(|taint| is_tolerated(taint, &spec["tolerations"]))
    }

    fn is_selected(&self, selector: &Value) -> bool {
        selector.as_object().into_iter().flatten().all(|(key, value)| {
            self.labels.get(key).map(String::as_str) == Some(value.as_str().unwrap_or_default())
        })
    }

    /// Whether one of the required terms holds; no requirement is one that holds.
    fn is_preferred(&self, affinity: &Value) -> bool {
        let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        let Some(terms) = required["nodeSelectorTerms"].as_array() else {
            return true;
        };
        terms.iter().any(|term| {
            let expressions = || items(&term["matchExpressions"]);
            let fields = || items(&term["matchFields"]);
            // A term without a condition matches nothing.
            expressions().chain(fields()).next().is_some()
                && expressions().all(|expression| {
                    let key = expression["key"].as_str().unwrap_or_default();
                    holds(expression, self.labels.get(key).map(String::as_str))
                })
                && fields().all(|field| {
                    field["key"] == "metadata.name" && holds(field, Some(self.name.as_str()))
                })
        })
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Whether a node selector requirement holds for what the node has under its key.
fn holds(requirement: &Value, found: Option<&str>) -> bool {
    let values = || items(&requirement["values"]).filter_map(Value::as_str);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    match requirement["operator"].as_str() {
        Some("In") => values().any(|value| Some(value) == found),
        Some("NotIn") => values().all(|value| Some(value) != found),
        Some("Exists") => found.is_some(),
        Some("DoesNotExist") => found.is_none(),
        Some("Gt") => {
            matches!((number(found), number(values().next())), (Some(a), Some(b)) if a > b)
        }
        Some("Lt") => {
            matches!((number(found), number(values().next())), (Some(a), Some(b)) if a < b)
        }
        _ => false,
    }
}

fn is_tolerated(taint: &Value, tolerations: &Value) -> bool {
    if !matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute")) {
        return true;
    }
    items(tolerations).any(|toleration| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (effect, key) = (text(&toleration["effect"]), text(&toleration["key"]));
        let exists = toleration["operator"] == "Exists";
        (effect.is_empty() || effect == text(&taint["effect"]))
            && ((key.is_empty() && exists) || key == text(&taint["key"]))
            && (exists || text(&toleration["value"]) == text(&taint["value"]))
    })
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> NodeTraits {
        let object = json!({"metadata": {"labels": {"zone": "b", "gen": "4"}}});
        NodeTraits::new(&"gw-1".parse().expect("ok"), Some(&object))
    }

    fn requires(expression: Value) -> Value {
        let terms = json!([{"matchExpressions": [expression]}]);
        json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}})
    }

    #[test]
    fn a_node_selector_asks_for_labels() {
        let selects = |selector| node().fits(&json!({"spec": {"nodeSelector": selector}}));
        assert!(selects(json!({"zone": "b"})));
        assert!(selects(json!({"kubernetes.io/hostname": "gw-1", "kubernetes.io/os": "linux"})));
        assert!(!selects(json!({"zone": "c"})));
        assert!(!selects(json!({"gpu": ""})));
    }

    #[test]
    fn required_affinity_is_read_with_all_its_operators() {
        for (operator, values, fits) in [
            ("In", json!(["a", "b"]), true),
            ("In", json!(["a"]), false),
            ("NotIn", json!(["a"]), true),
            ("NotIn", json!(["b"]), false),
            ("Exists", json!([]), true),
            ("DoesNotExist", json!([]), false),
            ("Sideways", json!([]), false),
        ] {
            let pod = requires(json!({"key": "zone", "operator": operator, "values": values}));
            assert_eq!(node().fits(&pod), fits, "{operator} {values}");
        }
        for (operator, value, fits) in [("Gt", "3", true), ("Gt", "4", false), ("Lt", "5", true)] {
            let pod = requires(json!({"key": "gen", "operator": operator, "values": [value]}));
            assert_eq!(node().fits(&pod), fits, "{operator} {value}");
        }
        let by_name = json!({"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gw-1"]}]},
        ]}}}}});
        assert!(node().fits(&by_name));
    }

    #[test]
    fn taints_and_cordons_keep_pods_away() {
        let spec = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
        let tainted = NodeTraits::new(&"a".parse().expect("ok"), Some(&json!({ "spec": spec })));
        let tolerates = |toleration| tainted.fits(&json!({"spec": {"tolerations": [toleration]}}));
        assert!(!tainted.fits(&json!({})));
        assert!(tolerates(json!({"operator": "Exists"})));
        assert!(tolerates(json!({"key": "k", "value": "v"})));
        assert!(!tolerates(json!({"key": "k", "value": "w"})));
        assert!(!tolerates(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})));
        let spec = json!({"unschedulable": true});
        let cordoned = NodeTraits::new(&"a".parse().expect("ok"), Some(&json!({ "spec": spec })));
        assert!(!cordoned.fits(&json!({})));
        assert!(cordoned.fits_daemon(&json!({})));
    }
}
