//! MetaManager's operations, and the plan that each leads to. Pure.
//!
//! | operation | source | effect |
//! |---|---|---|
//! | insert, update | edged, of its Node | a report |
//! | insert, update | edged, of a podstatus | the pod's status, if it changed |
//! | insert, update | edged, of an event | a report |
//! | insert, update, delete, response | a function | a message to the cloud |
//! | insert, update, delete, response | any other | a delivery by routing |
//! | delete | edged, of a pod | a report that it has terminated |
//! | delete | edged, of a podstatus | the status is removed |
//! | query | any | a read of the view, of the statuses, or of the cloud |
//! | token, csr | any | a request to the cloud; a token also from the disk |
//! | connection | any | a check; the connection state is read-only |
//! | meta sync | any | the pod status snapshot is derived now |
//! | action, action result, volume operations | any | a refusal: the node has no executor |
//!
//! A query of `<namespace>/<type>` reads all objects of the type in the namespace, `*/<type>` those
//! of every namespace.

use std::fmt;

use bytes::Bytes;
use headwater_event::report::EVENT_BYTES_MAX;
use headwater_event::{GetRule, KeyError, NodeName, ReportBody, RequestError, ResourceKey};
use headwater_object::{OBJECT_BYTES_MAX, SigningRequest, TokenClaim};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::meta::routing::{CloudQuery, Group, OperationSource, Route, cloud_query, route};

/// What a query has in place of a namespace if it means every one. No namespace has this name.
const EVERY_NAMESPACE: &str = "*";

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Insert,
    Update,
    Delete,
    Query,
    Response,
    Connection,
    MetaSync,
    Action,
    ActionResult,
    CreateVolume,
    DeleteVolume,
    ControllerPublishVolume,
    ControllerUnpublishVolume,
    Token,
    Csr,
}

/// An operation as the caller sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) parent_id: String,
    pub(crate) source: String,
    pub(crate) verb: Verb,
    pub(crate) resource: String,
    pub(crate) content: Bytes,
}

/// What the edge does for an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Store a pod's status.
    SetStatus { pod: ResourceKey, uid: String, status: Bytes },
    /// Remove a pod's status; with a UID, only that of the very pod.
    RemoveStatus { pod: ResourceKey, uid: Option<String> },
    /// Report to the cloud.
    Report(ReportBody),
    /// Report that a pod has terminated, if the node still has it.
    Terminate { pod: ResourceKey, uid: String },
    /// Deliver the operation to the watches of a group.
    Deliver(Group),
    /// Look up one object.
    Find { key: ResourceKey, cloud: CloudQuery },
    /// Look up all objects of a type; `None`: of every namespace.
    List { namespace: Option<String>, kind: String },
    /// Look up the token of a claim, and request it from the cloud.
    Token(TokenClaim),
    /// Request a certificate from the cloud.
    Csr(SigningRequest),
    /// Check whether the connection state is this one.
    IsConnected(bool),
    /// Derive the pod status snapshot now.
    MetaSync,
}

/// Why an operation is refused. It has had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OperationError {
    /// The operation is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The source may not do that.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The operation needs something that is missing now: the cloud, or room.
    #[error("{0}")]
    Unavailable(String),
    /// The node has no executor for it.
    #[error("{0}")]
    NoExecutor(String),
    /// The present state in the cloud does not permit it.
    #[error("{0}")]
    Conflict(String),
    /// Too many requests are in flight.
    #[error("{0}")]
    TooMany(String),
}

/// The content of a podstatus, and of a pod's deletion.
#[derive(Deserialize)]
struct PodContent<'a> {
    uid: String,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ConnectionContent {
    connected: bool,
}

/// The resource of an operation: one object, or all objects of a type.
enum Resource {
    One(ResourceKey),
    All { namespace: Option<String>, kind: String },
}

impl OperationError {
    /// The failure of a request for `key`.
    pub(crate) fn of(key: &ResourceKey, error: RequestError) -> Self {
        let text = |why: String| format!("{key}: {why}");
        match error {
            RequestError::NotFound => Self::NotFound(text("not found".to_owned())),
            RequestError::Forbidden(why) => Self::Forbidden(text(format!("forbidden: {why}"))),
            RequestError::Unavailable(why) => Self::Unavailable(text(why)),
            RequestError::Conflict(why) => Self::Conflict(text(why)),
            RequestError::Invalid(why) => Self::Invalid(text(why)),
            RequestError::TooMany(why) => Self::TooMany(text(format!("too many requests {why}"))),
        }
    }
}

