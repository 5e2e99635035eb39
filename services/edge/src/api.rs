//! The local API: gRPC on a unix socket that admits the edge's own user, root, and a configured user.
//! `wire` converts the messages, `handler` carries out the operations, `socket` opens the socket.

pub(crate) mod handler;
mod socket;
mod wire;

use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use headwater_proto::local as proto;
use headwater_proto::local::meta_server::{Meta, MetaServer};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

pub(crate) use socket::{LocalSocket, bind};

use crate::api::handler::ApiHandler;
use crate::meta::object::Object;
use crate::meta::operation::OperationError;
use crate::replica::watch::{Watch, WatchItem};

/// The most bytes of an operation; an object has at most 1.5 MiB.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// The most bytes of a response: the whole view of a large node.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The most operations in progress; each of a node's programs sends a few.
pub const OPERATIONS_MAX: usize = 256;

/// How long an operation waits for the cloud: KubeEdge's RemoteQueryTimeout.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The most calls in progress on one connection.
const CALLS_MAX: u32 = 512;

/// The most bytes of request headers; a local caller sends a few hundred.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// The bounds of the local API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalSettings {
    /// See [`OPERATIONS_MAX`].
    pub operations_max: usize,
    /// See [`QUERY_TIMEOUT`].
    pub query_timeout: Duration,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self { operations_max: OPERATIONS_MAX, query_timeout: QUERY_TIMEOUT }
    }
}

/// Serves until stopped. Watches end with the replica.
pub(crate) async fn serve(
    socket: LocalSocket,
    handler: ApiHandler,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<MetaServer<MetaService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(headwater_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let meta = MetaServer::new(MetaService { handler })
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
    tonic::transport::Server::builder()
        .max_concurrent_streams(CALLS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .add_service(meta)
        .add_service(health_service)
        .add_service(reflection)
        .serve_with_incoming_shutdown(socket.connections(), stop.cancelled_owned())
        .await?;
    Ok(())
}

/// The gRPC service of one edge.
#[derive(Debug)]
pub(crate) struct MetaService {
    pub(crate) handler: ApiHandler,
}

#[tonic::async_trait]
impl Meta for MetaService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<proto::WatchEvent, Status>> + Send>>;

    async fn operate(
        &self,
        request: Request<proto::Operation>,
    ) -> Result<Response<proto::OperationResult>, Status> {
        let cause = request.metadata().get(headwater_telemetry::TRACEPARENT);
        let cause = cause.and_then(|cause| cause.to_str().ok()).map(str::to_owned);
        let operation = request.into_inner();
        let id = operation.id.clone();
        let outcome = match wire::operation(operation) {
            Ok(operation) => self.handler.carry_out(operation, cause).await,
            Err(error) => Err(error),
        };
        Ok(Response::new(wire::result(id, outcome)))
    }

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let filter = wire::filter(request.into_inner())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let watch = self
            .handler
            .watch(filter)
            .await
            .map_err(|error| status_of(&error))?
            .map_err(|too_many| Status::resource_exhausted(too_many.to_string()))?;
        let events = WatchEvents { watch, listing: None };
        let events = futures::stream::unfold(events, |mut events| async move {
            events.next().await.map(|event| (Ok(event), events))
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn status(
        &self,
        _: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::EdgeStatus>, Status> {
        let status = self.handler.status().await.map_err(|error| status_of(&error))?;
        Ok(Response::new(wire::status(status)))
    }
}

/// The events of a watch. A listing becomes one event for each object, between two marks.
struct WatchEvents {
    watch: Watch,
    listing: Option<Listing>,
}

struct Listing {
    objects: std::vec::IntoIter<Object>,
    complete: bool,
}

impl WatchEvents {
    async fn next(&mut self) -> Option<proto::WatchEvent> {
        if let Some(listing) = &mut self.listing {
            if let Some(object) = listing.objects.next() {
                return Some(wire::init_apply(object));
            }
            let done = wire::init_done(listing.complete);
            self.listing = None;
            return Some(done);
        }
        Some(match self.watch.next().await? {
            WatchItem::Listing { objects, complete } => {
                self.listing = Some(Listing { objects: objects.into_iter(), complete });
                wire::init()
            }
            WatchItem::Applied { object, traceparent } => wire::apply(object, traceparent),
            WatchItem::Removed { key, uid, traceparent } => wire::delete(&key, uid, traceparent),
            WatchItem::Operation(operation) => wire::delivered(operation),
        })
    }
}

fn status_of(error: &OperationError) -> Status {
    Status::unavailable(error.to_string())
}
