//! The operator API, both ends: the server over the unix socket of a data directory, and the client
//! of the command line.
//!
//! | module | what it owns |
//! |---|---|
//! | [`client`] | the connection of a command to a running process |
//! | `owner` | the owner of a path that this user may not use |
//! | `dependencies`, `node_view` | the dependencies that a part provides to the server |
//! | `admission` | bounds on concurrent requests and streams |
//! | `objects`, `watch`, `mask` | present and past objects; their changes; hidden Secret values |
//! | `picture_list` | a list of the cloud's picture, a long one beside the publishing |
//! | `past_position`, `stream_history`, `past_statuses` | the past, from the logs |
//! | `object_history` | the events and reports of one object |
//! | `pod_status` | the status of a pod in a word |
//! | [`logs`] | log files of containers |
//! | [`status`], `disk`, `verify` | positions and lag; disks; state hashes |
//!
//! The server reads the state of the parts, and changes only links. The socket has mode
//! 0600: only the owner of the data directory may connect.

mod admission;
pub mod client;
mod dependencies;
mod disk;
pub mod logs;
mod mask;
mod node_view;
mod object_history;
mod objects;
mod owner;
mod past_position;
mod past_statuses;
mod picture_list;
mod pod_status;
pub mod status;
mod stream_history;
mod verify;
mod watch;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use headwater_event::{NodeName, StreamId};
use headwater_proto::FILE_DESCRIPTOR_SET;
use headwater_proto::operator::operator_server::{Operator, OperatorServer};
use headwater_proto::operator::{
    GetEvent, GetRequest, GetResponse, HistoryEvent, HistoryRequest, LogsChunk, LogsRequest,
    ReleaseNodeRequest, ReleaseNodeResponse, SetLinkRequest, SetLinkResponse, StateRequest,
    StateResponse, StatusRequest, StatusResponse, StoryRequest, StoryResponse, VerifyRequest,
    VerifyResponse, VersionRequest, VersionResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use self::admission::{Admission, hold_permit, send_parts};
use crate::client::RESPONSE_BYTES_MAX;

pub use self::dependencies::{ControllerView, LinkRecorder, Logs, OperatorDependencies, PartKind};
pub use self::node_view::{EdgeFailure, EdgeState, NodeView, RunningEdge};
pub use self::owner::{as_owner, owner_of};
pub use self::pod_status::pod_status;

/// The largest request, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// The most concurrent calls of one connection: a command makes a few.
const CALLS_MAX: u32 = 128;

/// The most bytes of headers: a request has a few hundred.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// The longest refusal, in bytes: it is in the headers, which encode a byte in up to three.
const REFUSAL_BYTES_MAX: usize = 2 << 10;

/// The most names in a refusal: a line or two of a terminal.
const NAMES_SHOWN_MAX: usize = 10;

/// The reason why the operator API does not listen.
#[derive(Debug, thiserror::Error)]
#[error("the operator socket {} cannot be created", socket.display())]
pub struct ListenError {
    socket: PathBuf,
    source: std::io::Error,
}

/// Listens on `socket` until `stop`.
///
/// # Errors
/// When the socket cannot be created.
pub fn serve(
    socket: &Path,
    dependencies: OperatorDependencies,
    stop: CancellationToken,
) -> Result<tokio::task::JoinHandle<()>, ListenError> {
    let failed = |source| ListenError { socket: socket.to_owned(), source };
    // The data directory is locked, so an existing socket is from a killed process.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let service =
        OperatorServer::new(OperatorService { dependencies, admission: Admission::new() })
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(RESPONSE_BYTES_MAX);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .build_v1();
    let socket = socket.to_owned();
    Ok(tokio::spawn(async move {
        let mut server = tonic::transport::Server::builder()
            .max_concurrent_streams(CALLS_MAX)
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .add_service(service);
        match reflection {
            Ok(reflection) => server = server.add_service(reflection),
            Err(error) => tracing::warn!(%error, "the operator API has no reflection"),
        }
        let incoming = UnixListenerStream::new(listener);
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, stop.cancelled()).await {
            tracing::error!(%error, "the server of the operator API has failed");
        }
        // A socket without a server would mislead clients.
        let _ = std::fs::remove_file(socket);
    }))
}

struct OperatorService {
    dependencies: OperatorDependencies,
    admission: Admission,
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Operator for OperatorService {
    async fn version(
        &self,
        _request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(VersionResponse { version: env!("CARGO_PKG_VERSION").to_owned() }))
    }

    type GetStream = ResponseStream<GetResponse>;

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<Self::GetStream>, Status> {
        let permit = self.admission.request().await?;
        let parts =
            objects::get(self.dependencies.clone(), request.into_inner()).await.map_err(brief)?;
        Ok(Response::new(send_parts(permit, parts)))
    }

    type WatchStream = ResponseStream<GetEvent>;

    async fn watch(
        &self,
        request: Request<GetRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let permit = self.admission.stream()?;
        let events =
            watch::watch(self.dependencies.clone(), request.into_inner()).await.map_err(brief)?;
        Ok(Response::new(hold_permit(permit, events)))
    }

    async fn state(
        &self,
        request: Request<StateRequest>,
    ) -> Result<Response<StateResponse>, Status> {
        let _permit = self.admission.request().await?;
        stream_history::state(&self.dependencies, &request.into_inner())
            .await
            .map(Response::new)
            .map_err(brief)
    }

