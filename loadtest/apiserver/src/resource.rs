//! The resources that are served.

/// A resource: a kind of objects at a path.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) is_namespaced: bool,
    /// Whether the status is a subresource: a write of the object does not touch it, and the reverse.
    pub(crate) has_status: bool,
    /// Whether the status of a new object is dropped.
    pub(crate) drops_status: bool,
    /// Whether a new object counts the changes of its spec.
    pub(crate) has_generation: bool,
    /// Whether the answer to a delete is the object.
    pub(crate) returns_deleted: bool,
    /// Whether an update needs no version.
    pub(crate) is_unconditional: bool,
    /// The fields that a field selector may name besides name and namespace.
    pub(crate) fields: &'static [&'static str],
}

/// The version of every group.
pub(crate) const VERSION: &str = "v1";

const PLAIN: Resource = Resource {
    group: "",
    plural: "",
    kind: "",
    is_namespaced: true,
    has_status: false,
    drops_status: false,
    has_generation: false,
    returns_deleted: false,
    is_unconditional: true,
    fields: &[],
};

const WITH_STATUS: Resource = Resource { has_status: true, drops_status: true, ..PLAIN };

pub(crate) static RESOURCES: [Resource; 16] = [
    Resource {
        plural: "namespaces",
        kind: "Namespace",
        is_namespaced: false,
        fields: &["status.phase"],
        ..WITH_STATUS
    },
    Resource {
        plural: "nodes",
        kind: "Node",
        is_namespaced: false,
        has_status: true,
        fields: &["spec.unschedulable"],
        ..PLAIN
    },
    Resource {
        plural: "pods",
        kind: "Pod",
        has_generation: true,
        returns_deleted: true,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ],
        ..WITH_STATUS
    },
    Resource { plural: "configmaps", kind: "ConfigMap", ..PLAIN },
    Resource { plural: "secrets", kind: "Secret", fields: &["type"], ..PLAIN },
    Resource { plural: "serviceaccounts", kind: "ServiceAccount", returns_deleted: true, ..PLAIN },
    Resource {
        plural: "services",
        kind: "Service",
        returns_deleted: true,
        fields: &["spec.clusterIP", "spec.type"],
        ..WITH_STATUS
    },
    Resource { plural: "endpoints", kind: "Endpoints", ..PLAIN },
    Resource {
        plural: "persistentvolumes",
        kind: "PersistentVolume",
        is_namespaced: false,
        returns_deleted: true,
        ..WITH_STATUS
    },
    Resource {
        plural: "persistentvolumeclaims",
        kind: "PersistentVolumeClaim",
        returns_deleted: true,
        ..WITH_STATUS
    },
    Resource {
        plural: "events",
        kind: "Event",
        fields: &[
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "reason",
            "type",
        ],
        ..PLAIN
    },
    Resource {
        group: "discovery.k8s.io",
        plural: "endpointslices",
        kind: "EndpointSlice",
        has_generation: true,
        ..PLAIN
    },
    Resource {
        group: "storage.k8s.io",
        plural: "volumeattachments",
        kind: "VolumeAttachment",
        is_namespaced: false,
        returns_deleted: true,
        ..WITH_STATUS
    },
    Resource {
        group: "storage.k8s.io",
        plural: "csidrivers",
        kind: "CSIDriver",
        is_namespaced: false,
        ..PLAIN
    },
    Resource {
        group: "node.k8s.io",
        plural: "runtimeclasses",
        kind: "RuntimeClass",
        is_namespaced: false,
        ..PLAIN
    },
    Resource {
        group: "coordination.k8s.io",
        plural: "leases",
        kind: "Lease",
        is_unconditional: false,
        ..PLAIN
    },
];

impl Resource {
    /// The resource of a group by its plural.
    pub(crate) fn find(group: &str, plural: &str) -> Option<&'static Self> {
        RESOURCES.iter().find(|one| one.group == group && one.plural == plural)
    }

    /// Whether a path is in a group that is served.
    pub(crate) fn serves_group_of(path: &str) -> bool {
        let prefix = |group: &str| match group {
            "" => format!("/api/{VERSION}/"),
            group => format!("/apis/{group}/{VERSION}/"),
        };
        RESOURCES.iter().any(|one| path.starts_with(&prefix(one.group)))
    }

    /// The `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { VERSION.to_owned() } else { format!("{}/{VERSION}", self.group) }
    }

    /// The plural with the group, as messages name it.
    pub(crate) fn qualified_plural(&self) -> String {
        self.qualified(self.plural)
    }

    /// The kind with the group, as messages name it.
    pub(crate) fn qualified_kind(&self) -> String {
        self.qualified(self.kind)
    }

    fn qualified(&self, name: &str) -> String {
        if self.group.is_empty() { name.to_owned() } else { format!("{name}.{}", self.group) }
    }
}
