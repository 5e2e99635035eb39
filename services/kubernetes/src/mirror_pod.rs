//! The static pods of an edge, and the pod by which the API shows each: its mirror.
//!
//! A mirror has the annotations of a kubelet's (`pkg/kubelet/pod/mirror_client.go`): one with the hash of the file, by
//! which a changed file is known, and the Node as its owner, without which NodeRestriction refuses it.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_event::{NodeName, ResourceKey};
use headwater_object::references::references;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::digest::{Digest, digest};
use crate::node_object::UnfitNode;

/// The annotation of a reported Node that has the static pods.
pub(crate) const ANNOTATION: &str = "headwater/static-pods";

/// The annotation by which a pod is a mirror. Its value is that of [`HASH`].
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation of a static pod with the hash of its file.
const HASH: &str = "kubernetes.io/config.hash";

/// The metadata of a mirror that the node decides.
const METADATA: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// The kinds of objects that no static pod names.
const OF_A_CLUSTER: [&str; 3] = ["configmap", "secret", "persistentvolumeclaim"];

/// The most static pods of a node: a kubelet's number of pods.
const PODS_MAX: usize = 110;

/// The static pods of a node, as it reports them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StatedPods {
    /// Whether a pod that is not among them has no file.
    pub(crate) is_complete: bool,
    /// The pods.
    pub(crate) pods: BTreeMap<ResourceKey, Arc<StaticPod>>,
}

/// A static pod of a node.
#[derive(Debug, PartialEq)]
pub(crate) struct StaticPod {
    /// The hash of its file.
    pub(crate) hash: Box<str>,
    /// Its mirror, but for the owner.
    mirror: Value,
}

/// The annotation.
#[derive(Deserialize)]
struct Statement {
    complete: bool,
    pods: Vec<Value>,
}

impl StatedPods {
    /// The static pods in an annotation of the Node `node`. A pod without a hash, of another node, with a reference to
    /// an object of the cluster, or with a name that does not end with the node's is left out: no node takes the names of
    /// another's.
    pub(crate) fn parse(text: &str, node: &str) -> Result<Self, UnfitNode> {
        let statement: Statement =
            serde_json::from_str(text).map_err(|_| UnfitNode::NoStaticPods)?;
        if statement.pods.len() > PODS_MAX {
            return Err(UnfitNode::NoStaticPods);
        }
        let pods = statement.pods.into_iter().filter_map(|pod| StaticPod::parse(pod, node));
        Ok(Self { is_complete: statement.complete, pods: pods.collect() })
    }
}

impl StaticPod {
    fn parse(mut pod: Value, node: &str) -> Option<(ResourceKey, Arc<Self>)> {
        if pod["spec"]["nodeName"] != node {
            return None;
        }
        let metadata = pod.get_mut("metadata")?.as_object_mut()?;
        // What else there is would bind the mirror: finalizers, owners.
        metadata.retain(|field, _| METADATA.contains(&field.as_str()));
        let text = |field: &str| metadata.get(field).and_then(Value::as_str);
        let is_own = |name: &&str| name.strip_suffix(node).is_some_and(|it| it.ends_with('-'));
        let name = text("name").filter(is_own)?;
        let key = ResourceKey::new(Some(text("namespace")?), "pod", name).ok()?;
        let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
        let hash = annotations.get(HASH)?.as_str().filter(|hash| !hash.is_empty())?.to_owned();
        annotations.insert(MIRROR.to_owned(), hash.clone().into());
        // A stream has what the pods of its node name: a mirror must not name more than the node has.
        let names_objects = |kind: &str| OF_A_CLUSTER.contains(&kind);
        let has_account = !pod["spec"]["serviceAccountName"].is_null();
        if has_account || references(&key, &pod).iter().any(|it| names_objects(it.key.kind())) {
            return None;
        }
        Some((key, Arc::new(Self { hash: hash.into(), mirror: pod })))
    }

    /// The mirror, which goes with the Node of this UID.
    pub(crate) fn mirror(&self, node: &NodeName, node_uid: &str) -> Value {
        let mut mirror = self.mirror.clone();
        mirror["apiVersion"] = "v1".into();
        mirror["kind"] = "Pod".into();
        mirror["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Node", "name": node.as_str(), "uid": node_uid,
            "controller": true,
        }]);
        mirror
    }

    /// Of what makes another mirror.
    pub(crate) fn digest(&self) -> Digest {
        digest(&json!(&*self.hash))
    }
}

/// The hash of the file that a pod of the API mirrors; `None`: it is no mirror.
pub(crate) fn mirrored(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][MIRROR].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, on: &str, hash: &str) -> Value {
        let annotations = json!({ HASH: hash, "kubernetes.io/config.source": "file" });
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "d", "annotations": annotations},
            "spec": {"nodeName": on, "containers": [{"name": "main", "image": "b"}]},
        })
    }

    fn parse(pods: &[Value]) -> StatedPods {
        let text = json!({"complete": true, "pods": pods}).to_string();
        StatedPods::parse(&text, "gw").expect("a statement")
    }

    #[test]
    fn a_mirror_has_the_hash_of_the_file_and_the_node_as_owner() {
        let mut bound = pod("web-gw", "gw", "h1");
        bound["metadata"]["finalizers"] = json!(["a.example/b"]);
        let stated = parse(&[bound]);
        let (key, pod) = stated.pods.first_key_value().expect("a pod");
        assert_eq!((key.to_string().as_str(), stated.is_complete), ("d/pod/web-gw", true));
        let mirror = pod.mirror(&"gw".parse().expect("a name"), "u");
        assert_eq!(mirrored(&mirror), Some("h1"));
        assert!(mirror["metadata"]["finalizers"].is_null());
        let owner = &mirror["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["uid"], &owner["controller"]),
            (&json!("Node"), &json!("u"), &json!(true))
        );
        let other = parse(&[self::pod("web-gw", "gw", "h2")]);
        let other = other.pods.into_values().next().expect("a pod");
        assert_ne!(other.digest(), pod.digest());
    }

    #[test]
    fn what_is_no_static_pod_of_the_node_is_left_out() {
        let named_otherwise = ["e-other", "gw", "f.gw"].map(|name| pod(name, "gw", "h"));
        assert!(parse(&named_otherwise).pods.is_empty());
        let mut naming = pod("g-gw", "gw", "h");
        naming["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "of-others"}}]);
        let mut with_account = pod("g-gw", "gw", "h");
        with_account["spec"]["serviceAccountName"] = "admin".into();
        assert!(parse(&[naming, with_account]).pods.is_empty());
        let mut nameless = pod("a-gw", "gw", "h");
        nameless["metadata"]["name"] = Value::Null;
        let of_another = pod("b-gw", "other", "h");
        let stated =
            parse(&[nameless, of_another, pod("c-gw", "gw", ""), json!(7), pod("d-gw", "gw", "h")]);
        let names: Vec<&str> = stated.pods.keys().map(ResourceKey::name).collect();
        assert_eq!(names, ["d-gw"]);
    }

    #[test]
    fn what_is_no_statement_is_refused() {
        let many = json!({"complete": true, "pods": vec![7; PODS_MAX + 1]}).to_string();
        for text in ["", "[]", r#"{"pods": []}"#, r#"{"complete": 1, "pods": []}"#, &many] {
            assert_eq!(StatedPods::parse(text, "gw"), Err(UnfitNode::NoStaticPods), "{text}");
        }
    }
}
