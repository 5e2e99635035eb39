//! References: the other objects that an object names, and whether it requires them.
//!
//! The references of a pod are the objects that its node needs. The walk reads JSON and ignores
//! unknown fields; a field of the wrong type names no object.

use std::collections::BTreeMap;

use headwater_event::ResourceKey;
use serde_json::Value;

/// An object that another one names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The object named. It need not exist.
    pub key: ResourceKey,
    /// Whether the referring object must wait for it.
    pub required: bool,
}

/// Returns the references of the object at `key`, each once, in the order of keys.
pub fn references(key: &ResourceKey, object: &Value) -> Vec<Reference> {
    let mut found = ReferenceSet { namespace: key.namespace(), keys: BTreeMap::new() };
    match key.kind() {
        "pod" => found.pod(key.name(), &object["spec"]),
        "persistentvolumeclaim" => {
            found.add(None, "persistentvolume", &object["spec"]["volumeName"], true);
        }
        "persistentvolume" => found.persistent_volume(&object["spec"]),
        "serviceaccount" => {
            for secret in items(object, "secrets").chain(items(object, "imagePullSecrets")) {
                found.named("secret", &secret["name"], false);
            }
        }
        _ => {}
    }
    found.keys.into_iter().map(|(key, required)| Reference { key, required }).collect()
}

/// The types in a node's stream that name other objects of the stream.
pub const REFERRING_TYPES: [&str; 4] =
    ["pod", "persistentvolumeclaim", "persistentvolume", "serviceaccount"];

/// Kinds of volume that name their secret as `secretRef`.
const SECRET_REF_VOLUMES: [&str; 7] =
    ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"];

/// The secrets of a CSI volume that its node plugin receives. The others stay in the cloud.
const CSI_NODE_SECRETS: [&str; 3] =
    ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"];

struct ReferenceSet<'a> {
    /// The namespace of a name without one: that of the object.
    namespace: Option<&'a str>,
    keys: BTreeMap<ResourceKey, bool>,
}

impl ReferenceSet<'_> {
    fn pod(&mut self, name: &str, spec: &Value) {
        for volume in items(spec, "volumes") {
            self.pod_volume(name, volume);
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in items(spec, list) {
                self.container(container);
            }
        }
        for secret in items(spec, "imagePullSecrets") {
            // The kubelet pulls without a missing credential.
            self.named("secret", &secret["name"], false);
        }
        // Without it the node knows no handler for the pod.
        if let Some(class) = spec["runtimeClassName"].as_str().filter(|name| !name.is_empty()) {
            self.add_text(None, "runtimeclass", class, true);
        }
        let account = [&spec["serviceAccountName"], &spec["serviceAccount"]]
            .into_iter()
            .find_map(|field| field.as_str().filter(|name| !name.is_empty()))
            .unwrap_or("default");
        self.add_text(self.namespace, "serviceaccount", account, account != "default");
    }

    fn pod_volume(&mut self, pod: &str, volume: &Value) {
        let is_required = |source: &Value| source["optional"] != Value::Bool(true);
        let config_map = &volume["configMap"];
        self.named("configmap", &config_map["name"], is_required(config_map));
        let secret = &volume["secret"];
        self.named("secret", &secret["secretName"], is_required(secret));
        for source in items(&volume["projected"], "sources") {
            for (field, kind) in [("configMap", "configmap"), ("secret", "secret")] {
                self.named(kind, &source[field]["name"], is_required(&source[field]));
            }
        }
        let claim = &volume["persistentVolumeClaim"]["claimName"];
        self.named("persistentvolumeclaim", claim, true);
        if let (true, Some(volume)) = (volume["ephemeral"].is_object(), volume["name"].as_str()) {
            // The claim of a generic ephemeral volume is named after its pod.
            let claim = format!("{pod}-{volume}");
            self.add_text(self.namespace, "persistentvolumeclaim", &claim, true);
        }
        for kind in SECRET_REF_VOLUMES {
            self.named("secret", &volume[kind]["secretRef"]["name"], true);
        }
        self.named("secret", &volume["azureFile"]["secretName"], true);
        self.named("secret", &volume["csi"]["nodePublishSecretRef"]["name"], true);
        // A driver without an object has a kubelet's defaults.
        self.add(None, "csidriver", &volume["csi"]["driver"], false);
    }

    fn container(&mut self, container: &Value) {
        let is_required = |reference: &Value| reference["optional"] != Value::Bool(true);
        for env in items(container, "env") {
            let from = &env["valueFrom"];
            for (field, kind) in [("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")] {
                self.named(kind, &from[field]["name"], is_required(&from[field]));
            }
        }
        for from in items(container, "envFrom") {
            for (field, kind) in [("configMapRef", "configmap"), ("secretRef", "secret")] {
                self.named(kind, &from[field]["name"], is_required(&from[field]));
            }
        }
    }

    fn persistent_volume(&mut self, spec: &Value) {
        let claim_namespace = spec["claimRef"]["namespace"].as_str();
        let mut secret = |name: &Value, namespace: &Value| {
            let namespace = namespace.as_str().or(claim_namespace).unwrap_or("default");
            self.add(Some(namespace), "secret", name, true);
        };
        for kind in SECRET_REF_VOLUMES {
            let reference = &spec[kind]["secretRef"];
            secret(&reference["name"], &reference["namespace"]);
        }
        for field in CSI_NODE_SECRETS {
            let reference = &spec["csi"][field];
            secret(&reference["name"], &reference["namespace"]);
        }
        secret(&spec["azureFile"]["secretName"], &spec["azureFile"]["secretNamespace"]);
        self.add(None, "csidriver", &spec["csi"]["driver"], false);
    }

    fn named(&mut self, kind: &str, name: &Value, required: bool) {
        self.add(self.namespace, kind, name, required);
    }

    fn add(&mut self, namespace: Option<&str>, kind: &str, name: &Value, required: bool) {
        if let Some(name) = name.as_str() {
            self.add_text(namespace, kind, name, required);
        }
    }

    /// Adds the object. An object with two references is required if either requires it; an invalid
    /// name is ignored.
    fn add_text(&mut self, namespace: Option<&str>, kind: &str, name: &str, required: bool) {
        if let Ok(key) = ResourceKey::new(namespace, kind, name) {
            *self.keys.entry(key).or_default() |= required;
        }
    }
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests;
