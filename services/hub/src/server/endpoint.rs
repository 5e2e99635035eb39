//! The gRPC method of the replication protocol.
//!
//! The generated server has one codec for all messages, and buffers that keep their largest message. This
//! one takes messages that are encoded already, a push that thousands of edges receive, and an idle
//! session has no buffers ([`super::body`], [`super::edge_messages`]).

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::StreamExt;
use headwater_proto::replication::replication_server::SERVICE_NAME;
use tonic::Status;
use tonic::codegen::http::HeaderValue;
use tonic::codegen::http::header::CONTENT_TYPE;
use tonic::codegen::{Body, Service, StdError, http};
use tonic::server::NamedService;

use super::Peer;
use super::body::SessionBody;
use super::edge_messages::EdgeMessages;
use super::service::open_session;
use crate::session::SessionDependencies;

/// The name of the method.
const SESSION: &str = "Session";

/// The content type of every response.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The replication service of a hub.
#[derive(Clone)]
pub(super) struct ReplicationEndpoint {
    hub: Arc<SessionDependencies>,
}

impl ReplicationEndpoint {
    pub(super) fn new(hub: Arc<SessionDependencies>) -> Self {
        Self { hub }
    }
}

impl NamedService for ReplicationEndpoint {
    const NAME: &'static str = SERVICE_NAME;
}

impl<B> Service<http::Request<B>> for ReplicationEndpoint
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        if !is_session(request.uri().path()) {
            return ready(Ok(Status::unimplemented("the hub has no such method").into_http()));
        }
        let limits = &self.hub.limits;
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let messages = EdgeMessages::new(request.into_body(), limits.receive_bytes_max);
        let outgoing = open_session(&self.hub, messages.boxed(), peer);
        let body = SessionBody::new(outgoing, limits.send_bytes_max);
        let mut response = http::Response::new(tonic::body::Body::new(body));
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
        ready(Ok(response))
    }
}

/// Whether `path` names the method: `/SERVICE/METHOD`.
fn is_session(path: &str) -> bool {
    let names = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    names == Some((SERVICE_NAME, SESSION))
}