    type HistoryStream = ResponseStream<HistoryEvent>;

    async fn history(
        &self,
        request: Request<HistoryRequest>,
    ) -> Result<Response<Self::HistoryStream>, Status> {
        let permit = self.admission.stream()?;
        let events = stream_history::history(self.dependencies.clone(), request.into_inner())
            .await
            .map_err(brief)?;
        Ok(Response::new(hold_permit(permit, events)))
    }

    async fn status(
        &self,
        _request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(status::with_disks(&self.dependencies).await))
    }

    async fn verify(
        &self,
        request: Request<VerifyRequest>,
    ) -> Result<Response<VerifyResponse>, Status> {
        let _permit = self.admission.request().await?;
        verify::verify(&self.dependencies, &request.into_inner())
            .await
            .map(Response::new)
            .map_err(brief)
    }

    async fn set_link(
        &self,
        request: Request<SetLinkRequest>,
    ) -> Result<Response<SetLinkResponse>, Status> {
        let request = request.into_inner();
        let dependencies = &self.dependencies;
        let node = dependencies.named(&request.node).map_err(brief)?;
        let edge = dependencies.nodes.get(&node);
        if edge.is_none() && dependencies.hub.is_none() {
            return Err(Status::failed_precondition(format!(
                "a controller has no links: ask the data directory of a hub, or on its machine \
                 that of the edge of {node}"
            )));
        }
        (dependencies.record_link)(&node, request.cut).map_err(|error| internal(&error))?;
        // At both ends if both run here, so that the edge does not dial a hub that refuses it. The
        // hub's cut decides: it also holds for an edge that is stopped now or restarts later.
        if let Some(hub) = &dependencies.hub {
            hub.set_link(&node, request.cut);
        }
        if let Some(edge) = edge.and_then(|view| view.edge()) {
            let result =
                if request.cut { edge.cut_link().await } else { edge.restore_link().await };
            if result.is_err() {
                tracing::debug!(%node, "the edge is ending; the cut applies at its next start");
            }
        }
        Ok(Response::new(SetLinkResponse {}))
    }

    async fn release_node(
        &self,
        request: Request<ReleaseNodeRequest>,
    ) -> Result<Response<ReleaseNodeResponse>, Status> {
        let request = request.into_inner();
        // A node that no stream names may be held too.
        let node: NodeName = request
            .node
            .parse()
            .map_err(|error| Status::invalid_argument(format!("{:?}: {error}", request.node)))
            .map_err(brief)?;
        let Some(hub) = &self.dependencies.hub else {
            return Err(Status::failed_precondition(
                "only a hub holds nodes: ask the data directory of the hub that refuses this one",
            ));
        };
        if hub.release(&node) {
            tracing::info!(%node, "an operator released the node; it may connect again");
            return Ok(Response::new(ReleaseNodeResponse {}));
        }
        let held = hub.held_nodes();
        let held = match held.is_empty() {
            true => "no node".to_owned(),
            false => some_of(held.iter().map(NodeName::as_str)),
        };
        Err(Status::not_found(format!("node {node} is not held; this hub holds {held}")))
    }

    type LogsStream = ResponseStream<LogsChunk>;

    async fn logs(
        &self,
        request: Request<LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let permit = self.admission.stream()?;
        let chunks = logs::logs(&self.dependencies, request.into_inner()).await.map_err(brief)?;
        let chunks = chunks.map(|chunk| chunk.map_err(|error| Status::internal(error.to_string())));
        Ok(Response::new(hold_permit(permit, chunks)))
    }

    async fn story(
        &self,
        request: Request<StoryRequest>,
    ) -> Result<Response<StoryResponse>, Status> {
        let _permit = self.admission.request().await?;
        object_history::object_history(&self.dependencies, &request.into_inner())
            .await
            .map(Response::new)
            .map_err(brief)
    }
}

/// The first few names, and the number of the others.
fn some_of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
    let shown: Vec<&str> = names.take(NAMES_SHOWN_MAX).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Shortens a refusal to the limit of headers: it may quote the request.
fn brief(status: Status) -> Status {
    let message = status.message();
    if message.len() <= REFUSAL_BYTES_MAX {
        return status;
    }
    let end = message.floor_char_boundary(REFUSAL_BYTES_MAX);
    Status::new(status.code(), format!("{} ...", &message[..end]))
}

/// Parses the stream of a request.
fn stream_of(text: &str) -> Result<StreamId, Status> {
    text.parse().map_err(|error| Status::invalid_argument(format!("{error}")))
}

/// An error with its sources, as a response.
fn internal(error: &dyn std::error::Error) -> Status {
    Status::internal(headwater_telemetry::error_chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_fits_the_headers_that_it_travels_in() {
        let short = Status::not_found("pods \"web\" not found");
        assert_eq!(brief(short).message(), "pods \"web\" not found");
        let long = brief(Status::invalid_argument("é".repeat(50_000)));
        assert_eq!(long.code(), tonic::Code::InvalidArgument);
        assert!(long.message().len() <= REFUSAL_BYTES_MAX + 4 && long.message().ends_with(" ..."));
    }
}
