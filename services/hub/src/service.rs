//! The gRPC service: one stream per edge, decoded at the border.

use std::sync::Arc;
use std::time::Duration;

use headwater_event::NodeName;
use headwater_proto::replication as wire;
use headwater_proto::replication::replication_server::Replication;
use headwater_session::message::EdgeMessage;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::session::{Connection, OUTBOUND_MAX};
use crate::shared::Shared;

/// How long a connection may take to say hello (slowloris).
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Decoded messages waiting for the session; what lies behind waits in HTTP/2's own window.
const INBOUND_MAX: usize = 64;

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
    type SessionStream = ReceiverStream<Result<wire::HubMessage, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::EdgeMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (outbound, messages) = mpsc::channel(OUTBOUND_MAX);
        let shared = self.shared.clone();
        let stream = request.into_inner();
        tokio::spawn(async move {
            let (inbound, decoded) = mpsc::channel(INBOUND_MAX);
            let mut stream = stream;
            let hello = tokio::time::timeout(HELLO_WITHIN, next(&mut stream)).await;
            let (node, hello) = match hello.unwrap_or_else(|_| Some(Err(no_hello()))) {
                Some(Ok(message)) => match claimed_node(&message) {
                    Some(node) => (node, message),
                    None => {
                        let _ = outbound.send(Err(no_hello())).await;
                        return;
                    }
                },
                Some(Err(status)) => {
                    let _ = outbound.send(Err(status)).await;
                    return;
                }
                None => return,
            };
            // The channel is fresh and has room.
            let _ = inbound.send(Ok(hello)).await;
            let reading = read(stream, inbound);
            let serving = Connection::serve(shared, node, decoded, outbound);
            // The session decides when it is over; what the edge still says is then not read.
            tokio::pin!(reading);
            tokio::pin!(serving);
            tokio::select! {
                () = &mut serving => {}
                () = &mut reading => serving.await,
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }
}

/// On loopback without TLS, and only there, the hello says which node it is.
fn claimed_node(message: &EdgeMessage) -> Option<NodeName> {
    match message {
        EdgeMessage::Hello(hello) => Some(hello.identity.node.clone()),
        _ => None,
    }
}

fn no_hello() -> Status {
    Status::failed_precondition("a session begins with a hello within 5 s")
}

async fn read(
    mut stream: Streaming<wire::EdgeMessage>,
    inbound: mpsc::Sender<Result<EdgeMessage, Status>>,
) {
    while let Some(message) = next(&mut stream).await {
        let failed = message.is_err();
        if inbound.send(message).await.is_err() || failed {
            return;
        }
    }
}

/// The next message, checked; `None` at the end of the stream.
async fn next(stream: &mut Streaming<wire::EdgeMessage>) -> Option<Result<EdgeMessage, Status>> {
    match stream.message().await {
        Ok(Some(message)) => Some(EdgeMessage::try_from(message).map_err(|error| {
            Status::invalid_argument(format!("a message cannot be read: {error}"))
        })),
        Ok(None) => None,
        Err(status) => Some(Err(status)),
    }
}
