//! Sends operations to the edge's local API, and watches the edge's view for as long as it runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use headwater_object::TokenClaim;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::{Failure, Operation, WatchEvent, WatchRequest, failure::Code};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::backoff::Backoff;
use crate::config::Settings;
use crate::container::token::Token;
use crate::unix_channel::unix_channel;

/// The name of the pod worker as a source and subscriber.
pub(crate) const SOURCE: &str = "edged";

/// An object has at most 1.5 MiB; the rest is room for its envelope.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The edge waits a minute for the cloud, and answers then.
const CLOUD_TIMEOUT: Duration = Duration::from_secs(65);

/// `sockaddr_un` has room for 108 bytes, the last of them zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A client of the edge's local API. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EdgeClient {
    client: MetaClient<Channel>,
    timeout: Duration,
}

/// An operation did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EdgeError {
    /// The edge did not respond: the operation may have been done. Retry it.
    #[error("the edge did not respond")]
    Unreachable(#[source] Box<tonic::Status>),
    /// The edge did not respond in time: the operation may have been done. Retry it.
    #[error("the edge did not respond in {0:?}")]
    TimedOut(Duration),
    /// The edge refused the operation: it was not done.
    #[error("the edge refused: {message} ({code:?})")]
    Refused {
        /// Why, for a program.
        code: Code,
        /// Why, for a person.
        message: String,
    },
    /// The response has no outcome: the operation may have been done.
    #[error("the edge's response has no outcome")]
    NoOutcome,
}

/// The path is too long for a unix socket.
#[derive(Debug, thiserror::Error)]
#[error(
    "the socket path {path} has {bytes} bytes, and a unix socket's path at most \
     {SOCKET_PATH_BYTES_MAX}: choose a shorter data directory"
)]
pub struct SocketPathTooLong {
    /// The path.
    pub path: PathBuf,
    /// Its length.
    pub bytes: usize,
}

impl EdgeError {
    /// Whether a retry can succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) | Self::NoOutcome => true,
            Self::Refused { code, .. } => matches!(code, Code::Unavailable | Code::Internal),
        }
    }

    /// Whether no part of the node takes the operation.
    pub(crate) fn is_unexecutable(&self) -> bool {
        matches!(self, Self::Refused { code: Code::NoExecutor, .. })
    }
}

impl EdgeClient {
    /// A client of the edge at `socket`. It connects at the first request, and again whenever the
    /// connection is lost.
    ///
    /// # Errors
    /// The path is too long for a unix socket.
    pub(crate) fn new(socket: &Path, settings: &Settings) -> Result<Self, SocketPathTooLong> {
        let bytes = socket.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX {
            return Err(SocketPathTooLong { path: socket.to_owned(), bytes });
        }
        let client = MetaClient::new(unix_channel(socket))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { client, timeout: settings.request_timeout })
    }

    /// Sends an operation with the trace context `trace`, and waits for its outcome.
    ///
    /// # Errors
    /// See [`EdgeError`]: each states whether the operation may have been done.
    pub(crate) async fn operate(
        &self,
        verb: Verb,
        resource: String,
        content: Vec<u8>,
        trace: Option<&str>,
    ) -> Result<(), EdgeError> {
        let operation = operation(verb, resource, content.into());
        self.send(operation, trace, self.timeout).await.map(drop)
    }

    /// Requests a token of a ServiceAccount.
    ///
    /// # Errors
    /// See [`EdgeError`]. A refusal means that the edge has no token that is valid.
    pub(crate) async fn token(&self, claim: &TokenClaim) -> Result<Token, EdgeError> {
        let operation = operation(Verb::Token, claim.account.to_string(), claim.body());
        match self.send(operation, None, CLOUD_TIMEOUT).await? {
            Outcome::Objects(found) => {
                let answer = found.objects.first().map(|found| &*found.object);
                answer.and_then(token_of).ok_or(EdgeError::NoOutcome)
            }
            _ => Err(EdgeError::NoOutcome),
        }
    }

    /// Responds to an operation that the watch delivered.
    ///
    /// # Errors
    /// See [`EdgeError`].
    pub(crate) async fn respond(&self, to: Operation, content: Vec<u8>) -> Result<(), EdgeError> {
        let response = operation(Verb::Response, to.resource, content.into());
        let response = Operation { parent_id: to.id, ..response };
        self.send(response, None, self.timeout).await.map(drop)
    }

    async fn send(
        &self,
        operation: Operation,
        trace: Option<&str>,
        timeout: Duration,
    ) -> Result<Outcome, EdgeError> {
        let mut request = tonic::Request::new(operation);
        if let Some(trace) = trace.and_then(|trace| trace.parse().ok()) {
            request.metadata_mut().insert(headwater_telemetry::TRACEPARENT, trace);
        }
        let mut client = self.client.clone();
        let result = tokio::time::timeout(timeout, client.operate(request))
            .await
            .map_err(|_| EdgeError::TimedOut(timeout))?
            .map_err(|status| EdgeError::Unreachable(Box::new(status)))?;
        match result.into_inner().outcome {
            Some(Outcome::Failure(failure)) => Err(refused(failure)),
            Some(outcome) => Ok(outcome),
            None => Err(EdgeError::NoOutcome),
        }
    }

    /// Watches the edge's view until cancelled, and sends every event to `events`. When a watch
    /// ends, it starts the next one after a growing wait.
    pub(crate) async fn watch(
        self,
        settings: Settings,
        events: mpsc::Sender<WatchEvent>,
        cancel: CancellationToken,
    ) {
        let mut backoff = Backoff::new(settings.reconnect_base, settings.reconnect_cap);
        while !cancel.is_cancelled() {
            let listed = tokio::select! {
                () = cancel.cancelled() => return,
                listed = self.watch_once(&events) => listed,
            };
            if listed {
                backoff.reset();
            }
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(backoff.next_wait()) => {}
            }
        }
    }

    /// Runs one watch to its end. Returns whether its listing was complete.
    async fn watch_once(&self, events: &mpsc::Sender<WatchEvent>) -> bool {
        let request = WatchRequest { subscriber: SOURCE.to_owned(), ..WatchRequest::default() };
        let mut client = self.client.clone();
        let mut stream = match client.watch(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => {
                tracing::debug!(%status, "the edge cannot be watched yet");
                return false;
            }
        };
        let mut listed = false;
        loop {
            match stream.message().await {
                Ok(Some(event)) => {
                    listed |= event.kind() == headwater_proto::local::watch_event::Kind::InitDone;
                    if events.send(event).await.is_err() {
                        return listed;
                    }
                }
                Ok(None) => return listed,
                Err(status) => {
                    tracing::debug!(%status, "the watch ended");
                    return listed;
                }
            }
        }
    }
}

/// An operation of the pod worker.
fn operation(verb: Verb, resource: String, content: Bytes) -> Operation {
    Operation {
        id: Uuid::new_v4().to_string(),
        parent_id: String::new(),
        source: SOURCE.to_owned(),
        verb: verb.into(),
        resource,
        content,
    }
}

/// The token in a `TokenRequest` with its status.
fn token_of(answer: &[u8]) -> Option<Token> {
    #[derive(Deserialize)]
    struct Answer {
        status: Status,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        token: String,
        #[serde(default)]
        expiration_timestamp: String,
    }
    let Answer { status } = serde_json::from_slice(answer).ok()?;
    let Status { token, expiration_timestamp } = status;
    (!token.is_empty()).then(|| Token::new(&token, &expiration_timestamp))
}

fn refused(failure: Failure) -> EdgeError {
    EdgeError::Refused { code: failure.code(), message: failure.message }
}
