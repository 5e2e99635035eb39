//! The trace contexts of changes, from the edge's watch to the pods' workers.

use std::collections::BTreeMap;

use headwater_event::ResourceKey;
use headwater_proto::local::WatchEvent;
use k8s_openapi::api::core::v1::Pod;

use super::compressed_object::CompressedObject;
use crate::pod;

/// The trace contexts of events that were not passed to the workers yet.
#[derive(Debug, Default)]
pub(crate) struct ChangeTraces(BTreeMap<ResourceKey, String>);

impl ChangeTraces {
    /// Adds the trace context of an event, if it has one.
    pub(crate) fn add(&mut self, event: &WatchEvent) {
        let Some(object) = event.object.as_ref().filter(|_| !event.traceparent.is_empty()) else {
            return;
        };
        if let Ok(key) = object.key.parse() {
            self.0.insert(key, event.traceparent.clone());
        }
    }

    /// The trace of the last change of the object at `key`.
    pub(crate) fn of(&self, key: &ResourceKey) -> Option<String> {
        self.0.get(key).cloned()
    }

    /// The trace of the last change of the pod at `key`, else of an object that it names.
    pub(crate) fn of_pod(&self, key: &ResourceKey, pod: &CompressedObject<Pod>) -> Option<String> {
        self.of(key).or_else(|| {
            if self.0.is_empty() {
                return None;
            }
            let pod = pod.decode();
            let is_named = |object: &ResourceKey| {
                object.namespace() == key.namespace()
                    && pod::names(&pod, object.kind(), object.name())
            };
            self.0.iter().find(|(object, _)| is_named(object)).map(|(_, trace)| trace.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::local;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_changed_by_itself_or_by_what_it_names() {
        let mut traces = ChangeTraces::default();
        let mut event = |key: &str, traceparent: &str| {
            let object = local::Object { key: key.to_owned(), ..local::Object::default() };
            let traceparent = traceparent.to_owned();
            traces.add(&WatchEvent { object: Some(object), traceparent, ..WatchEvent::default() });
        };
        event("a/configmap/site", "of the map");
        event("b/configmap/other", "elsewhere");
        event("a/pod/web", "of the pod");
        event("a/pod/quiet", "");
        let pod = |volumes: serde_json::Value| {
            let pod = json!({"spec": {"containers": [], "volumes": volumes}});
            CompressedObject::encode(&serde_json::from_value(pod).expect("a pod")).expect("encodes")
        };
        let named = pod(json!([{"name": "v", "configMap": {"name": "site"}}]));
        let other = pod(json!([{"name": "v", "configMap": {"name": "other"}}]));
        let key = |text: &str| text.parse::<ResourceKey>().expect("a key");
        assert_eq!(traces.of_pod(&key("a/pod/web"), &named).as_deref(), Some("of the pod"));
        assert_eq!(traces.of_pod(&key("a/pod/db"), &named).as_deref(), Some("of the map"));
        assert_eq!(traces.of_pod(&key("a/pod/db"), &other), None, "another namespace");
        assert_eq!(traces.of(&key("a/pod/quiet")), None);
    }
}
