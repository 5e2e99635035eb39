//! The rights that the controller uses at the API.
//!
//! One table. The start and `headwater doctor` ask the API server about it, and a test compares it with
//! the roles of `ops/deploy/kubernetes`. Rights about a node are the node's own: the controller uses
//! them as that node, by constrained impersonation (KEP-5284), or by itself where the server is older.

use std::fmt;

use futures::{StreamExt, TryStreamExt, stream};
use headwater_object::object_type::group;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::act_as::ActAs;
use crate::failure::{RequestError, send};
use crate::kind::{IDENTITY_NAMESPACE, Kind, Usage};
use crate::server::LOOK_WITHIN;
use crate::settings::KubernetesSettings;

/// The namespace of the Leases of nodes.
const NODE_LEASES: &str = "kube-node-lease";

/// The questions on their way at once. They are cheap, and there are some sixty of them.
const REVIEWS_MAX: usize = 8;

/// A right at the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The verb, such as `patch`.
    pub verb: String,
    /// The API group; empty for the first one.
    pub group: String,
    /// The resource, such as `pods`.
    pub resource: String,
    /// The subresource, such as `status`; empty for none.
    pub subresource: String,
    /// The namespace in which it is needed; empty for all.
    pub namespace: String,
    /// The name of the object; empty for all.
    pub name: String,
    /// What the controller does by it, after "to".
    pub purpose: &'static str,
}

/// As whom the controller uses a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// As itself.
    Controller,
    /// As the node in question, or as itself.
    Node,
    /// As the node in question only: the server refuses it to others.
    NodeOnly,
}

/// A row of the table: verbs on resources of one group.
struct Row {
    holder: Holder,
    verbs: &'static [&'static str],
    group: &'static str,
    /// Separated by blanks; a subresource is after a slash.
    resources: &'static str,
    namespace: &'static str,
    purpose: &'static str,
}

const fn row(
    holder: Holder,
    verbs: &'static [&'static str],
    group: &'static str,
    resources: &'static str,
    purpose: &'static str,
) -> Row {
    Row { holder, verbs, group, resources, namespace: "", purpose }
}

/// The rights beside the reading of the kinds that the source watches.
const ROWS: [Row; 13] = [
    row(Holder::Controller, &["create"], "", "nodes", "register edges, which have the role edge"),
    row(Holder::Controller, &["patch"], "", "pods", "let pods tolerate that their edge is away"),
    row(Holder::Node, &["patch"], "", "nodes", "set the labels and annotations of an edge"),
    row(Holder::Node, &["patch"], "", "nodes/status", "report the status of an edge"),
    Row {
        namespace: NODE_LEASES,
        ..row(
            Holder::Node,
            &["create", "patch"],
            "coordination.k8s.io",
            "leases",
            "renew the Lease of an edge",
        )
    },
    row(
        Holder::Node,
        &["create", "patch"],
        "storage.k8s.io",
        "csinodes",
        "state the storage drivers of an edge",
    ),
    row(Holder::Node, &["patch"], "", "pods/status", "report the status of pods"),
    row(
        Holder::Node,
        &["create", "delete"],
        "",
        "pods",
        "show the static pods of an edge, and confirm that a deleted pod has stopped",
    ),
    row(Holder::Node, &["create", "patch"], "", "events", "report events of an edge"),
    row(
        Holder::Node,
        &["get"],
        "",
        "configmaps endpoints secrets persistentvolumeclaims persistentvolumes nodes",
        "answer requests of an edge",
    ),
    row(
        Holder::Node,
        &["get"],
        "storage.k8s.io",
        "volumeattachments",
        "answer requests of an edge",
    ),
    row(
        Holder::Node,
        &["create"],
        "",
        "serviceaccounts/token",
        "get the tokens that pods of an edge mount",
    ),
    row(
        Holder::NodeOnly,
        &["create", "get"],
        "certificates.k8s.io",
        "certificatesigningrequests",
        "get certificates for an edge",
    ),
];

/// The right without which no right of a node can be used as that node.
const IMPERSONATION: Row = row(
    Holder::NodeOnly,
    &["impersonate:arbitrary-node"],
    "authentication.k8s.io",
    "nodes",
    "act as an edge when it writes about it",
);

/// Where a node's right is used as that node, its verb follows this.
const ON_NODE: &str = "impersonate-on:arbitrary-node:";

/// The rights that a controller of these settings uses, each once.
pub fn rights(settings: &KubernetesSettings, act_as: ActAs) -> Vec<Right> {
    let mut rights = reading(settings);
    if act_as == ActAs::Node {
        rights.extend(expanded(&IMPERSONATION, ""));
    }
    for row in &ROWS {
        match (row.holder, act_as) {
            (Holder::Controller, _) | (Holder::Node, ActAs::Controller) => {
                rights.extend(expanded(row, ""));
            }
            (Holder::Node | Holder::NodeOnly, ActAs::Node) => {
                rights.extend(expanded(row, ON_NODE));
            }
            (Holder::NodeOnly, ActAs::Controller) => {}
        }
    }
    // The controller itself may read what it also reads for a node.
    rights.sort();
    rights.dedup_by(|one, other| one.same_as(other));
    rights
}

