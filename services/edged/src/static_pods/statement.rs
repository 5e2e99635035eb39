//! The static pods as the Node object states them, so that the cloud can show a mirror of each. Pure.

use serde_json::{Value, json};

use super::StaticPods;

/// The annotation with the static pods, as JSON.
pub(crate) const ANNOTATION: &str = "headwater/static-pods";

/// The largest statement, in bytes: an API server takes as much in all annotations of an object.
const BYTES_MAX: usize = 256 << 10;

/// The statement: `{"complete": BOOLEAN, "pods": [POD, ...]}`. It is not complete while a pod that is absent from it may
/// have a file. `None`: nothing is known yet.
pub(crate) fn stated(found: &StaticPods) -> Option<String> {
    if !found.is_complete && found.pods.is_empty() {
        return None;
    }
    let mut bytes = 0;
    let fits = |pod: &Value| {
        bytes += pod.to_string().len();
        bytes <= BYTES_MAX
    };
    let pods: Vec<Value> = found.pods.values().map(|file| as_created(&file.object)).collect();
    let all = pods.len();
    let pods: Vec<Value> = pods.into_iter().take_while(fits).collect();
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
        let stated = value(&found(5, 100 << 10));
        assert_eq!(stated["pods"].as_array().map(Vec::len), Some(2));
        assert_eq!(stated["complete"], false);
    }
}
