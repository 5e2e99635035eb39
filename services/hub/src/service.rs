//! The gRPC service: one stream per edge, decoded at the border.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, Map};
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_server::Replication;
use headwater_proto::wire::EdgeMessageError;
use headwater_proto::wire::{EdgeMessageDecoder, WireError};
use headwater_session::message::{EdgeMessage, HubMessage, Refusal, RefusalCode};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::metrics::{HelloEnd, SessionOver};
use crate::peer::Peer;
use crate::said::SaidReports;
use crate::session::Connection;
use crate::shared::Shared;

/// What comes from an edge, as the transport has it.
type Heard = Result<wire::EdgeMessage, Status>;

/// What goes to an edge.
pub(crate) type Said = Map<ReceiverStream<Box<ToSay>>, fn(Box<ToSay>) -> ToSay>;

type ToSay = Result<wire::HubMessage, Status>;

/// Serves edges.
pub(crate) struct Service {
    shared: Arc<Shared>,
}

impl Service {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

#[tonic::async_trait]
impl Replication for Service {
    type SessionStream = Said;

    async fn session(
        &self,
        request: Request<Streaming<wire::EdgeMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
        Ok(Response::new(converse(&self.shared, request.into_inner().boxed(), peer)))
    }
}

/// Takes up the conversation whose one side is `stream`; the other is returned.
pub(crate) fn converse(
    shared: &Arc<Shared>,
    mut stream: BoxStream<'static, Heard>,
    peer: Peer,
) -> Said {
    let (outbound, messages) = mpsc::channel(shared.limits.outbound_messages_max.max(1));
    let connections = shared.connections.clone();
    let shared = shared.clone();
    connections.spawn(async move {
        let hello = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            hello = tokio::time::timeout(shared.limits.hello_within, first(&mut stream)) => hello,
        };
        let hello = match hello.unwrap_or_else(|_| Some(Err(no_hello()))) {
            Some(Ok(EdgeMessage::Hello(hello))) => hello,
            Some(Ok(_)) => {
                shared.metrics.sessions.hello(HelloEnd::Missing);
                let _ = outbound.send(Box::new(Err(no_hello()))).await;
                return;
            }
            Some(Err(status)) => {
                shared.metrics.sessions.hello(HelloEnd::Missing);
                let _ = outbound.send(Box::new(Err(status))).await;
                return;
            }
            None => return,
        };
        peer.greet();
        let node = match peer.node(&hello.identity.node) {
            Ok(node) => node,
            Err(why) => {
                tracing::debug!(claims = %hello.identity.node, %why, "a hello is refused");
                let code = RefusalCode::Forbidden;
                let over = SessionOver::Refused(code);
                shared.metrics.sessions.hello(HelloEnd::Refused(over));
                let refusal = Refusal { code, message: why.to_string() };
                let _ = outbound.send(Box::new(Ok(HubMessage::Refusal(refusal).into()))).await;
                return;
            }
        };
        let id = shared.next_session();
        let mut said = SaidReports::new(shared.fold.engine().clone(), id);
        let mut decoder = EdgeMessageDecoder::default();
        // By reference: what a future takes over, this one would have room for as well.
        let mut heard =
            (&mut stream).map(|message| message.and_then(|m| hear(m, &mut decoder, &mut said)));
        Connection::serve(shared, id, node, peer.until(), hello, &mut heard, outbound).await;
    });
    ReceiverStream::new(messages).map(|message| *message)
}

fn no_hello() -> Status {
    Status::failed_precondition("a session begins with a hello, and soon")
}

/// The first message, checked: nothing was said yet that it could build on. `None` at the end of
/// the stream.
async fn first(stream: &mut BoxStream<'static, Heard>) -> Option<Result<EdgeMessage, Status>> {
    let message = stream.next().await?;
    Some(message.and_then(|message| message.try_into().map_err(unreadable)))
}

/// A message, made whole and checked.
fn hear(
    message: wire::EdgeMessage,
    decoder: &mut EdgeMessageDecoder,
    said: &mut SaidReports,
) -> Result<EdgeMessage, Status> {
    let broken = |error| {
        tracing::error!(%error, "what an edge says cannot be kept: its session ends");
        Status::unavailable("the hub's store failed")
    };
    let message = decoder.decode(message, said).map_err(|unheard| match unheard {
        EdgeMessageError::Wire(error) => unreadable(error),
        EdgeMessageError::Store(error) => broken(error),
    })?;
    said.heard().map_err(broken)?;
    Ok(message)
}

fn unreadable(error: WireError) -> Status {
    Status::invalid_argument(format!("a message cannot be read: {error}"))
}
