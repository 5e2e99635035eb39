//! Who gets what: by who speaks and of what type the resource is, as in KubeEdge's MetaManager.
//!
//! Pure. An operation is delivered to the watches of one group, or goes to the outbox; an object
//! of the view belongs to the group that its type is routed to when the cloud speaks.

use std::fmt;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationSource {
    /// The cloud, by a stream or by an answer.
    Cloud,
    /// The pod worker.
    Edged,
    /// What manages the functions of the node.
    FunctionManager,
    /// A function, or an application of the node.
    Function,
    /// Anyone else.
    Other,
}

/// Who watches: the routing groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// The pod worker.
    Edged,
    /// The service mesh.
    Mesh,
    /// The functions.
    Function,
}

/// Where something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the watches of a group.
    To(Group),
    /// Into the outbox, and so to the cloud.
    Outbox,
}

/// Whether a query goes to the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudQuery {
    /// Never: what is not here is not there either.
    Never,
    /// When it is not here.
    WhenAbsent,
    /// Whenever there is a connection: others change it without telling this node.
    Always,
}

/// The types that services are made of, and KubeEdge's lists of them.
const MESH: [&str; 7] = [
    "service",
    "servicelist",
    "endpoints",
    "endpointslist",
    "endpointslice",
    "endpointslicelist",
    "podlist",
];

/// Types that may live in the cloud alone until a node asks for them.
const CLOUD: [&str; 9] = [
    "configmap",
    "secret",
    "endpoints",
    "persistentvolume",
    "persistentvolumeclaim",
    "serviceaccount",
    "serviceaccounttoken",
    "lease",
    "certificatesigningrequest",
];

/// Types whose truth is in the cloud.
const ALWAYS: [&str; 2] = ["node", "volumeattachment"];

/// Where what `speaker` says of a resource of type `kind` goes.
pub fn route(speaker: OperationSource, kind: &str) -> Route {
    match speaker {
        OperationSource::Function => Route::Outbox,
        OperationSource::FunctionManager => Route::To(Group::Function),
        _ if MESH.contains(&kind) => Route::To(Group::Mesh),
        _ => Route::To(Group::Edged),
    }
}

/// Whether a query for a resource of type `kind` goes to the cloud.
pub fn cloud_query(kind: &str) -> CloudQuery {
    if ALWAYS.contains(&kind) {
        CloudQuery::Always
    } else if CLOUD.contains(&kind) {
        CloudQuery::WhenAbsent
    } else {
        CloudQuery::Never
    }
}

impl OperationSource {
    /// Who `source` of an operation is. KubeEdge's names are understood.
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
    /// The group of that name. KubeEdge's names are understood.
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
    fn every_speaker_and_type_has_its_place() {
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
            ("somebody", "membership", Route::To(Edged)),
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
            let seers = [Group::Edged, Group::Mesh, Group::Function]
                .into_iter()
                .filter(|group| group.sees(kind));
            assert_eq!(seers.count(), 1, "{kind}");
        }
        for group in [Group::Edged, Group::Mesh, Group::Function] {
            assert_eq!(Group::named(&group.to_string()), Some(group));
        }
    }

    #[test]
    fn node_and_volume_attachment_always_ask() {
        for (kind, expected) in [
            ("node", CloudQuery::Always),
            ("volumeattachment", CloudQuery::Always),
            ("secret", CloudQuery::WhenAbsent),
            ("configmap", CloudQuery::WhenAbsent),
            ("serviceaccounttoken", CloudQuery::WhenAbsent),
            ("pod", CloudQuery::Never),
            ("podstatus", CloudQuery::Never),
        ] {
            assert_eq!(cloud_query(kind), expected, "{kind}");
        }
    }
}
