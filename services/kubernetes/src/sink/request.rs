//! The requests of the sink.

use headwater_event::{NodeName, ResourceKey};
use http::{Method, Request};
use serde_json::{Value, json};

use super::lease::LEASE_SECONDS;
use crate::cluster_view::PodView;

/// A request, before it is sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriteRequest {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Value,
}

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// The namespace of the Leases of nodes.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";

impl WriteRequest {
    /// Creates a Node.
    pub(crate) fn create_node(node: Value) -> Self {
        Self { method: Method::POST, path: "/api/v1/nodes".into(), content_type: JSON, body: node }
    }

    /// Patches labels and annotations of a Node.
    pub(crate) fn node_metadata(node: &NodeName, patch: Value) -> Self {
        Self::patch(format!("/api/v1/nodes/{node}"), MERGE_PATCH, patch)
    }

    /// Patches the status of a Node.
    pub(crate) fn node_status(node: &NodeName, patch: Value) -> Self {
        Self::patch(format!("/api/v1/nodes/{node}/status"), STRATEGIC_MERGE_PATCH, patch)
    }

    /// Patches the CSINode of a node.
    pub(crate) fn csi_node(node: &NodeName, patch: Value) -> Self {
        Self::patch(format!("{CSI_NODES}/{node}"), MERGE_PATCH, patch)
    }

    /// Creates the CSINode of a node.
    pub(crate) fn create_csi_node(object: Value) -> Self {
        Self { method: Method::POST, path: CSI_NODES.into(), content_type: JSON, body: object }
    }

    /// Creates a pod.
    pub(crate) fn create_pod(pod: &ResourceKey, object: Value) -> Self {
        let namespace = pod.namespace().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        Self { method: Method::POST, path, content_type: JSON, body: object }
    }

    /// Patches the status of a pod.
    pub(crate) fn pod_status(pod: &ResourceKey, patch: Value) -> Self {
        Self::patch(format!("{}/status", path(pod)), STRATEGIC_MERGE_PATCH, patch)
    }

    /// Deletes the pod of this UID for good.
    pub(crate) fn delete_pod(pod: &ResourceKey, uid: &str) -> Self {
        let body = json!({
            "apiVersion": "v1", "kind": "DeleteOptions",
            "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
        });
        Self { method: Method::DELETE, path: path(pod), content_type: JSON, body }
    }

    /// Lets a pod tolerate the absence of its node without a limit, if it is still what `view` shows.
    pub(crate) fn tolerations(pod: &ResourceKey, view: &PodView) -> Self {
        let guard = [("uid", &*view.uid), ("resourceVersion", &*view.version)];
        let guard = guard.map(|(field, value)| {
            json!({"op": "test", "path": format!("/metadata/{field}"), "value": value})
        });
        let changes = view.toleration_changes.iter().map(|change| change.operation());
        let patch = guard.into_iter().chain(changes).collect();
        Self::patch(path(pod), JSON_PATCH, patch)
    }

    /// Renews the Lease of a node. `now` is a time with microseconds.
    pub(crate) fn renew_lease(node: &NodeName, now: &str) -> Self {
        Self::patch(
            format!("{LEASES}/{node}"),
            MERGE_PATCH,
            json!({ "spec": lease_spec(node, now) }),
        )
    }

    /// Creates the Lease of a node, which goes with the Node of this UID.
    pub(crate) fn create_lease(node: &NodeName, node_uid: &str, now: &str) -> Self {
        let owner =
            json!({"apiVersion": "v1", "kind": "Node", "name": node.as_str(), "uid": node_uid});
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node.as_str(), "ownerReferences": [owner]},
            "spec": lease_spec(node, now),
        });
        Self { method: Method::POST, path: LEASES.into(), content_type: JSON, body }
    }

    /// Creates an Event.
    pub(crate) fn create_event(event: &ResourceKey, object: Value) -> Self {
        let namespace = event.namespace().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/events");
        Self { method: Method::POST, path, content_type: JSON, body: object }
    }

    /// Patches an Event, by operations that may name what has to be there.
    pub(crate) fn event(event: &ResourceKey, operations: Value) -> Self {
        let namespace = event.namespace().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/events/{}", event.name());
        Self::patch(path, JSON_PATCH, operations)
    }

    /// The request, as it is sent.
    pub(crate) fn build(&self) -> Result<Request<Vec<u8>>, http::Error> {
        // Not by its `Display`, which checks each piece of text once more.
        let body = serde_json::to_vec(&self.body).expect("a value is JSON");
        Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(http::header::CONTENT_TYPE, self.content_type)
            .body(body)
    }

    fn patch(path: String, content_type: &'static str, body: Value) -> Self {
        Self { method: Method::PATCH, path, content_type, body }
    }
}

fn path(pod: &ResourceKey) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace().unwrap_or_default(), pod.name())
}

fn lease_spec(node: &NodeName, now: &str) -> Value {
    json!({
        "holderIdentity": node.as_str(), "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_view::ClusterView;
    use crate::kind::Kind;
    use crate::raw_object::RawObject;
    use crate::reflector::Step;

    #[test]
    fn a_delete_names_the_uid_and_no_grace() {
        let pod = "shop/pod/web".parse().expect("a key");
        let request = WriteRequest::delete_pod(&pod, "u").build().expect("a request");
        assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/pods/web");
        let body: Value = serde_json::from_slice(request.body()).expect("JSON");
        assert_eq!(body["gracePeriodSeconds"], 0);
        assert_eq!(body["preconditions"], json!({"uid": "u"}));
    }

    #[test]
    fn a_change_of_tolerations_names_the_version_and_inserts_before_all_others() {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
            "spec": {"nodeName": "gw", "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": 300},
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            ]},
        });
        let node = json!({"metadata": {"name": "gw", "uid": "n", "resourceVersion": "1"}});
        let view = ClusterView::default();
        view.step(Kind::Node, &Step::Apply(RawObject::new(node)));
        view.step(Kind::Pod, &Step::Apply(RawObject::new(object)));
        let pod = "shop/pod/web".parse().expect("a key");
        let shown = view.lock().pod(&pod).cloned().expect("shown");
        let request = WriteRequest::tolerations(&pod, &shown).build().expect("a request");
        let body: Value = serde_json::from_slice(request.body()).expect("JSON");
        let unlimited = json!({
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
        });
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "remove", "path": "/spec/tolerations/0/tolerationSeconds"},
            {"op": "add", "path": "/spec/tolerations/0", "value": unlimited},
        ]);
        assert_eq!(body, expected);
    }
}
