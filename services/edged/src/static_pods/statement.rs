//! The static pods as the Node object states them, so that the cloud can show a mirror of each. Pure.

use serde_json::{Value, json};

use super::StaticPods;

/// The annotation with the static pods, as JSON.
pub(crate) const ANNOTATION: &str = "headwater/static-pods";

/// The largest statement, in bytes of the JSON text that the Node has of it: a controller takes a Node of four times as many.
const BYTES_MAX: usize = 128 << 10;

/// The most pods of a statement: a kubelet's number of pods. A controller takes no more.
const PODS_MAX: usize = 110;

/// The statement: `{"complete": BOOLEAN, "pods": [POD, ...]}`. It is not complete while a pod that is absent from it may
/// have a file. `None`: nothing is known yet.
pub(crate) fn stated(found: &StaticPods) -> Option<String> {
    if !found.is_complete && found.pods.is_empty() {
        return None;
    }
    let mut bytes = 0;
    let fits = |pod: &Value| {
        // The text is a text in the JSON of the Node, with each quote escaped.
        bytes += Value::from(pod.to_string()).to_string().len();
        bytes <= BYTES_MAX
    };
    let pods: Vec<Value> = found.pods.values().map(|file| as_created(&file.object)).collect();
    let all = pods.len();
    let pods: Vec<Value> = pods.into_iter().take(PODS_MAX).take_while(fits).collect();
    let is_complete = found.is_complete && pods.len() == all;
    Some(json!({"complete": is_complete, "pods": pods}).to_string())
}

/// A pod without what an API server gives it.
fn as_created(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("uid");
        metadata.remove("creationTimestamp");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::super::pod_file::PodFile;
    use super::*;

    fn found(count: usize, bytes: usize) -> StaticPods {
        let pods = (0..count).map(|n| {
            let text = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("web-{n:03}")},
                "spec": {"containers": [{"name": "main", "image": "b", "args": ["x".repeat(bytes)]}]},
            });
            let node = "gw-1".parse().expect("a name");
            PodFile::parse(&node, text.to_string().as_bytes()).expect("a pod")
        });
        StaticPods { pods: pods.collect(), is_complete: true, ..StaticPods::default() }
    }

    fn value(found: &StaticPods) -> Value {
        serde_json::from_str(&stated(found).expect("a statement")).expect("JSON")
    }

    #[test]
    fn pods_are_stated_as_a_cloud_would_create_them() {
        let stated = value(&found(2, 1));
        assert_eq!(stated["complete"], true);
        let pod = &stated["pods"][0];
        assert_eq!(
            (&pod["metadata"]["name"], &pod["spec"]["nodeName"]),
            (&json!("web-000-gw-1"), &json!("gw-1"))
        );
        assert!(pod["metadata"]["uid"].is_null() && pod["status"].is_null());
        assert!(pod["metadata"]["annotations"]["kubernetes.io/config.hash"].is_string());
    }

    #[test]
    fn a_node_without_files_states_that_and_one_that_has_not_looked_states_nothing() {
        assert_eq!(value(&StaticPods::none()), json!({"complete": true, "pods": []}));
        assert_eq!(stated(&StaticPods::default()), None);
        let partial = StaticPods { is_complete: false, ..found(1, 1) };
        assert_eq!(value(&partial)["complete"], false);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_not_taken_for_gone() {
        for (found, fit) in [(found(5, 60 << 10), 2), (found(PODS_MAX + 1, 1), PODS_MAX)] {
            let stated = value(&found);
            assert_eq!(stated["pods"].as_array().map(Vec::len), Some(fit));
            assert_eq!(stated["complete"], false);
        }
    }
}
