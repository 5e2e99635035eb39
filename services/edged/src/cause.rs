//! The traces that the changes of a node's pods are part of, from the edge's watch to the workers.

use std::collections::BTreeMap;

use headwater_event::ResourceKey;
use headwater_proto::local::WatchEvent;
use k8s_openapi::api::core::v1::Pod;

use crate::packed::Packed;
use crate::pod;

/// The trace contexts of events that the workers have not been told of.
#[derive(Debug, Default)]
pub(crate) struct Causes(BTreeMap<ResourceKey, String>);

impl Causes {
    /// Takes in what an event says of its cause.
    pub(crate) fn take(&mut self, event: &WatchEvent) {
        let Some(object) = event.object.as_ref().filter(|_| !event.traceparent.is_empty()) else {
            return;
        };
        if let Ok(key) = object.key.parse() {
            self.0.insert(key, event.traceparent.clone());
        }
    }

    /// What changed the object at `key`.
    pub(crate) fn of(&self, key: &ResourceKey) -> Option<String> {
        self.0.get(key).cloned()
    }

    /// What changed the pod at `key`: itself, else an object that it names.
    pub(crate) fn of_pod(&self, key: &ResourceKey, pod: &Packed<Pod>) -> Option<String> {
        self.of(key).or_else(|| {
            if self.0.is_empty() {
                return None;
            }
            let pod = pod.open();
            let is_named = |object: &ResourceKey| {
                object.namespace() == key.namespace()
                    && pod::names(&pod, object.kind(), object.name())
            };
            self.0.iter().find(|(object, _)| is_named(object)).map(|(_, cause)| cause.clone())
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
        let mut causes = Causes::default();
        let mut event = |key: &str, traceparent: &str| {
            let object = local::Object { key: key.to_owned(), ..local::Object::default() };
            let traceparent = traceparent.to_owned();
            causes.take(&WatchEvent { object: Some(object), traceparent, ..WatchEvent::default() });
        };
        event("a/configmap/site", "of the map");
        event("b/configmap/other", "elsewhere");
        event("a/pod/web", "of the pod");
        event("a/pod/quiet", "");
        let pod = |volumes: serde_json::Value| {
            let pod = json!({"spec": {"containers": [], "volumes": volumes}});
            Packed::pack(&serde_json::from_value(pod).expect("a pod")).expect("packs")
        };
        let named = pod(json!([{"name": "v", "configMap": {"name": "site"}}]));
        let other = pod(json!([{"name": "v", "configMap": {"name": "other"}}]));
        let key = |text: &str| text.parse::<ResourceKey>().expect("a key");
        assert_eq!(causes.of_pod(&key("a/pod/web"), &named).as_deref(), Some("of the pod"));
        assert_eq!(causes.of_pod(&key("a/pod/db"), &named).as_deref(), Some("of the map"));
        assert_eq!(causes.of_pod(&key("a/pod/db"), &other), None, "another namespace");
        assert_eq!(causes.of(&key("a/pod/quiet")), None);
    }
}
