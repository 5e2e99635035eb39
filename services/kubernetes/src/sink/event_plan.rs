//! Whether an Event is written, and as what: of all objects only the Node of its sender and the pods that
//! the cluster has bound to that node, or had until a moment ago.

use headwater_controller::NodeEvent;
use headwater_event::ResourceKey;
use serde_json::{Value, json};

use super::request::WriteRequest;
use crate::cluster_view::ViewObjects;

/// What comes next for an Event.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EventStep {
    /// One of these requests: the first, and the second where the API says that the first does not fit.
    Write(Box<EventWrite>),
    /// Nothing yet: its Node is not there.
    Wait,
    /// It is about an object of another: why it is refused, in words.
    Refuse(String),
}

/// The requests that write an Event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EventWrite {
    pub(super) create: WriteRequest,
    pub(super) patch: WriteRequest,
    /// Whether it has probably been written before: it counts several occurrences.
    pub(super) is_known: bool,
}

/// The next step for an Event.
pub(super) fn plan_event(reported: &NodeEvent, view: &ViewObjects) -> EventStep {
    let NodeEvent { key, node, event, .. } = reported;
    let about = &event["involvedObject"];
    let name = about["name"].as_str().unwrap_or_default();
    let reported_uid = about["uid"].as_str();
    let uid = if about["kind"] == "Pod" {
        let namespace = about["namespace"].as_str();
        let pod = ResourceKey::new(namespace, "pod", name).ok();
        let pod = pod.and_then(|pod| view.pod(&pod)).filter(|pod| pod.node == *node);
        match (pod, reported_uid) {
            (Some(pod), None) => &*pod.uid,
            (Some(pod), Some(uid)) if *pod.uid == *uid => uid,
            (_, Some(uid)) if view.was_bound(uid, node) => uid,
            _ => {
                let namespace = namespace.unwrap_or_default();
                return EventStep::Refuse(format!(
                    "it is about Pod {namespace}/{name}, which the cluster has not bound to the node"
                ));
            }
        }
    } else if name == node.as_str() {
        let Some(node) = view.node(node) else { return EventStep::Wait };
        &*node.uid
    } else {
        return EventStep::Refuse(format!("it is about Node {name}"));
    };
    let mut object = event.clone();
    object["involvedObject"]["uid"] = uid.into();
    object["metadata"] = json!({"name": key.name(), "namespace": key.namespace()});
    let patch = WriteRequest::event(key, guarded_patch(&object));
    let is_known = event["count"].as_u64().is_some_and(|count| count > 1);
    let create = WriteRequest::create_event(key, object);
    EventStep::Write(Box::new(EventWrite { create, patch, is_known }))
}

/// The patch of what moves when an Event happens again. A node may choose the name of another's Event:
/// nothing is changed of one that is not by this node and about this object.
fn guarded_patch(event: &Value) -> Value {
    let guards = ["/involvedObject/uid", "/source/component", "/source/host"];
    let guards =
        guards.map(|path| json!({"op": "test", "path": path, "value": event.pointer(path)}));
    let changes = ["/count", "/firstTimestamp", "/lastTimestamp"];
    let changes =
        changes.map(|path| json!({"op": "add", "path": path, "value": event.pointer(path)}));
    guards.into_iter().chain(changes).collect()
}

#[cfg(test)]
mod tests {
    use headwater_event::ReportId;

    use super::*;
    use crate::cluster_view::ClusterView;
    use crate::kind::Kind;
    use crate::raw_object::RawObject;
    use crate::reflector::Step;

    fn view() -> ClusterView {
        let view = ClusterView::default();
        for node in ["gw", "other"] {
            let metadata = json!({"name": node, "uid": format!("u-{node}")});
            view.step(Kind::Node, &Step::Apply(RawObject::new(json!({ "metadata": metadata }))));
        }
        view.step(Kind::Pod, &Step::Apply(pod("web", "gw", "u-web")));
        view.step(Kind::Pod, &Step::Apply(pod("theirs", "other", "u-theirs")));
        view
    }

    fn pod(name: &str, on: &str, uid: &str) -> RawObject {
        let metadata = json!({"name": name, "namespace": "d", "uid": uid});
        RawObject::new(json!({"metadata": metadata, "spec": {"nodeName": on}}))
    }

