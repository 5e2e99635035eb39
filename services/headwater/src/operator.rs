//! The operator API: what the asking commands ask, over the unix socket of a data directory.
//!
//! It reads what the parts have, and changes nothing but a link. The socket has mode 0600: whoever
//! owns the data directory may ask.

mod disk;
mod logs;
mod mask;
mod objects;
mod past;
mod past_statuses;
mod room;
mod sight;
pub(crate) mod status;
mod story;
mod verify;
mod watch;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use headwater_event::StreamId;
use headwater_proto::FILE_DESCRIPTOR_SET;
use headwater_proto::operator::operator_server::{Operator, OperatorServer};
use headwater_proto::operator::{
    GetEvent, GetRequest, GetResponse, HistoryEvent, HistoryRequest, LogsChunk, LogsRequest,
    SetLinkRequest, SetLinkResponse, StateRequest, StateResponse, StatusRequest, StatusResponse,
    StoryRequest, StoryResponse, VerifyRequest, VerifyResponse, VersionRequest, VersionResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use self::room::{Room, in_room};
use crate::client::ANSWER_BYTES_MAX;

pub(crate) use self::sight::{CloudSight, Logs, Part, Sight};

/// The largest question that is read, in bytes.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// The most calls at a time over one connection: a command makes a few.
const CALLS_MAX: u32 = 128;

/// Headers of a question are a few hundred bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// The longest refusal, in bytes: it travels in headers, up to three bytes for each.
const REFUSAL_BYTES_MAX: usize = 2 << 10;

/// How many of the names there are a refusal says: a line or two of a terminal.
const NAMES_SAID_MAX: usize = 10;

/// Why the operator API does not listen.
#[derive(Debug, thiserror::Error)]
#[error("the operator socket {} cannot be made", socket.display())]
pub(crate) struct ListenError {
    socket: PathBuf,
    source: std::io::Error,
}

/// Listens on `socket` until `stop`.
///
/// # Errors
/// When the socket cannot be made.
pub(crate) fn serve(
    socket: &Path,
    sight: Sight,
    stop: CancellationToken,
) -> Result<tokio::task::JoinHandle<()>, ListenError> {
    let failed = |source| ListenError { socket: socket.to_owned(), source };
    // The data directory is locked: a socket that is there was left behind.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let service = OperatorServer::new(Service { sight, room: Room::new() })
        .max_decoding_message_size(QUESTION_BYTES_MAX)
        .max_encoding_message_size(ANSWER_BYTES_MAX);
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
            Err(error) => tracing::warn!(%error, "no reflection on the operator socket"),
        }
        let incoming = UnixListenerStream::new(listener);
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, stop.cancelled()).await {
            tracing::error!(%error, "the operator socket no longer answers");
        }
        // Nobody is to find a socket that nobody answers.
        let _ = std::fs::remove_file(socket);
    }))
}

struct Service {
    sight: Sight,
    room: Room,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Operator for Service {
    async fn version(
        &self,
        _request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(VersionResponse { version: env!("CARGO_PKG_VERSION").to_owned() }))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let _turn = self.room.question().await?;
        objects::get(&self.sight, &request.into_inner()).await.map(Response::new).map_err(brief)
    }

    type WatchStream = Answers<GetEvent>;

    async fn watch(
        &self,
        request: Request<GetRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let room = self.room.stream()?;
        let events = watch::watch(self.sight.clone(), request.into_inner()).await.map_err(brief)?;
        Ok(Response::new(in_room(room, events)))
    }

    async fn state(
        &self,
        request: Request<StateRequest>,
    ) -> Result<Response<StateResponse>, Status> {
        let _turn = self.room.question().await?;
        past::state(&self.sight, &request.into_inner()).await.map(Response::new).map_err(brief)
    }

    type HistoryStream = Answers<HistoryEvent>;

    async fn history(
        &self,
        request: Request<HistoryRequest>,
    ) -> Result<Response<Self::HistoryStream>, Status> {
        let room = self.room.stream()?;
        let events =
            past::history(self.sight.clone(), request.into_inner()).await.map_err(brief)?;
        Ok(Response::new(in_room(room, events)))
    }

    async fn status(
        &self,
        _request: Request<StatusRequest>,
    ) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(status::with_disks(&self.sight).await))
    }

    async fn verify(
        &self,
        request: Request<VerifyRequest>,
    ) -> Result<Response<VerifyResponse>, Status> {
        let _turn = self.room.question().await?;
        verify::verify(&self.sight, &request.into_inner()).await.map(Response::new).map_err(brief)
    }

    async fn set_link(
        &self,
        request: Request<SetLinkRequest>,
    ) -> Result<Response<SetLinkResponse>, Status> {
        let request = request.into_inner();
        let sight = &self.sight;
        let node = sight.named(&request.node).map_err(brief)?;
        let edge = sight.nodes.get(&node);
        if edge.is_none() && sight.hub.is_none() {
            return Err(Status::failed_precondition(format!(
                "a controller holds no link: ask the data directory of a hub, or on its machine \
                 that of the edge of {node}"
            )));
        }
        (sight.note_link)(&node, request.cut).map_err(|error| internal(&error))?;
        // At both ends where both are here, so that the edge does not knock at a door that is
        // closed to it. The hub's decides then: an edge that does not run now, or is started
        // again, meets it.
        if let Some(hub) = &sight.hub {
            hub.set_link(&node, request.cut);
        }
        if let Some(edge) = edge.and_then(|view| view.edge()) {
            let told = if request.cut { edge.cut_link().await } else { edge.restore_link().await };
            if told.is_err() {
                tracing::debug!(%node, "the edge ends just now; it meets the cut when it starts");
            }
        }
        Ok(Response::new(SetLinkResponse {}))
    }

    type LogsStream = Answers<LogsChunk>;

    async fn logs(
        &self,
        request: Request<LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let room = self.room.stream()?;
        let chunks = logs::logs(&self.sight, request.into_inner()).await.map_err(brief)?;
        let chunks = chunks.map(|chunk| chunk.map_err(|error| Status::internal(error.to_string())));
        Ok(Response::new(in_room(room, chunks)))
    }

    async fn story(
        &self,
        request: Request<StoryRequest>,
    ) -> Result<Response<StoryResponse>, Status> {
        let _turn = self.room.question().await?;
        story::story(&self.sight, &request.into_inner()).await.map(Response::new).map_err(brief)
    }
}

/// Names, as many of them as a person reads.
fn some_of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMES_SAID_MAX);
    let said: Vec<&str> = names.take(NAMES_SAID_MAX).collect();
    match more {
        0 => said.join(", "),
        more => format!("{} and {more} more", said.join(", ")),
    }
}

/// A refusal of a length that headers have room for: it may repeat what was asked.
fn brief(status: Status) -> Status {
    let said = status.message();
    if said.len() <= REFUSAL_BYTES_MAX {
        return status;
    }
    let end = said.floor_char_boundary(REFUSAL_BYTES_MAX);
    Status::new(status.code(), format!("{} ...", &said[..end]))
}

/// The stream that a question names.
fn stream_of(text: &str) -> Result<StreamId, Status> {
    text.parse().map_err(|error| Status::invalid_argument(format!("{error}")))
}

/// An error with its sources, as the answer.
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
