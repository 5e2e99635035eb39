//! Failed requests: what a failure means, and what a person can do.

use std::time::Duration;

use headwater_telemetry::error_chain;
use kube::Client;
use serde::de::DeserializeOwned;

use crate::reflector::NoVersion;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The API server, or the way to it.
    #[error(transparent)]
    Client(Box<kube::Error>),
    /// The request cannot be built.
    #[error("a request cannot be made")]
    Build(#[from] kube::core::request::Error),
    /// The answer is not what was asked for. Its text may be secret.
    #[error("the API server sent JSON that is no list or object, at line {line}, column {column}")]
    Answer {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// An answer without a version.
    #[error(transparent)]
    NoVersion(#[from] NoVersion),
    /// There was no answer in time.
    #[error("the API server has sent nothing for {} s; the connection was closed", .0.as_secs())]
    Silent(Duration),
    /// The namespace that identifies a cluster is not there.
    #[error("the cluster has no namespace kube-system, by whose UID it is recognized")]
    NoIdentity,
    /// The watch was ended by an error.
    #[error("the API server ended the watch: {message} ({code})")]
    Ended {
        /// The HTTP status.
        code: u16,
        /// The reason.
        message: String,
    },
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The version or the token is too old: list again.
    Expired,
    /// A right is missing, or the kind is not served. It lasts until a person acts.
    Refused,
    /// Anything else: try again.
    Passing,
}

/// Refusals in a row before one counts as lasting until a person acts. An API server that has just started refuses what it
/// allows some seconds later: it has not read the roles yet.
pub(crate) const REFUSALS_MAX: u32 = 10;

const BAD_REQUEST: u16 = 400;
const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;
const METHOD_NOT_ALLOWED: u16 = 405;
const GONE: u16 = 410;

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

impl RequestError {
    /// The failure that an answer with another status than success states.
    pub(crate) fn of_answer(code: http::StatusCode, body: &[u8]) -> Self {
        let status = serde_json::from_slice(body).unwrap_or_else(|_| {
            let message = code.canonical_reason().unwrap_or("the request was refused");
            kube::core::Status::failure(message, "")
        });
        kube::Error::Api(kube::core::Status { code: code.as_u16(), ..status }.boxed()).into()
    }

    /// The HTTP status of the answer, if there was one.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Client(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Ended { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether what was asked for does not exist, or is not served.
    pub(crate) fn is_absence(&self) -> bool {
        self.code() == Some(NOT_FOUND)
    }

    /// What to do about it.
    pub(crate) fn kind(&self) -> FailureKind {
        match self.code() {
            Some(GONE) => FailureKind::Expired,
            Some(BAD_REQUEST | FORBIDDEN | NOT_FOUND | METHOD_NOT_ALLOWED) => FailureKind::Refused,
            _ => FailureKind::Passing,
        }
    }

    /// Whether only a person can mend it: the credentials or the certificate are wrong.
    pub(crate) fn is_final(&self) -> bool {
        self.code() == Some(UNAUTHORIZED) || self.is_certificate()
    }

    /// The failure in words: what, where, and what to do.
    pub(crate) fn describe(&self, server: &str) -> String {
        let what = match self {
            Self::Client(error) => match &**error {
                kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
                kube::Error::Service(error) => error_chain(&**error),
                error => error_chain(error),
            },
            error => error_chain(error),
        };
        let advice = match self.code() {
            Some(UNAUTHORIZED) => {
                "; the credentials are wrong or have expired: renew them, and restart the controller"
            }
            Some(FORBIDDEN) => "; grant this right to the controller's role",
            Some(NOT_FOUND) => "; the API server does not serve this kind",
            Some(BAD_REQUEST) => "; correct the selector in the settings",
            _ if self.is_certificate() => {
                "; the certificate of the server is not by the CA of the kubeconfig: correct \
                 certificate-authority or server there"
            }
            _ => "",
        };
        format!("{server}: {what}{advice}")
    }

    fn is_certificate(&self) -> bool {
        let Self::Client(error) = self else { return false };
        let kube::Error::Service(error) = &**error else { return false };
        // The error of rustls is below those of several layers, none of which shows its type.
        error_chain(&**error).contains("invalid peer certificate")
    }
}

/// Sends a request for JSON.
pub(crate) async fn send<T: DeserializeOwned>(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<T, RequestError> {
    // Not `Client::request`, which logs an answer that does not parse: it may be a secret.
    let text = client.request_text(request).await?;
    serde_json::from_str(&text)
        .map_err(|error| RequestError::Answer { line: error.line(), column: error.column() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, message: &str) -> RequestError {
        let mut status = kube::core::Status::failure(message, "");
        status.code = code;
        kube::Error::Api(status.boxed()).into()
    }

    #[test]
    fn a_failure_says_what_to_do() {
        for (code, kind, advice) in [
            (401, FailureKind::Passing, "renew them"),
            (403, FailureKind::Refused, "grant this right"),
            (404, FailureKind::Refused, "does not serve"),
            (410, FailureKind::Expired, ""),
            (500, FailureKind::Passing, ""),
        ] {
            let error = api(code, "why");
            assert_eq!(error.kind(), kind, "{code}");
            let text = error.describe("https://a:6443");
            assert!(text.starts_with(&format!("https://a:6443: why ({code})")), "{text}");
            assert!(text.contains(advice), "{text}");
        }
        assert!(api(401, "").is_final() && !api(403, "").is_final());
    }
}
