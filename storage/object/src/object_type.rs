//! The object types that Headwater knows, with their spellings in keys, manifests and commands.
//!
//! Headwater does not replicate types that are not in the table; a source only counts their objects.

/// One type of Kubernetes object.
#[derive(Debug, PartialEq, Eq)]
pub struct ObjectType {
    /// Lower-case singular, as in resource keys: `configmap`.
    pub name: &'static str,
    /// Lower-case plural, as in the Kubernetes API: `configmaps`.
    pub plural: &'static str,
    /// As in manifests: `ConfigMap`.
    pub kind: &'static str,
    /// Group and version served by every supported cluster: `v1`, `discovery.k8s.io/v1`.
    pub api_version: &'static str,
    /// Whether objects of the type live in a namespace. Keys agree by the table
    /// [`CLUSTER_SCOPED_TYPES`](headwater_event::key::CLUSTER_SCOPED_TYPES).
    pub namespaced: bool,
    /// Whether the log carries objects of the type to the edges.
    pub replicated: bool,
    /// The short names that `kubectl` accepts.
    pub short_names: &'static [&'static str],
}

const fn replicated(
    [name, plural, kind, api_version]: [&'static str; 4],
    namespaced: bool,
    short_names: &'static [&'static str],
) -> ObjectType {
    ObjectType { name, plural, kind, api_version, namespaced, replicated: true, short_names }
}

/// Every type, the replicated types first.
pub static OBJECT_TYPES: [ObjectType; 15] = [
    replicated(["pod", "pods", "Pod", "v1"], true, &["po"]),
    replicated(["node", "nodes", "Node", "v1"], false, &["no"]),
    replicated(["configmap", "configmaps", "ConfigMap", "v1"], true, &["cm"]),
    replicated(["secret", "secrets", "Secret", "v1"], true, &[]),
    replicated(["service", "services", "Service", "v1"], true, &["svc"]),
    replicated(["endpoints", "endpoints", "Endpoints", "v1"], true, &["ep"]),
    replicated(
        ["endpointslice", "endpointslices", "EndpointSlice", "discovery.k8s.io/v1"],
        true,
        &[],
    ),
    replicated(["persistentvolume", "persistentvolumes", "PersistentVolume", "v1"], false, &["pv"]),
    replicated(
        ["persistentvolumeclaim", "persistentvolumeclaims", "PersistentVolumeClaim", "v1"],
        true,
        &["pvc"],
    ),
    replicated(["serviceaccount", "serviceaccounts", "ServiceAccount", "v1"], true, &["sa"]),
    replicated(
        ["volumeattachment", "volumeattachments", "VolumeAttachment", "storage.k8s.io/v1"],
        false,
        &[],
    ),
    replicated(["csidriver", "csidrivers", "CSIDriver", "storage.k8s.io/v1"], false, &[]),
    replicated(["runtimeclass", "runtimeclasses", "RuntimeClass", "node.k8s.io/v1"], false, &[]),
    ObjectType {
        name: "lease",
        plural: "leases",
        kind: "Lease",
        api_version: "coordination.k8s.io/v1",
        namespaced: true,
        replicated: false,
        short_names: &[],
    },
    // Of a cluster the log carries one, `kube-system`, whose UID is the identity of the cluster. A
    // manifest of a namespace has no effect.
    ObjectType {
        name: "namespace",
        plural: "namespaces",
        kind: "Namespace",
        api_version: "v1",
        namespaced: false,
        replicated: false,
        short_names: &["ns"],
    },
];

const fn workload(
    [name, plural, kind, api_version]: [&'static str; 4],
    short_names: &'static [&'static str],
) -> ObjectType {
    let (namespaced, replicated) = (true, false);
    ObjectType { name, plural, kind, api_version, namespaced, replicated, short_names }
}

/// The types that a source unfolds to pods. They are not replicated, and no key in a log has them.
pub static WORKLOAD_TYPES: [ObjectType; 6] = [
    workload(["deployment", "deployments", "Deployment", "apps/v1"], &["deploy"]),
    workload(["statefulset", "statefulsets", "StatefulSet", "apps/v1"], &["sts"]),
    workload(["daemonset", "daemonsets", "DaemonSet", "apps/v1"], &["ds"]),
    workload(["replicaset", "replicasets", "ReplicaSet", "apps/v1"], &["rs"]),
    workload(
        ["replicationcontroller", "replicationcontrollers", "ReplicationController", "v1"],
        &["rc"],
    ),
    workload(["job", "jobs", "Job", "batch/v1"], &[]),
];

impl ObjectType {
    /// Returns the type of a workload that `text` names, as [`ObjectType::named`] does.
    pub fn workload_named(text: &str) -> Option<&'static Self> {
        WORKLOAD_TYPES.iter().find(|workload| workload.is_called(text))
    }

    /// Returns the type of a manifest with this `apiVersion` and `kind`.
    ///
    /// The group must match, the version need not: `discovery.k8s.io/v1beta1` slices are slices,
    /// but a `Service` of another group is another type.
    pub fn of(api_version: &str, kind: &str) -> Option<&'static Self> {
        OBJECT_TYPES.iter().find(|t| t.kind == kind && group(t.api_version) == group(api_version))
    }

    /// Returns the type with this name, plural, kind or short name, in any letter case.
    pub fn named(text: &str) -> Option<&'static Self> {
        OBJECT_TYPES.iter().find(|object_type| object_type.is_called(text))
    }

    fn is_called(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        self.name == text || self.plural == text || self.short_names.contains(&text.as_str())
    }
}

/// The API group of an `apiVersion`; the core group is empty.
pub fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use headwater_event::ResourceKey;

    use super::*;

    #[test]
    fn people_name_types_as_kubectl_lets_them() {
        for (text, name) in [
            ("po", "pod"),
            ("pods", "pod"),
            ("Pod", "pod"),
            ("cm", "configmap"),
            ("svc", "service"),
            ("ep", "endpoints"),
            ("pvc", "persistentvolumeclaim"),
            ("sa", "serviceaccount"),
            ("no", "node"),
            ("leases", "lease"),
        ] {
            assert_eq!(ObjectType::named(text).map(|t| t.name), Some(name), "{text}");
        }
        assert_eq!(ObjectType::named("deploy"), None);
    }

    #[test]
    fn a_key_has_the_scope_of_its_type() {
        for object_type in &OBJECT_TYPES {
            let key: ResourceKey = format!("null/{}/x", object_type.name).parse().expect("a key");
            assert_eq!(key.namespace().is_some(), object_type.namespaced, "{key}");
        }
    }

    #[test]
    fn the_group_distinguishes_kinds_of_one_name() {
        assert!(ObjectType::of("v1", "Service").is_some());
        assert!(ObjectType::of("serving.knative.dev/v1", "Service").is_none());
        assert!(ObjectType::of("discovery.k8s.io/v1beta1", "EndpointSlice").is_some());
        assert!(ObjectType::of("v1", "EndpointSlice").is_none());
    }

    #[test]
    fn no_two_types_share_a_word() {
        let mut words: Vec<&str> = OBJECT_TYPES
            .iter()
            .flat_map(|t| t.short_names.iter().copied().chain([t.name]))
            .collect();
        words.extend(OBJECT_TYPES.iter().map(|t| t.plural).filter(|p| *p != "endpoints"));
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }
}
