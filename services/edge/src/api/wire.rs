//! Conversions between the messages of the local API and the edge's own types.

use headwater_event::ResourceKey;
use headwater_proto::local::operation::Verb as WireVerb;
use headwater_proto::local::operation_result::Outcome as WireOutcome;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{self as proto, failure::Code};

use crate::api::handler::Outcome;
use crate::meta::object::Object;
use crate::meta::operation::{Operation, OperationError, Verb};
use crate::meta::routing::Group;
use crate::replica::watch::Filter;
use crate::status::EdgeStatus;

/// The most types that a watch may name; more than exist.
const TYPES_MAX: usize = 64;

/// The most characters of an invalid name that an error repeats. Errors travel in headers, which both
/// ends bound.
const SHOWN_MAX: usize = 64;

/// Every verb: on the wire and here.
const VERBS: [(WireVerb, Verb); 15] = [
    (WireVerb::Insert, Verb::Insert),
    (WireVerb::Update, Verb::Update),
    (WireVerb::Delete, Verb::Delete),
    (WireVerb::Query, Verb::Query),
    (WireVerb::Response, Verb::Response),
    (WireVerb::Connection, Verb::Connection),
    (WireVerb::MetaSync, Verb::MetaSync),
    (WireVerb::Action, Verb::Action),
    (WireVerb::ActionResult, Verb::ActionResult),
    (WireVerb::CreateVolume, Verb::CreateVolume),
    (WireVerb::DeleteVolume, Verb::DeleteVolume),
    (WireVerb::ControllerPublishVolume, Verb::ControllerPublishVolume),
    (WireVerb::ControllerUnpublishVolume, Verb::ControllerUnpublishVolume),
    (WireVerb::Token, Verb::Token),
    (WireVerb::Csr, Verb::Csr),
];

/// Parses an operation.
pub(super) fn operation(message: proto::Operation) -> Result<Operation, OperationError> {
    let wire_verb = message.verb();
    let verb = VERBS.iter().find(|(wire, _)| *wire == wire_verb).map(|(_, verb)| *verb);
    let verb =
        verb.ok_or_else(|| OperationError::Invalid("the operation has no verb".to_owned()))?;
    let proto::Operation { id, parent_id, source, resource, content, .. } = message;
    Ok(Operation { id, parent_id, source, verb, resource, content })
}

/// Parses the filter of a watch.
pub(super) fn filter(request: proto::WatchRequest) -> Result<Filter, OperationError> {
    let proto::WatchRequest { subscriber, types, namespace } = request;
    let group = Group::named(&subscriber).ok_or_else(|| {
        let shown: String = subscriber.chars().take(SHOWN_MAX).collect();
        OperationError::Invalid(format!("{shown:?} is no group; use edged, mesh or function"))
    })?;
    if types.len() > TYPES_MAX {
        let types = types.len();
        return Err(OperationError::Invalid(format!(
            "the watch names {types} types; the most is {TYPES_MAX}"
        )));
    }
    Ok(Filter { group, types, namespace: (!namespace.is_empty()).then_some(namespace) })
}

/// Formats the result of an operation.
pub(super) fn result(
    id: String,
    outcome: Result<Outcome, OperationError>,
) -> proto::OperationResult {
    let outcome = match outcome {
        Ok(Outcome::Done { unchanged }) => WireOutcome::Done(proto::Done { unchanged }),
        Ok(Outcome::Objects(objects)) => WireOutcome::Objects(proto::Objects {
            objects: objects.into_iter().map(object).collect(),
        }),
        Ok(Outcome::Answer { key, answer }) => {
            let object = answer.into_bytes();
            let object = proto::Object { key: key.to_string(), object, ..proto::Object::default() };
            WireOutcome::Objects(proto::Objects { objects: vec![object] })
        }
        Err(error) => WireOutcome::Failure(failure(error)),
    };
    proto::OperationResult { id, outcome: Some(outcome) }
}

/// Formats the status of the edge.
pub(super) fn status(status: EdgeStatus) -> proto::EdgeStatus {
    let streams = status.streams.into_iter().map(|stream| proto::StreamStatus {
        stream: stream.stream.to_string(),
        log_id: stream.applied.map(|at| at.log_id.to_string()).unwrap_or_default(),
        epoch: stream.applied.map_or(0, |at| at.epoch.0),
        received: stream.received.0,
        applied: stream.applied.map_or(0, |at| at.seq.0),
        durable: stream.durable.0,
        hash: stream.hash.to_string(),
        tail: stream.tail.0,
    });
    proto::EdgeStatus {
        node: status.identity.node.to_string(),
        connected: status.connected,
        incarnation: status.identity.incarnation.0,
        boot: status.identity.boot.number,
        outbox_depth: status.outbox_depth as u64,
        last_meta_sync_ms: status.last_meta_sync_ms,
        streams: streams.collect(),
        trouble: status.trouble.unwrap_or_default(),
    }
}

/// The event that begins a listing.
pub(super) fn init() -> proto::WatchEvent {
    event(Kind::Init)
}

/// The event of an object in a listing.
pub(super) fn init_apply(listed: Object) -> proto::WatchEvent {
    proto::WatchEvent { object: Some(object(listed)), ..event(Kind::InitApply) }
}

/// The event that ends a listing.
pub(super) fn init_done(complete: bool) -> proto::WatchEvent {
    proto::WatchEvent { complete, ..event(Kind::InitDone) }
}

/// The event of an object that was added or changed.
pub(super) fn apply(applied: Object, traceparent: Option<String>) -> proto::WatchEvent {
    let traceparent = traceparent.unwrap_or_default();
    proto::WatchEvent { object: Some(object(applied)), traceparent, ..event(Kind::Apply) }
}

/// The event of an object that was removed.
pub(super) fn delete(
    key: &ResourceKey,
    uid: String,
    traceparent: Option<String>,
) -> proto::WatchEvent {
    let object = proto::Object { key: key.to_string(), uid, ..proto::Object::default() };
    let traceparent = traceparent.unwrap_or_default();
    proto::WatchEvent { object: Some(object), traceparent, ..event(Kind::Delete) }
}

/// The event of an operation for the subscriber.
pub(super) fn delivered(operation: Operation) -> proto::WatchEvent {
    let Operation { id, parent_id, source, verb, resource, content } = operation;
    let wire_verb = VERBS.iter().find(|(_, known)| *known == verb).map(|(wire, _)| *wire);
    let verb = wire_verb.unwrap_or_default().into();
    let operation = proto::Operation { id, parent_id, source, verb, resource, content };
    proto::WatchEvent { operation: Some(operation), ..event(Kind::Operation) }
}

fn event(kind: Kind) -> proto::WatchEvent {
    proto::WatchEvent { kind: kind.into(), ..proto::WatchEvent::default() }
}

fn object(object: Object) -> proto::Object {
    let Object { key, uid, resource_version, object } = object;
    proto::Object { key: key.to_string(), uid, resource_version, object }
}

fn failure(error: OperationError) -> proto::Failure {
    let (code, message) = match error {
        OperationError::Invalid(message) => (Code::Invalid, message),
        OperationError::Forbidden(message) => (Code::Forbidden, message),
        OperationError::NotFound(message) => (Code::NotFound, message),
        OperationError::Unavailable(message) => (Code::Unavailable, message),
        OperationError::NoExecutor(message) => (Code::NoExecutor, message),
        OperationError::Conflict(message) => (Code::Conflict, message),
        OperationError::TooMany(message) => (Code::TooMany, message),
    };
    proto::Failure { code: code.into(), message }
}
