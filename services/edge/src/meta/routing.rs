//! Routing by the source of an operation and the type of its resource, as in KubeEdge's MetaManager.
//! Pure.
//!
//! An operation goes to the watches of one group, or to the outbox. An object of the view belongs to
//! the group to which its type is routed when the source is the cloud.

use std::fmt;

/// The source of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationSource {
    /// The cloud, by a stream or by a response.
    Cloud,
    /// The pod worker.
    Edged,
    /// The manager of the node's functions.
    FunctionManager,
    /// A function, or an application of the node.
    Function,
    /// Any other program.
    Other,
}

/// A group of subscribers, to which operations and objects are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// The pod worker.
    Edged,
    /// The service mesh.
    Mesh,
    /// The functions.
    Function,
}

/// The destination of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The watches of a group.
    To(Group),
    /// The outbox, and through it the cloud.
    Outbox,
}

/// Whether a query goes to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudQuery {
    /// Never: the cloud has no object that the view lacks.
    Never,
    /// When the view lacks the object.
    WhenAbsent,
}

/// The types of which services consist, and KubeEdge's lists of them.
const MESH: [&str; 7] = [
    "service",
    "servicelist",
    "endpoints",
    "endpointslist",
    "endpointslice",
    "endpointslicelist",
    "podlist",
];

/// Types whose objects may be in the cloud only.
const CLOUD: [&str; 8] = [
    "configmap",
    "secret",
    "endpoints",
    "persistentvolume",
    "persistentvolumeclaim",
    "serviceaccount",
    "node",
    "volumeattachment",
];

/// Routes an operation of `source` on a resource of type `kind`.
pub fn route(source: OperationSource, kind: &str) -> Route {
    match source {
        OperationSource::Function => Route::Outbox,
        OperationSource::FunctionManager => Route::To(Group::Function),
        _ if MESH.contains(&kind) => Route::To(Group::Mesh),
        _ => Route::To(Group::Edged),
    }
}

/// Whether a query for a resource of type `kind` goes to the cloud.
pub fn cloud_query(kind: &str) -> CloudQuery {
    if CLOUD.contains(&kind) { CloudQuery::WhenAbsent } else { CloudQuery::Never }
}

impl OperationSource {
    /// The source of that name; KubeEdge's names are accepted too.
    pub fn named(source: &str) -> Self {
        match source {
            "cloud" | "edgecontroller" => Self::Cloud,
            "edged" => Self::Edged,
            "function-manager" | "funcmgr" => Self::FunctionManager,
            "function" | "edgefunction" => Self::Function,
            _ => Self::Other,
        }
    }
}

impl Group {
    /// The group of that name; KubeEdge's names are accepted too.
    pub fn named(subscriber: &str) -> Option<Self> {
        match subscriber {
            "edged" => Some(Self::Edged),
            "mesh" | "edgemesh" => Some(Self::Mesh),
            "function" | "edgefunction" => Some(Self::Function),
            _ => None,
        }
    }

    /// Whether objects of type `kind` in the view belong to this group.
    pub fn sees(self, kind: &str) -> bool {
        route(OperationSource::Cloud, kind) == Route::To(self)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Edged => "edged",
            Self::Mesh => "mesh",
            Self::Function => "function",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_and_type_has_a_route() {
        use Group::{Edged, Function, Mesh};
        let table = [
            ("edgecontroller", "pod", Route::To(Edged)),
            ("edgecontroller", "configmap", Route::To(Edged)),
            ("edgecontroller", "secret", Route::To(Edged)),
            ("edgecontroller", "node", Route::To(Edged)),
            ("edgecontroller", "service", Route::To(Mesh)),
            ("edgecontroller", "servicelist", Route::To(Mesh)),
            ("edgecontroller", "endpoints", Route::To(Mesh)),
            ("edgecontroller", "endpointslist", Route::To(Mesh)),
            ("edgecontroller", "endpointslice", Route::To(Mesh)),
            ("edgecontroller", "podlist", Route::To(Mesh)),
            ("edged", "volume", Route::To(Edged)),
            ("edged", "service", Route::To(Mesh)),
            ("funcmgr", "rule", Route::To(Function)),
            ("function-manager", "service", Route::To(Function)),
            ("edgefunction", "result", Route::Outbox),
            ("function", "service", Route::Outbox),
            ("function", "pod", Route::Outbox),
            ("other", "membership", Route::To(Edged)),
            ("", "", Route::To(Edged)),
        ];
        for (source, kind, expected) in table {
            assert_eq!(
                route(OperationSource::named(source), kind),
                expected,
                "{source:?} {kind:?}"
            );
        }
    }

    #[test]
    fn every_object_of_the_view_is_seen_by_one_group() {
        for kind in ["pod", "configmap", "service", "endpointslice", "node", "unheard-of"] {
            let groups = [Group::Edged, Group::Mesh, Group::Function]
                .into_iter()
                .filter(|group| group.sees(kind));
            assert_eq!(groups.count(), 1, "{kind}");
        }
        for group in [Group::Edged, Group::Mesh, Group::Function] {
            assert_eq!(Group::named(&group.to_string()), Some(group));
        }
    }

    #[test]
    fn the_cloud_is_asked_for_what_the_view_may_not_have_yet() {
        for (kind, expected) in [
            ("node", CloudQuery::WhenAbsent),
            ("volumeattachment", CloudQuery::WhenAbsent),
            ("secret", CloudQuery::WhenAbsent),
            ("configmap", CloudQuery::WhenAbsent),
            ("serviceaccounttoken", CloudQuery::Never),
            ("lease", CloudQuery::Never),
            ("pod", CloudQuery::Never),
            ("podstatus", CloudQuery::Never),
        ] {
            assert_eq!(cloud_query(kind), expected, "{kind}");
        }
    }
}
