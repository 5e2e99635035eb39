//! The server as a service of HTTP requests: here time passes and faults strike.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use tokio::time::sleep;
use tower::Service;

use crate::api::Answer;
use crate::failure::Failure;
use crate::faults::{Fate, SILENCE};
use crate::request::ApiRequest;
use crate::server::ApiServer;
use crate::watch_body::watch_body;

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, ConnectionError>;

/// Why a request has no answer, or a watch no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The server is down; the request did not act.
    #[error("connection refused")]
    Refused,
    /// The connection was closed; the request may have acted.
    #[error("connection reset by peer")]
    Reset,
    /// The body of the request did not arrive; it did not act.
    #[error("the request ended in its middle")]
    Unread,
}

impl<B> Service<Request<B>> for ApiServer
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<AnswerBody>;
    type Error = ConnectionError;
    type Future = BoxFuture<'static, Result<Self::Response, ConnectionError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| ConnectionError::Unread)?;
            server.serve(ApiRequest::new(&parts, body.to_bytes())).await
        })
    }
}

impl ApiServer {
    async fn serve(self, request: ApiRequest) -> Result<Response<AnswerBody>, ConnectionError> {
        let (way, starts) = {
            let mut state = self.lock();
            if !state.is_up {
                return Err(ConnectionError::Refused);
            }
            (state.way(), state.starts)
        };
        sleep(way.there).await;
        self.wait_while_frozen(starts).await?;
        let answer = match way.fate {
            Fate::RequestLost { is_silent } => return lose(is_silent).await,
            Fate::Throttled => Answer::Text(429, "Too many requests, please try again later.\n"),
            Fate::Unavailable => Answer::failure(&Failure::unavailable()),
            Fate::Expired if request.query.is_watch || !request.query.continue_token.is_empty() => {
                Answer::failure(&Failure::too_old(0, self.version()))
            }
            Fate::StoreTimeout => {
                self.change(|state| state.serve(&request));
                Answer::failure(&Failure::store_timeout())
            }
            Fate::Served | Fate::Expired | Fate::AnswerLost { .. } => {
                self.change(|state| state.serve(&request))
            }
        };
        if let Fate::AnswerLost { is_silent } = way.fate {
            return lose(is_silent).await;
        }
        sleep(way.back).await;
        self.wait_while_frozen(starts).await?;
        Ok(self.response(answer, starts))
    }

    /// Returns once the server answers; an error where it ended meanwhile.
    async fn wait_while_frozen(&self, starts: u64) -> Result<(), ConnectionError> {
        loop {
            let turn = self.turn();
            {
                let state = self.lock();
                if !state.is_up || state.starts != starts {
                    return Err(ConnectionError::Reset);
                }
                if !state.is_frozen {
                    return Ok(());
                }
            }
            turn.await;
        }
    }

    fn response(self, answer: Answer, starts: u64) -> Response<AnswerBody> {
        let (code, content_type, body) = match answer {
            Answer::Json(code, object) => {
                (code, "application/json", whole(object.to_string().into()))
            }
            Answer::Text(code, text) => (code, "text/plain", whole(text.into())),
            Answer::Watch(start) => (200, "application/json", watch_body(self, *start, starts)),
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if code == 429 {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

async fn lose(is_silent: bool) -> Result<Response<AnswerBody>, ConnectionError> {
    if is_silent {
        sleep(SILENCE).await;
    }
    Err(ConnectionError::Reset)
}