/// The rights to list and watch, and to get what is named.
fn reading(settings: &KubernetesSettings) -> Vec<Right> {
    let mut rights = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_watched(settings)) {
        let verbs: &[&str] = match kind.usage() {
            Usage::Named => &["get", "list", "watch"],
            Usage::Shared | Usage::EdgeNode | Usage::OfNode => &["list", "watch"],
        };
        let name = if kind == Kind::Namespace { IDENTITY_NAMESPACE } else { "" };
        rights.extend(verbs.iter().map(|verb| Right {
            verb: (*verb).to_owned(),
            group: group(kind.object_type().api_version).to_owned(),
            resource: kind.plural().to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: name.to_owned(),
            purpose: "follow the cluster",
        }));
    }
    rights
}

/// The rights of a row, each verb after `prefix`.
fn expanded<'r>(row: &'r Row, prefix: &'r str) -> impl Iterator<Item = Right> + use<'r> {
    let resources = row.resources.split(' ');
    resources.flat_map(move |resource| row.verbs.iter().map(move |verb| (verb, resource))).map(
        move |(verb, resource)| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            Right {
                verb: format!("{prefix}{verb}"),
                group: row.group.to_owned(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                namespace: row.namespace.to_owned(),
                name: String::new(),
                purpose: row.purpose,
            }
        },
    )
}

/// The answer to a question about a right.
#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

/// Asks the API server about each right, and returns those that this client lacks, in order.
pub(crate) async fn missing(
    client: &Client,
    rights: Vec<Right>,
) -> Result<Vec<Right>, RequestError> {
    let asked = rights.into_iter().map(|right| async move {
        let asking = send::<Review>(client, right.review()?);
        let review = timeout(LOOK_WITHIN, asking).await;
        let review = review.unwrap_or(Err(RequestError::Silent(LOOK_WITHIN)))?;
        Ok::<_, RequestError>((!review.status.allowed).then_some(right))
    });
    let missing = stream::iter(asked).buffered(REVIEWS_MAX);
    missing.try_filter_map(async |right| Ok(right)).try_collect().await
}

impl Right {
    /// Whether it is the same right, for whatever purpose.
    pub fn same_as(&self, other: &Self) -> bool {
        let key = |right: &Self| Self { purpose: "", ..right.clone() };
        key(self) == key(other)
    }

    /// The question whether this client has the right.
    fn review(&self) -> Result<http::Request<Vec<u8>>, RequestError> {
        let attributes: Value = json!({
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
        });
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes());
        Ok(request.map_err(kube::core::request::Error::BuildRequest)?)
    }
}

impl fmt::Display for Right {
    /// The right as a role has it: `patch leases.coordination.k8s.io in kube-node-lease`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.name.is_empty() {
            write!(f, " named {}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(act_as: ActAs) -> Vec<String> {
        let rights = rights(&KubernetesSettings::default(), act_as);
        rights.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_written_about_a_node_is_written_as_that_node() {
        let as_node = named(ActAs::Node);
        for right in [
            "impersonate:arbitrary-node nodes.authentication.k8s.io",
            "impersonate-on:arbitrary-node:patch pods/status",
            "impersonate-on:arbitrary-node:patch leases.coordination.k8s.io in kube-node-lease",
            "impersonate-on:arbitrary-node:create certificatesigningrequests.certificates.k8s.io",
            "create nodes",
            "patch pods",
            "watch namespaces named kube-system",
        ] {
            assert!(as_node.iter().any(|one| one == right), "{right}: {as_node:#?}");
        }
        for right in ["patch pods/status", "delete pods", "impersonate nodes"] {
            assert!(!as_node.iter().any(|one| one == right), "{right}");
        }
    }

    #[test]
    fn a_controller_that_acts_as_itself_impersonates_no_node_and_needs_each_right_once() {
        let rights = named(ActAs::Controller);
        assert!(rights.iter().all(|right| !right.contains("impersonate")), "{rights:#?}");
        assert!(rights.iter().any(|right| right == "patch pods/status"));
        // The source gets Secrets, and an edge asks for one.
        let gets = rights.iter().filter(|right| *right == "get secrets");
        assert_eq!(gets.count(), 1, "{rights:#?}");
    }

    #[test]
    fn endpoints_are_watched_only_where_a_setting_says_so_and_an_edge_may_always_ask_for_them() {
        let verbs = |endpoints, act_as| {
            let settings = KubernetesSettings { endpoints, ..KubernetesSettings::default() };
            let rights = rights(&settings, act_as).into_iter();
            let of_endpoints = rights.filter(|right| right.resource == "endpoints");
            of_endpoints.map(|right| right.verb).collect::<Vec<_>>()
        };
        let get = "impersonate-on:arbitrary-node:get";
        assert_eq!(verbs(false, ActAs::Node), [get]);
        assert_eq!(verbs(true, ActAs::Node), [get, "list", "watch"]);
        assert_eq!(verbs(false, ActAs::Controller), ["get"]);
    }
}
