//! The controller's end: receives the streams of hubs. A hub moves when another controller claims the
//! log, so a standby receives none.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_event::presence::PRESENCE_SILENCE_MAX;
use headwater_event::{PresenceUpdate, RequestError, RequestVerb};
use headwater_identity::{Acceptor, PeerTrust, REFRESH_INTERVAL};
use headwater_proto::cloud::controller_lane_server::{ControllerLane, ControllerLaneServer};
use headwater_proto::cloud::controller_message::Message as ControllerEvent;
use headwater_proto::cloud::hub_message::Message as HubEvent;
use headwater_proto::cloud::{ControllerMessage, HubHello, HubMessage, Welcome};
use headwater_proto::wire::{Ask, WireError, verbs_to_wire};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::answers::{AskHandler, HubAsks, NodeAsks};
use crate::socket::{self, Peer};
use crate::{MESSAGE_BYTES_MAX, PROTOCOL, UpdateHandler};

/// Connections at once: a cloud has tens of hubs, and each has one.
pub const LANES_MAX: usize = 1_024;

/// How long a hub may take to send its hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of a hub's name: as long as a host's name.
const HUB_NAME_BYTES_MAX: usize = 253;

/// Messages that wait for the transport: the welcome, then an answer. Further answers wait in their
/// tasks.
const OUTGOING_MAX: usize = 1;

/// Streams on one connection; a hub opens one.
const STREAMS_MAX: u32 = 4;

/// The most bytes of request headers; a hub sends a few hundred.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// Receives the presence of the nodes of hubs.
pub trait PresenceIntake: Send + Sync {
    /// The stream of the hub of this name begins.
    fn connect(&self, hub: &str) -> UpdateHandler;
}

/// The controller's end of the lane, to be run.
pub struct LaneServer {
    /// Where hubs connect.
    pub listener: TcpListener,
    /// The controller's certificate; `None`: without TLS, on loopback.
    pub tls: Option<Acceptor>,
    /// Receives the presence that hubs send.
    pub presence: Arc<dyn PresenceIntake>,
    /// Answers what nodes ask.
    pub asks: Arc<dyn AskHandler>,
}

struct LaneService {
    presence: Arc<dyn PresenceIntake>,
    asks: Arc<dyn AskHandler>,
    /// The asks of each node in flight, of all hubs.
    nodes: NodeAsks,
    /// Ends every stream.
    stop: CancellationToken,
}

impl LaneServer {
    /// Serves hubs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let Self { listener, tls, presence, asks } = self;
        let nodes = NodeAsks::default();
        let service = LaneService { presence, asks, nodes, stop: stop.clone() };
        let service = ControllerLaneServer::new(service)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let served = Server::builder()
            .http2_keepalive_interval(Some(PRESENCE_SILENCE_MAX))
            .http2_keepalive_timeout(Some(HELLO_WITHIN))
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .max_concurrent_streams(STREAMS_MAX)
            .add_service(service)
            .serve_with_incoming(socket::incoming(listener, tls.clone(), LANES_MAX));
        tokio::select! {
            () = stop.cancelled() => {}
            served = served => if let Err(error) = served {
                tracing::error!(%error, "the controller no longer listens for hubs");
            },
            never = refresh(tls) => match never {},
        }
    }
}

/// Reads the certificate files while no hub connects, so that new CAs reach the live streams.
async fn refresh(tls: Option<Acceptor>) -> Infallible {
    let Some(tls) = tls else { return std::future::pending().await };
    loop {
        tokio::time::sleep(REFRESH_INTERVAL).await;
        tls.refresh();
    }
}

