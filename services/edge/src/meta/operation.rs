//! MetaManager's operations: what each asks the edge to do. Pure.
//!
//! | operation | who | what comes of it |
//! |---|---|---|
//! | insert, update | edged, of its Node | a report |
//! | insert, update | edged, of a podstatus | the pod's status, if it is another |
//! | insert, update, delete, response | a function | a message to the cloud |
//! | insert, update, delete, response | anyone else | delivered by routing |
//! | delete | edged, of a pod | a report that it has terminated |
//! | delete | edged, of a podstatus | the status is forgotten |
//! | query | anyone | the view, the statuses, or the cloud |
//! | connection | anyone | whether that is so; nobody sets it from here |
//! | meta sync | anyone | the pod status snapshot, now |
//! | action, action result, volume operations | anyone | nobody executes them |

use std::fmt;

use bytes::Bytes;
use headwater_event::{KeyError, NodeName, ReportBody, ResourceKey};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::meta::routing::{CloudQuery, Group, OperationSource, Route, cloud_query, route};

/// What is asked for.
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
}

/// An operation as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) parent_id: String,
    pub(crate) source: String,
    pub(crate) verb: Verb,
    pub(crate) resource: String,
    pub(crate) content: Bytes,
}

/// What an operation asks the edge to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Note a pod's status.
    SetStatus { pod: ResourceKey, uid: String, status: Bytes },
    /// Forget a pod's status.
    RemoveStatus { pod: ResourceKey },
    /// Report to the cloud.
    Report(ReportBody),
    /// Report that a pod has terminated, if it is still there.
    Terminate { pod: ResourceKey, uid: String },
    /// Hand the operation to the watches of a group.
    Deliver(Group),
    /// Look one object up.
    Find { key: ResourceKey, cloud: CloudQuery },
    /// Look all objects of a type up; no namespace means every one.
    List { namespace: Option<String>, kind: String },
    /// Say whether the connection is as the operation has it.
    IsConnected(bool),
    /// Derive the pod status snapshot now.
    MetaSync,
}

/// Why an operation is not done. Nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OperationError {
    /// It is no well-formed operation.
    #[error("{0}")]
    Invalid(String),
    /// Who asks may not.
    #[error("{0}")]
    Forbidden(String),
    /// There is nothing of that name.
    #[error("{0}")]
    NotFound(String),
    /// It needs what is not there just now: the cloud, or room.
    #[error("{0}")]
    Unavailable(String),
    /// Nobody executes it.
    #[error("{0}")]
    NoExecutor(String),
}

/// The content of a podstatus, and of a pod's deletion.
#[derive(Deserialize)]
struct OfPod<'a> {
    uid: String,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Connected {
    connected: bool,
}

/// A resource as it stands in an operation: one object, or all of a type.
enum Resource {
    One(ResourceKey),
    All { namespace: Option<String>, kind: String },
}

/// What `operation` asks of the edge of `node`.
///
/// # Errors
/// When it asks for nothing that can be done, whatever the state of the edge.
pub(crate) fn plan(node: &NodeName, operation: &Operation) -> Result<Plan, OperationError> {
    let speaker = OperationSource::named(&operation.source);
    match operation.verb {
        Verb::Query => query(&operation.resource),
        Verb::MetaSync => Ok(Plan::MetaSync),
        Verb::Connection => connection(operation),
        Verb::Insert | Verb::Update | Verb::Delete | Verb::Response => {
            let Resource::One(key) = resource(&operation.resource)? else {
                return Err(invalid(&operation.resource, "it names no single object"));
            };
            if speaker == OperationSource::Edged {
                return of_edged(node, operation, key);
            }
            match route(speaker, key.kind()) {
                Route::Outbox => message(operation, key),
                Route::To(group) => Ok(Plan::Deliver(group)),
            }
        }
        verb @ (Verb::Action
        | Verb::ActionResult
        | Verb::CreateVolume
        | Verb::DeleteVolume
        | Verb::ControllerPublishVolume
        | Verb::ControllerUnpublishVolume) => {
            Err(OperationError::NoExecutor(format!("nobody on this node executes {verb}")))
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
                let reason = format!("{key}: edged of node {node} reports that node and no other");
                return Err(OperationError::Forbidden(reason));
            }
            let object: &RawValue = parse(&key, content)?;
            if !object.get().starts_with('{') {
                return Err(invalid(key.as_str(), "a Node is a JSON object"));
            }
            Ok(Plan::Report(ReportBody::Node { object: content.clone() }))
        }
        (Verb::Insert | Verb::Update, "podstatus") => {
            let OfPod { uid, status } = parse(&key, content)?;
            let Some(status) = status.filter(|status| status.get().starts_with('{')) else {
                return Err(invalid(key.as_str(), "a podstatus has a JSON object as its status"));
            };
            let status = content.slice_ref(status.get().as_bytes());
            Ok(Plan::SetStatus { pod: key.with_kind("pod"), uid, status })
        }
        (Verb::Delete, "podstatus") => Ok(Plan::RemoveStatus { pod: key.with_kind("pod") }),
        (Verb::Delete, "pod") => {
            let OfPod { uid, .. } = parse(&key, content)?;
            Ok(Plan::Terminate { pod: key, uid })
        }
        (Verb::Response, kind) => match route(OperationSource::Edged, kind) {
            Route::Outbox => message(operation, key),
            // What edged answers is not for edged.
            Route::To(Group::Edged) => {
                Err(OperationError::NoExecutor(format!("{key}: nobody waits for this answer")))
            }
            Route::To(group) => Ok(Plan::Deliver(group)),
        },
        (verb, kind) => Err(OperationError::Forbidden(format!(
            "{key}: edged may not {verb} a {kind}: it reports its node, its pods' statuses and \
             their termination"
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
    if matches!(key.kind(), "node" | "podstatus" | "podtermination") {
        let reason = format!("{key}: only edged speaks of nodes and pods");
        return Err(OperationError::Forbidden(reason));
    }
    Ok(Plan::Report(ReportBody::Message { key, content }))
}

fn query(text: &str) -> Result<Plan, OperationError> {
    Ok(match resource(text)? {
        Resource::One(key) => {
            let cloud = cloud_query(key.kind());
            Plan::Find { key, cloud }
        }
        Resource::All { namespace, kind } => Plan::List { namespace, kind },
    })
}

fn connection(operation: &Operation) -> Result<Plan, OperationError> {
    let Connected { connected } = serde_json::from_slice(&operation.content).map_err(|error| {
        invalid(&operation.resource, &format!("want {{\"connected\": bool}}: {error}"))
    })?;
    Ok(Plan::IsConnected(connected))
}

fn resource(text: &str) -> Result<Resource, OperationError> {
    let malformed = |error: KeyError| OperationError::Invalid(error.to_string());
    if text.split('/').count() != 2 {
        return text.parse().map(Resource::One).map_err(malformed);
    }
    // A name that any key may have makes a key of the two parts, and checks them.
    let key: ResourceKey = format!("{text}/x").parse().map_err(malformed)?;
    let namespace = key.namespace().map(str::to_owned);
    Ok(Resource::All { namespace, kind: key.kind().to_owned() })
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
        })
    }
}

#[cfg(test)]
mod tests;
