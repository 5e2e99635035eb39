//! The requests of nodes and their answers, on the lane between a hub and the active controller.

use std::time::Duration;

use headwater_event::{NodeRequest, RequestError, RequestVerb};
use headwater_session::message::Response;

use super::request::body;
use super::{WireError, WireFault, node_name, required, resource_key};
use crate::cloud as wire;
use wire::answer::Outcome;
use wire::ask_error::Code;

/// A request of a node, and the number that the hub gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Unique in the stream.
    pub id: u64,
    /// The request.
    pub request: NodeRequest,
}

impl From<Ask> for wire::HubMessage {
    fn from(ask: Ask) -> Self {
        let Ask { id, request: NodeRequest { node, timeout, verb, key, body } } = ask;
        let ask = wire::Ask {
            id,
            node: node.into(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            verb: verb_to_wire(verb).into(),
            key: key.into(),
            body,
        };
        Self { message: Some(wire::hub_message::Message::Ask(ask)) }
    }
}

impl TryFrom<wire::Ask> for Ask {
    type Error = WireError;

    fn try_from(ask: wire::Ask) -> Result<Self, WireError> {
        // A hub sends only verbs that the controller's welcome names.
        let verb = wire::Verb::try_from(ask.verb).ok().and_then(verb_from_wire);
        let verb = verb.ok_or(WireFault::Unknown { value: ask.verb }.of("Ask.verb"))?;
        let request = NodeRequest {
            node: node_name(ask.node, "Ask.node")?,
            timeout: Duration::from_millis(ask.timeout_ms),
            verb,
            key: resource_key(&ask.key, "Ask.key")?,
            body: body(ask.body, "Ask.body")?,
        };
        Ok(Self { id: ask.id, request })
    }
}

impl From<Response> for wire::ControllerMessage {
    fn from(response: Response) -> Self {
        let outcome = match response.outcome {
            Ok(body) => Outcome::Body(body.into_bytes()),
            Err(error) => {
                let (code, message) = match error {
                    RequestError::NotFound => (Code::NotFound, String::new()),
                    RequestError::Forbidden(message) => (Code::Forbidden, message),
                    RequestError::Unavailable(message) => (Code::Unavailable, message),
                    RequestError::Conflict(message) => (Code::Conflict, message),
                    RequestError::Invalid(message) => (Code::Invalid, message),
                    RequestError::TooMany(message) => (Code::TooMany, message),
                };
                Outcome::Error(wire::AskError { code: code.into(), message })
            }
        };
        let answer = wire::Answer { id: response.id, outcome: Some(outcome) };
        Self { message: Some(wire::controller_message::Message::Answer(answer)) }
    }
}

/// The answer of a controller. An error that this version does not know is one that passes.
///
/// # Errors
/// When the answer has no outcome.
pub fn answer_from_wire(answer: wire::Answer) -> Result<Response, WireError> {
    let outcome = match required(answer.outcome, "Answer.outcome")? {
        Outcome::Body(body) => Ok(body.into()),
        Outcome::Error(error) => {
            let (code, message) = (error.code(), error.message);
            Err(match code {
                Code::NotFound => RequestError::NotFound,
                Code::Forbidden => RequestError::Forbidden(message),
                Code::Unavailable | Code::Unspecified => RequestError::Unavailable(message),
                Code::Conflict => RequestError::Conflict(message),
                Code::Invalid => RequestError::Invalid(message),
                Code::TooMany => RequestError::TooMany(message),
            })
        }
    };
    Ok(Response { id: answer.id, outcome })
}

/// The verbs of a welcome.
pub fn verbs_to_wire(verbs: &[RequestVerb]) -> Vec<i32> {
    verbs.iter().map(|verb| verb_to_wire(*verb).into()).collect()
}

/// The verbs in a welcome that this version knows.
pub fn verbs_from_wire(verbs: &[i32]) -> Vec<RequestVerb> {
    let known = verbs.iter().filter_map(|verb| wire::Verb::try_from(*verb).ok());
    known.filter_map(verb_from_wire).collect()
}

fn verb_to_wire(verb: RequestVerb) -> wire::Verb {
    match verb {
        RequestVerb::Get => wire::Verb::Get,
        RequestVerb::Token => wire::Verb::Token,
        RequestVerb::Csr => wire::Verb::Csr,
    }
}

fn verb_from_wire(verb: wire::Verb) -> Option<RequestVerb> {
    match verb {
        wire::Verb::Unspecified => None,
        wire::Verb::Get => Some(RequestVerb::Get),
        wire::Verb::Token => Some(RequestVerb::Token),
        wire::Verb::Csr => Some(RequestVerb::Csr),
    }
}