#[tonic::async_trait]
impl ControllerLane for LaneService {
    type AttachStream = BoxStream<'static, Result<ControllerMessage, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<HubMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let Some(Peer(peer)) = request.extensions().get::<Peer>() else {
            return Err(Status::internal("the connection has no peer"));
        };
        let trust = peer.clone().map_err(|why| Status::permission_denied(&*why))?;
        let mut messages = request.into_inner();
        let hello = timeout(HELLO_WITHIN, hello(&mut messages)).await;
        let hub = hello.map_err(|_| Status::deadline_exceeded("the hello comes too late"))??;
        let (outgoing, sent) = mpsc::channel(OUTGOING_MAX);
        let welcome = ControllerEvent::Welcome(Welcome {
            protocol: PROTOCOL,
            verbs: verbs_to_wire(&RequestVerb::ALL),
        });
        let _ = outgoing.send(Ok(ControllerMessage { message: Some(welcome) })).await;
        tracing::info!(%hub, "a hub sends the presence of its nodes");
        let receiver = self.presence.connect(&hub);
        let asks = HubAsks::new(self.asks.clone(), self.nodes.clone(), outgoing.clone());
        let stop = self.stop.clone();
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = receive(messages, receiver, asks, trust) => ended,
                () = stop.cancelled() => Status::unavailable("the controller stops"),
                () = outgoing.closed() => Status::cancelled("the hub has disconnected"),
            };
            tracing::info!(%hub, reason = ended.message(), "the presence of a hub's nodes ends");
            let _ = outgoing.send(Err(ended)).await;
        });
        Ok(Response::new(ReceiverStream::new(sent).boxed()))
    }
}

/// The name of the hub in its hello.
async fn hello(messages: &mut Streaming<HubMessage>) -> Result<String, Status> {
    let first = messages.message().await?.and_then(|message| message.message);
    let Some(HubEvent::Hello(HubHello { protocol, hub })) = first else {
        return Err(Status::invalid_argument("the first message is no hello"));
    };
    if protocol != PROTOCOL {
        let what = format!("this controller speaks protocol {PROTOCOL}, the hub {protocol}");
        return Err(Status::failed_precondition(what));
    }
    if hub.is_empty() || hub.len() > HUB_NAME_BYTES_MAX {
        let what =
            format!("the name of the hub has {} bytes, want 1 to {HUB_NAME_BYTES_MAX}", hub.len());
        return Err(Status::invalid_argument(what));
    }
    Ok(hub)
}

/// Receives updates and asks until the stream ends, is silent for too long, or its hub is not trusted any
/// more; returns why it ended. A hub sends a beat every few seconds.
async fn receive(
    mut messages: Streaming<HubMessage>,
    mut receiver: UpdateHandler,
    mut asks: HubAsks,
    mut trust: Option<PeerTrust>,
) -> Status {
    loop {
        if let Err(distrust) = trust.as_mut().map_or(Ok(()), PeerTrust::check) {
            tracing::warn!(error = &distrust as &dyn std::error::Error, "the CAs changed");
            return Status::permission_denied(
                "the controller's CA changed, and it did not issue the hub's certificate: issue a \
                 new one",
            );
        }
        let message = match timeout(PRESENCE_SILENCE_MAX, messages.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Status::cancelled("the hub has closed the stream"),
            Ok(Err(status)) => return status,
            Err(_) => return Status::deadline_exceeded("the hub is silent"),
        };
        if let Err(error) = take(message, &mut receiver, &mut asks) {
            return Status::invalid_argument(error.to_string());
        }
    }
}

/// Takes one message of a hub.
fn take(
    message: HubMessage,
    receiver: &mut UpdateHandler,
    asks: &mut HubAsks,
) -> Result<(), WireError> {
    match message.message {
        Some(HubEvent::Ask(ask)) => {
            let id = ask.id;
            match Ask::try_from(ask) {
                Ok(ask) => asks.begin(ask),
                // It is of one node, and the stream is of all nodes of the hub.
                Err(error) => asks.refuse(id, RequestError::Invalid(error.to_string())),
            }
        }
        // A later version may send more; this one has not announced that it takes it.
        None => {}
        update => receiver(PresenceUpdate::try_from(HubMessage { message: update })?),
    }
    Ok(())
}
