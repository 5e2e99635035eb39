//! Requests of an edge, and the responses of a hub.

use bytes::Bytes;
use headwater_event::request::REQUEST_BODY_BYTES_MAX;
use headwater_session::message::{Request, RequestError, RequestVerb, Response};

use super::{WireError, WireFault, required, resource_key};
use crate::replication as wire;
use wire::request_error::Code;
use wire::response::Outcome;

impl From<Request> for wire::Request {
    fn from(request: Request) -> Self {
        let Request { id, timeout_ms, verb, key, body } = request;
        let verb = verb.map_or(wire::request::Verb::Unspecified, verb_to_wire);
        Self { id, timeout_ms, key: key.into(), verb: verb.into(), body }
    }
}

impl TryFrom<wire::Request> for Request {
    type Error = WireError;

    fn try_from(request: wire::Request) -> Result<Self, WireError> {
        // An edge sends only verbs that the hub's welcome names.
        let verb = wire::request::Verb::try_from(request.verb)
            .map_err(|_| WireFault::Unknown { value: request.verb }.of("Request.verb"))?;
        Ok(Self {
            id: request.id,
            timeout_ms: request.timeout_ms,
            verb: verb_from_wire(verb),
            key: resource_key(&request.key, "Request.key")?,
            body: body(request.body, "Request.body")?,
        })
    }
}

impl From<Response> for wire::Response {
    fn from(response: Response) -> Self {
        let outcome = match response.outcome {
            Ok(body) => Outcome::Object(body.into_bytes()),
            Err(error) => {
                let (code, message) = match error {
                    RequestError::NotFound => (Code::NotFound, String::new()),
                    RequestError::Forbidden(message) => (Code::Forbidden, message),
                    RequestError::Unavailable(message) => (Code::Unavailable, message),
                    RequestError::Conflict(message) => (Code::Conflict, message),
                    RequestError::Invalid(message) => (Code::Invalid, message),
                    RequestError::TooMany(message) => (Code::TooMany, message),
                };
                Outcome::Error(wire::RequestError { code: code.into(), message })
            }
        };
        Self { id: response.id, outcome: Some(outcome) }
    }
}

impl TryFrom<wire::Response> for Response {
    type Error = WireError;

    fn try_from(response: wire::Response) -> Result<Self, WireError> {
        let outcome = match required(response.outcome, "Response.outcome")? {
            Outcome::Object(object) => Ok(object.into()),
            Outcome::Error(error) => {
                let (code, message) = (error.code(), error.message);
                Err(match code {
                    Code::NotFound => RequestError::NotFound,
                    // A hub of an earlier version gives no reason, and has one only.
                    Code::Forbidden if message.is_empty() => {
                        RequestError::Forbidden(RequestError::NOT_NAMED.to_owned())
                    }
                    Code::Forbidden => RequestError::Forbidden(message),
                    Code::Unavailable => RequestError::Unavailable(message),
                    Code::Conflict => RequestError::Conflict(message),
                    Code::Invalid => RequestError::Invalid(message),
                    Code::TooMany => RequestError::TooMany(message),
                    Code::Unspecified => {
                        return Err(
                            WireFault::Unknown { value: error.code }.of("RequestError.code")
                        );
                    }
                })
            }
        };
        Ok(Self { id: response.id, outcome })
    }
}

pub(super) fn verb_to_wire(verb: RequestVerb) -> wire::request::Verb {
    match verb {
        RequestVerb::Get => wire::request::Verb::Get,
        RequestVerb::Token => wire::request::Verb::Token,
        RequestVerb::Csr => wire::request::Verb::Csr,
    }
}

pub(super) fn verb_from_wire(verb: wire::request::Verb) -> Option<RequestVerb> {
    match verb {
        wire::request::Verb::Unspecified => None,
        wire::request::Verb::Get => Some(RequestVerb::Get),
        wire::request::Verb::Token => Some(RequestVerb::Token),
        wire::request::Verb::Csr => Some(RequestVerb::Csr),
    }
}

/// Checks the length of the body of a request.
pub(super) fn body(body: Bytes, field: &'static str) -> Result<Bytes, WireError> {
    let (found, max) = (body.len(), REQUEST_BODY_BYTES_MAX);
    if found > max {
        return Err(WireFault::TooLong { found, max }.of(field));
    }
    Ok(body)
}
