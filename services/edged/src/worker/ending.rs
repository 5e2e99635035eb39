//! How a pod ends, for a pod worker that does not have its object: the machine stops, or the node gets another runtime,
//! before the edge's view is known.
//!
//! A record has the grace period of a pod. That is all that a pod without preStop hooks and sidecars needs; of any other one the
//! containers are written down, with what their end depends on.

use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod};

use super::Worker;
use crate::pod::{self, PodRecord};
use headwater_telemetry::error_chain;

impl Worker {
    /// Writes down how the pod ends, if its record does not say it all.
    pub(super) async fn keep_ending(&mut self, pod: &Pod) {
        let (store, uid) = (&self.shared.store, &self.record.uid);
        if self.has_ending || !store.contains(uid) {
            return;
        }
        if let Some(ending) = of(&self.record, pod)
            && store.ending(uid).as_ref() != Some(&ending)
            && let Err(error) = store.write_ending(uid, &ending).await
        {
            let message = error_chain(&error);
            tracing::debug!(pod = %self.record.key, message, "the end of a pod is not written yet");
            return;
        }
        self.has_ending = true;
    }
}

/// The pod, reduced to what its end depends on; `None`: its record says it all. The hooks and sidecars of a pod never change.
fn of(record: &PodRecord, pod: &Pod) -> Option<Pod> {
    let has_hook =
        |it: &Container| it.lifecycle.as_ref().is_some_and(|hooks| hooks.pre_stop.is_some());
    if !pod::all_containers(pod).any(|it| has_hook(it) || pod::is_sidecar(it)) {
        return None;
    }
    let all = |containers: &[Container]| containers.iter().map(reduced).collect::<Vec<_>>();
    let mut ending = record.object();
    let spec = ending.spec.get_or_insert_default();
    spec.containers = all(pod::main_containers(pod));
    spec.init_containers = Some(all(pod::init_containers(pod))).filter(|init| !init.is_empty());
    Some(ending)
}

/// The container with what its end depends on. A hook may name one of its ports.
fn reduced(container: &Container) -> Container {
    let hook = container.lifecycle.as_ref().and_then(|hooks| hooks.pre_stop.clone());
    let lifecycle = hook.map(|hook| Lifecycle { pre_stop: Some(hook), ..Lifecycle::default() });
    Container {
        name: container.name.clone(),
        ports: container.ports.clone(),
        restart_policy: container.restart_policy.clone(),
        lifecycle,
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::PodUid;

    fn ending(spec: Value) -> Option<Value> {
        let record = PodRecord {
            uid: PodUid::try_from("u1".to_owned()).expect("a UID"),
            key: "shop/pod/web".parse().expect("a key"),
            grace_seconds: 7,
            seen_at: Timestamp::UNIX_EPOCH,
            seen_in_boot: None,
            is_static: false,
        };
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        of(&record, &pod).map(|pod| serde_json::to_value(pod).expect("JSON"))
    }

    #[test]
    fn only_hooks_and_sidecars_are_written_down_and_nothing_secret_is() {
        let plain = json!({"name": "a", "env": [{"name": "KEY", "value": "secret"}]});
        assert_eq!(ending(json!({"containers": [plain], "initContainers": [{"name": "i"}]})), None);
        let hook = json!({"preStop": {"exec": {"command": ["bye"]}}});
        let mut hooked = plain.clone();
        hooked["lifecycle"] = hook.clone();
        let found = ending(json!({"containers": [hooked]})).expect("a hook");
        assert_eq!(found["spec"]["containers"], json!([{"name": "a", "lifecycle": hook}]));
        assert_eq!(found["spec"]["terminationGracePeriodSeconds"], 7);
        let sidecar = json!({"name": "s", "restartPolicy": "Always"});
        let spec = json!({"containers": [plain], "initContainers": [sidecar]});
        let found = ending(spec).expect("a sidecar");
        assert_eq!(found["spec"]["initContainers"], json!([sidecar]));
        assert_eq!(found["metadata"]["uid"], "u1");
    }
}