    fn about(involved: Value, count: u32) -> NodeEvent {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "BackOff",
            "metadata": {"name": "e.1", "namespace": "d", "creationTimestamp": "t"},
            "involvedObject": involved, "count": count, "message": "m",
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z",
            "source": {"component": "edged", "host": "gw"},
        });
        let (key, node) = ("d/event/e.1".parse().expect("a key"), "gw".parse().expect("a name"));
        NodeEvent { key, node, id: ReportId::default(), event }
    }

    fn about_pod(name: &str, uid: Option<&str>) -> NodeEvent {
        let mut involved = json!({"kind": "Pod", "namespace": "d", "name": name});
        if let Some(uid) = uid {
            involved["uid"] = uid.into();
        }
        about(involved, 1)
    }

    fn written(event: &NodeEvent, view: &ClusterView) -> (EventWrite, Value) {
        let EventStep::Write(write) = plan_event(event, &view.lock()) else {
            panic!("it is not written")
        };
        let body = write.create.build().expect("a request").into_body();
        (*write, serde_json::from_slice(&body).expect("JSON"))
    }

    #[test]
    fn an_event_names_the_uid_of_its_object_and_is_patched_only_where_it_is_the_nodes_own() {
        let view = view();
        for uid in [None, Some("u-web")] {
            let (write, object) = written(&about_pod("web", uid), &view);
            assert!(!write.is_known);
            assert_eq!(object["involvedObject"]["uid"], "u-web");
            assert_eq!(object["metadata"], json!({"name": "e.1", "namespace": "d"}));
        }
        let (write, object) = written(&about(json!({"kind": "Node", "name": "gw"}), 7), &view);
        assert!(write.is_known);
        assert_eq!(object["involvedObject"]["uid"], "u-gw");
        let request = write.patch.build().expect("a request");
        assert_eq!(request.uri().path(), "/api/v1/namespaces/d/events/e.1");
        let patch: Value = serde_json::from_slice(request.body()).expect("JSON");
        assert_eq!(patch[0], json!({"op": "test", "path": "/involvedObject/uid", "value": "u-gw"}));
        assert_eq!(patch[2], json!({"op": "test", "path": "/source/host", "value": "gw"}));
        assert_eq!(patch[3], json!({"op": "add", "path": "/count", "value": 7}));
    }

    #[test]
    fn an_event_about_an_object_of_another_is_refused() {
        let view = view();
        let refused = |event: &NodeEvent| match plan_event(event, &view.lock()) {
            EventStep::Refuse(reason) => reason,
            step => panic!("{step:?}"),
        };
        for (name, uid) in [
            ("theirs", Some("u-theirs")),
            ("theirs", None),
            ("web", Some("u-theirs")),
            ("nowhere", None),
            ("nowhere", Some("u-nowhere")),
        ] {
            let reason = refused(&about_pod(name, uid));
            assert!(reason.contains(&format!("Pod d/{name}, which the cluster")), "{reason}");
        }
        let reason = refused(&about(json!({"kind": "Node", "name": "other"}), 1));
        assert_eq!(reason, "it is about Node other");
    }

    #[test]
    fn the_last_event_of_a_pod_that_is_gone_or_was_made_again_is_written() {
        let view = view();
        view.step(Kind::Pod, &Step::Apply(pod("web", "gw", "u-second")));
        view.step(Kind::Pod, &Step::Delete(pod("theirs", "other", "u-theirs")));
        assert_eq!(
            written(&about_pod("web", Some("u-web")), &view).1["involvedObject"]["uid"],
            "u-web"
        );
        let theirs = about_pod("theirs", Some("u-theirs"));
        assert!(matches!(plan_event(&theirs, &view.lock()), EventStep::Refuse(_)));
        let theirs = NodeEvent { node: "other".parse().expect("a name"), ..theirs };
        assert!(matches!(plan_event(&theirs, &view.lock()), EventStep::Write(_)));
    }

    #[test]
    fn an_event_of_a_node_waits_until_its_node_is_there() {
        let view = ClusterView::default();
        let step = plan_event(&about(json!({"kind": "Node", "name": "gw"}), 1), &view.lock());
        assert_eq!(step, EventStep::Wait);
    }
}