/// Plans `operation` for the edge of `node`.
///
/// # Errors
/// When the edge refuses the operation in any state.
pub(crate) fn plan(node: &NodeName, operation: &Operation) -> Result<Plan, OperationError> {
    let source = OperationSource::named(&operation.source);
    match operation.verb {
        Verb::Query => query(node, &operation.resource),
        Verb::Token => {
            let key = one(&operation.resource)?;
            let claim = TokenClaim::parse(&key, &operation.content);
            claim.map(Plan::Token).map_err(|error| OperationError::of(&key, error))
        }
        Verb::Csr => {
            let key = one(&operation.resource)?;
            let signing = SigningRequest::parse(node, &key, &operation.content);
            signing.map(Plan::Csr).map_err(|error| OperationError::of(&key, error))
        }
        Verb::MetaSync => Ok(Plan::MetaSync),
        Verb::Connection => connection(operation),
        Verb::Insert | Verb::Update | Verb::Delete | Verb::Response => {
            let Resource::One(key) = resource(&operation.resource)? else {
                return Err(invalid(
                    &operation.resource,
                    "the operation needs one object, not a whole type",
                ));
            };
            let plan = match (source, route(source, key.kind())) {
                (OperationSource::Edged, _) => of_edged(node, operation, key),
                (_, Route::Outbox) => message(operation, key),
                (_, Route::To(group)) => Ok(Plan::Deliver(group)),
            }?;
            let bytes = operation.content.len();
            if bytes > OBJECT_BYTES_MAX && matches!(plan, Plan::Report(_) | Plan::SetStatus { .. })
            {
                let reason =
                    format!("the content has {bytes} bytes; the cloud takes {OBJECT_BYTES_MAX}");
                return Err(invalid(&operation.resource, &reason));
            }
            Ok(plan)
        }
        verb @ (Verb::Action
        | Verb::ActionResult
        | Verb::CreateVolume
        | Verb::DeleteVolume
        | Verb::ControllerPublishVolume
        | Verb::ControllerUnpublishVolume) => {
            Err(OperationError::NoExecutor(format!("this node has no executor for {verb}")))
        }
    }
}

