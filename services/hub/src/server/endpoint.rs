//! The gRPC method of the replication protocol.
//!
//! The generated server has one codec for all messages. This one takes messages that are encoded
//! already: a push that thousands of edges receive.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::StreamExt;
use headwater_proto::codec::HubCodec;
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_server::SERVICE_NAME;
use headwater_proto::wire::HubFrame;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::Peer;
use super::service::{OutgoingStream, open_session};
use crate::session::SessionDependencies;

/// The name of the method.
const SESSION: &str = "Session";

/// The replication service of a hub.
#[derive(Clone)]
pub(super) struct ReplicationEndpoint {
    hub: Arc<SessionDependencies>,
}

/// Its one method.
struct SessionMethod {
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
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let hub = self.hub.clone();
        Box::pin(async move {
            if !is_session(request.uri().path()) {
                return Ok(Status::unimplemented("the hub has no such method").into_http());
            }
            let (receive, send) = (hub.limits.receive_bytes_max, hub.limits.send_bytes_max);
            let mut grpc =
                Grpc::new(HubCodec).apply_max_message_size_config(Some(receive), Some(send));
            Ok(grpc.streaming(SessionMethod { hub }, request).await)
        })
    }
}

impl StreamingService<wire::EdgeMessage> for SessionMethod {
    type Response = HubFrame;
    type ResponseStream = OutgoingStream;
    type Future = Ready<Result<Response<OutgoingStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<wire::EdgeMessage>>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        ready(Ok(Response::new(open_session(&self.hub, request.into_inner().boxed(), peer))))
    }
}

/// Whether `path` names the method: `/SERVICE/METHOD`.
fn is_session(path: &str) -> bool {
    let names = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    names == Some((SERVICE_NAME, SESSION))
}
