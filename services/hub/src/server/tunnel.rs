//! The gRPC service of streams: an edge opens the stream that a client of the hub waits for.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use headwater_event::NodeName;
use headwater_identity::PeerTrust;
use headwater_proto::replication as wire;
use headwater_proto::replication::tunnel_server::Tunnel;
use headwater_session::message::DialId;
use headwater_tunnel::{End, FRAMES_MAX, frame, relay};
use tokio::io::duplex;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::Peer;
use crate::session::SessionDependencies;
use crate::tunnels::{CLIENT_BYTES, ClaimError, StreamRefusal};

/// The service of streams of a hub.
pub(super) struct TunnelEndpoint {
    hub: Arc<SessionDependencies>,
}

/// The frames to an edge.
type Outgoing = futures::stream::Map<
    ReceiverStream<wire::TunnelFrame>,
    fn(wire::TunnelFrame) -> Result<wire::TunnelFrame, Status>,
>;

impl TunnelEndpoint {
    pub(super) fn new(hub: Arc<SessionDependencies>) -> Self {
        Self { hub }
    }
}

#[tonic::async_trait]
impl Tunnel for TunnelEndpoint {
    type StreamStream = Outgoing;

    async fn stream(
        &self,
        request: Request<Streaming<wire::TunnelFrame>>,
    ) -> Result<Response<Outgoing>, Status> {
        let hub = &self.hub;
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        let mut incoming = request.into_inner();
        let first = timeout(hub.limits.hello_within, incoming.next()).await;
        let opened = first.ok().flatten().transpose()?.and_then(frame::opened);
        let opened =
            opened.ok_or_else(|| Status::failed_precondition("a stream begins with open"))?;
        peer.set_hello_received();
        let claims: NodeName = opened
            .node
            .try_into()
            .map_err(|error| Status::invalid_argument(format!("TunnelOpen.node: {error}")))?;
        let id = <[u8; 16]>::try_from(&*opened.id)
            .map_err(|_| Status::invalid_argument("TunnelOpen.id: not 16 bytes"))?;
        let node = peer.node(&claims).map_err(|reason| Status::permission_denied(&*reason))?;
        let reply = hub.dials.claim(DialId(id), &node).map_err(|error| {
            tracing::debug!(%node, %error, "a stream is refused");
            match error {
                ClaimError::Unknown => Status::not_found(error.to_string()),
                ClaimError::OtherNode => Status::permission_denied(error.to_string()),
            }
        })?;

        let (outgoing, frames) = mpsc::channel(FRAMES_MAX);
        let response = Response::new(ReceiverStream::new(frames).map(Ok as fn(_) -> _));
        if let Some(wire::TunnelRefusal { reason, is_busy }) = opened.refusal {
            let _ = reply.send(Err(StreamRefusal { reason, is_busy }));
            return Ok(response);
        }
        let (client, stream) = duplex(CLIENT_BYTES);
        if reply.send(Ok(client)).is_err() {
            return Err(Status::not_found(ClaimError::Unknown.to_string()));
        }
        let stop = hub.stop.clone();
        hub.connections.spawn(async move {
            let relaying = pin!(relay(End::Hub, stream, outgoing, incoming, None));
            tokio::select! {
                ended = relaying => match ended {
                    Ok(()) => tracing::debug!(%node, "a stream has ended"),
                    Err(error) => tracing::debug!(%node, %error, "a stream broke off"),
                },
                () = stop.cancelled() => {}
                () = untrusted(peer.valid_until(), peer.trust()) => {
                    tracing::warn!(%node, "a stream ends: the node's certificate is no longer valid");
                }
            }
        });
        Ok(response)
    }
}

/// Waits until the certificate of a peer has expired, or its CA is gone.
async fn untrusted(valid_until: Option<Instant>, trust: Option<PeerTrust>) {
    let expired = async {
        match valid_until {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    let lost = async {
        match trust {
            Some(mut trust) => drop(trust.lost().await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = expired => {}
        () = lost => {}
    }
}