fn of_edged(
    node: &NodeName,
    operation: &Operation,
    key: ResourceKey,
) -> Result<Plan, OperationError> {
    let content = &operation.content;
    match (operation.verb, key.kind()) {
        (Verb::Insert | Verb::Update, "node") => {
            if key.namespace().is_some() || key.name() != node.as_str() {
                let reason = format!("{key}: edged of node {node} may report that node only");
                return Err(OperationError::Forbidden(reason));
            }
            let object: &RawValue = parse(&key, content)?;
            if !object.get().starts_with('{') {
                return Err(invalid(key.as_str(), "a Node is a JSON object"));
            }
            Ok(Plan::Report(ReportBody::Node { object: content.clone() }))
        }
        (Verb::Insert | Verb::Update, "podstatus") => {
            let PodContent { uid, status } = parse(&key, content)?;
            let Some(status) = status.filter(|status| status.get().starts_with('{')) else {
                return Err(invalid(key.as_str(), "a podstatus has a JSON object as its status"));
            };
            let status = content.slice_ref(status.get().as_bytes());
            Ok(Plan::SetStatus { pod: key.with_kind("pod"), uid, status })
        }
        (Verb::Insert | Verb::Update, "event") => {
            let bytes = content.len();
            if bytes > EVENT_BYTES_MAX {
                let reason =
                    format!("the Event has {bytes} bytes; the cloud takes {EVENT_BYTES_MAX}");
                return Err(invalid(key.as_str(), &reason));
            }
            let object: &RawValue = parse(&key, content)?;
            if !object.get().starts_with('{') {
                return Err(invalid(key.as_str(), "an Event is a JSON object"));
            }
            Ok(Plan::Report(ReportBody::Event { key, object: content.clone() }))
        }
        (Verb::Delete, "podstatus") => {
            let uid = match content.is_empty() {
                true => None,
                false => Some(parse::<PodContent<'_>>(&key, content)?.uid),
            };
            Ok(Plan::RemoveStatus { pod: key.with_kind("pod"), uid })
        }
        (Verb::Delete, "pod") => {
            let PodContent { uid, .. } = parse(&key, content)?;
            Ok(Plan::Terminate { pod: key, uid })
        }
        (Verb::Response, kind) => match route(OperationSource::Edged, kind) {
            Route::Outbox => message(operation, key),
            // A response of edged is not for edged.
            Route::To(Group::Edged) => Err(OperationError::NoExecutor(format!(
                "{key}: no subscriber waits for this response"
            ))),
            Route::To(group) => Ok(Plan::Deliver(group)),
        },
        (verb, kind) => Err(OperationError::Forbidden(format!(
            "{key}: edged may not {verb} a {kind}: it reports its node, its pods' statuses and \
             their termination, and Events"
        ))),
    }
}

fn message(operation: &Operation, key: ResourceKey) -> Result<Plan, OperationError> {
    let content = match (operation.verb, operation.content.is_empty()) {
        (Verb::Delete, true) => Bytes::from_static(b"null"),
        _ => {
            parse::<&RawValue>(&key, &operation.content)?;
            operation.content.clone()
        }
    };
    if matches!(key.kind(), "node" | "podstatus" | "podtermination" | "event") {
        let reason = format!("{key}: only edged may report nodes, pods and Events");
        return Err(OperationError::Forbidden(reason));
    }
    Ok(Plan::Report(ReportBody::Message { key, content }))
}

fn query(node: &NodeName, text: &str) -> Result<Plan, OperationError> {
    Ok(match resource(text)? {
        Resource::One(key) => {
            if let GetRule::Forbidden(why) = GetRule::of(node, &key) {
                return Err(OperationError::Forbidden(format!("{key}: {why}")));
            }
            let cloud = cloud_query(key.kind());
            Plan::Find { key, cloud }
        }
        Resource::All { namespace, kind } => Plan::List { namespace, kind },
    })
}

fn connection(operation: &Operation) -> Result<Plan, OperationError> {
    let ConnectionContent { connected } =
        serde_json::from_slice(&operation.content).map_err(|error| {
            invalid(&operation.resource, &format!("want {{\"connected\": bool}}: {error}"))
        })?;
    Ok(Plan::IsConnected(connected))
}

fn resource(text: &str) -> Result<Resource, OperationError> {
    let malformed = |error: KeyError| OperationError::Invalid(error.to_string());
    if text.split('/').count() != 2 {
        return text.parse().map(Resource::One).map_err(malformed);
    }
    // With a valid name the two parts become a key, whose parser checks them.
    let key: ResourceKey = format!("{text}/x").parse().map_err(malformed)?;
    let namespace = key.namespace().filter(|namespace| *namespace != EVERY_NAMESPACE);
    let namespace = namespace.map(str::to_owned);
    Ok(Resource::All { namespace, kind: key.kind().to_owned() })
}

/// The key of one object.
fn one(text: &str) -> Result<ResourceKey, OperationError> {
    text.parse().map_err(|error: KeyError| OperationError::Invalid(error.to_string()))
}

fn parse<'a, T: Deserialize<'a>>(
    key: &ResourceKey,
    content: &'a [u8],
) -> Result<T, OperationError> {
    serde_json::from_slice(content)
        .map_err(|error| invalid(key.as_str(), &format!("its content is malformed: {error}")))
}

fn invalid(resource: &str, reason: &str) -> OperationError {
    OperationError::Invalid(format!("{resource}: {reason}"))
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Query => "query",
            Self::Response => "response",
            Self::Connection => "connection",
            Self::MetaSync => "meta sync",
            Self::Action => "action",
            Self::ActionResult => "action result",
            Self::CreateVolume => "create volume",
            Self::DeleteVolume => "delete volume",
            Self::ControllerPublishVolume => "controller publish volume",
            Self::ControllerUnpublishVolume => "controller unpublish volume",
            Self::Token => "token",
            Self::Csr => "csr",
        })
    }
}

#[cfg(test)]
mod tests;
