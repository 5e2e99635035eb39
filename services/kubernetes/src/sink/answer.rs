//! The answers of the API server to the sink's requests, and what each means.

use std::time::Duration;

use headwater_telemetry::error_chain;
use http::header::RETRY_AFTER;
use http::{Request, StatusCode};
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use crate::access::Connection;
use crate::failure::RequestError;
use crate::raw_object::RawObject;

/// How long a request may take. kube sets no limit.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What a server that has too much to do asks for at least and at most.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The part of an answer that its reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPart {
    /// The object as it is now.
    Object,
    /// Whether it was done. What the answer has is not parsed.
    Outcome,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// It was done. The object as it is now, if that is needed and the answer has it.
    Done(Option<RawObject>),
    /// The object is not there.
    Absent,
    /// An object of that name is there already, or it is another one than the request is about.
    Conflict(String),
    /// The API server never takes this content.
    Refused(String),
    /// A right is missing.
    Forbidden(String),
    /// The API server has too much to do.
    Throttled(Duration),
    /// Anything else: it may have been done or not.
    Failed(String),
}

impl Answer {
    /// The outcome in metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Absent => "absent",
            Self::Conflict(_) => "conflict",
            Self::Refused(_) => "refused",
            Self::Forbidden(_) => "forbidden",
            Self::Throttled(_) => "throttled",
            Self::Failed(_) => "failed",
        }
    }
}

/// Sends a request and waits for the answer.
pub(crate) async fn send(
    connection: &Connection,
    request: Request<Vec<u8>>,
    part: AnswerPart,
) -> Answer {
    match timeout(ANSWER_WITHIN, exchange(connection, request, part)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Answer::Failed(RequestError::from(error).describe(&connection.server)),
        Err(_) => Answer::Failed(RequestError::Silent(ANSWER_WITHIN).describe(&connection.server)),
    }
}

async fn exchange(
    connection: &Connection,
    request: Request<Vec<u8>>,
    part: AnswerPart,
) -> Result<Answer, kube::Error> {
    let response = connection.client.send(request.map(Body::from)).await?;
    let (head, body) = response.into_parts();
    let retry_after =
        head.headers.get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
    let body = body.collect_bytes().await?;
    Ok(meaning(head.status, retry_after, &body, &connection.server, part))
}

/// What an answer means.
fn meaning(
    status: StatusCode,
    retry_after: Option<u64>,
    body: &[u8],
    server: &str,
    part: AnswerPart,
) -> Answer {
    if status.is_success() {
        if part == AnswerPart::Outcome {
            return Answer::Done(None);
        }
        let object = serde_json::from_slice::<RawObject>(body).ok();
        // A deletion may be answered with a Status.
        return Answer::Done(object.filter(|object| !object.uid().is_empty()));
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or("no message").to_owned();
    let code = status.as_u16();
    match status {
        StatusCode::NOT_FOUND => Answer::Absent,
        StatusCode::FORBIDDEN if is_about_a_namespace_that_ends(&body) => Answer::Absent,
        StatusCode::CONFLICT => Answer::Conflict(message),
        StatusCode::UNPROCESSABLE_ENTITY if is_about_another_object(&body) => {
            Answer::Conflict(message)
        }
        StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => Answer::Refused(format!("{message} ({code})")),
        StatusCode::FORBIDDEN => Answer::Forbidden(message),
        StatusCode::TOO_MANY_REQUESTS => {
            let after = retry_after.map_or(RETRY_AFTER_MIN, Duration::from_secs);
            Answer::Throttled(after.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX))
        }
        _ => Answer::Failed(format!("{server}: {message} ({code})")),
    }
}

/// Whether an object was refused because it is another one than the request is about: its UID differs.
fn is_about_another_object(status: &Value) -> bool {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes.into_iter().any(|cause| cause["field"] == "metadata.uid")
}

/// Whether nothing may be created because the namespace is under deletion.
fn is_about_a_namespace_that_ends(status: &Value) -> bool {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes.into_iter().any(|cause| cause["reason"] == "NamespaceTerminating")
}

/// A request that cannot be made.
pub(crate) fn unsendable(error: &http::Error) -> Answer {
    Answer::Refused(error_chain(error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(code: u16, retry_after: Option<u64>, body: &Value) -> Answer {
        let status = StatusCode::from_u16(code).expect("a status");
        let body = body.to_string();
        meaning(status, retry_after, body.as_bytes(), "https://a", AnswerPart::Object)
    }

    #[test]
    fn each_answer_has_its_meaning() {
        let why = json!({"message": "why"});
        assert_eq!(of(404, None, &why), Answer::Absent);
        assert_eq!(of(409, None, &why), Answer::Conflict("why".into()));
        assert_eq!(of(422, None, &why), Answer::Refused("why (422)".into()));
        let uid = json!({"message": "why", "details": {"causes": [{"field": "metadata.uid"}]}});
        assert_eq!(of(422, None, &uid), Answer::Conflict("why".into()));
        assert_eq!(of(403, None, &why), Answer::Forbidden("why".into()));
        let ending = json!({"details": {"causes": [{"reason": "NamespaceTerminating"}]}});
        assert_eq!(of(403, None, &ending), Answer::Absent);
        assert_eq!(of(500, None, &why), Answer::Failed("https://a: why (500)".into()));
        for (asked, after) in [(None, 1), (Some(0), 1), (Some(7), 7), (Some(9_999), 60)] {
            assert_eq!(of(429, asked, &why), Answer::Throttled(Duration::from_secs(after)));
        }
        assert_eq!(of(200, None, &json!({"kind": "Status"})), Answer::Done(None));
        let unparsed = meaning(StatusCode::OK, None, b"{", "https://a", AnswerPart::Outcome);
        assert_eq!(unparsed, Answer::Done(None));
        assert!(matches!(of(200, None, &json!({"metadata": {"uid": "u"}})), Answer::Done(Some(_))));
    }
}
