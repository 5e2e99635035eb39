//! The start of a session: one call per edge, decoded at the border.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, Map};
use headwater_proto::replication as wire;
use headwater_proto::wire::{EdgeMessageDecoder, EdgeMessageError, HubFrame, WireError};
use headwater_session::message::{EdgeMessage, Hello, HubMessage, Refusal, RefusalCode};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::Peer;
use crate::metrics::{EndReason, HelloOutcome};
use crate::session::{Arrival, SessionDependencies, SessionTask};
use crate::upstream::ReportBases;

/// A message of an edge, as the transport delivers it.
pub(crate) type IncomingMessage = Result<wire::EdgeMessage, Status>;

/// A message to an edge, as the transport takes it.
pub(crate) type OutgoingMessage = Result<HubFrame, Status>;

/// The messages to an edge.
pub(crate) type OutgoingStream =
    Map<ReceiverStream<Box<OutgoingMessage>>, fn(Box<OutgoingMessage>) -> OutgoingMessage>;

/// Why a call ends before its session begins.
enum NoSession {
    /// The hub stops, or the edge has ended the call.
    Ended,
    /// No hello came.
    NoHello(Status),
    /// The peer is no node.
    Forbidden(Refusal),
}

/// Runs a session in a task of its own. `messages` come from the edge; the result goes to it.
pub(crate) fn open_session(
    hub: &Arc<SessionDependencies>,
    mut messages: BoxStream<'static, IncomingMessage>,
    peer: Peer,
) -> OutgoingStream {
    let (outbound, outgoing) = mpsc::channel(hub.limits.outbound_messages_max.max(1));
    let connections = hub.connections.clone();
    let hub = hub.clone();
    connections.spawn(async move {
        let arrival = match arrival(&hub, &mut messages, &peer).await {
            Ok(arrival) => arrival,
            Err(NoSession::Ended) => return,
            Err(NoSession::NoHello(status)) => {
                hub.metrics.sessions.hello(HelloOutcome::Missing);
                let _ = outbound.send(Box::new(Err(status))).await;
                return;
            }
            Err(NoSession::Forbidden(refusal)) => {
                let reason = EndReason::Refused(refusal.code);
                hub.metrics.sessions.hello(HelloOutcome::Refused(reason));
                let _ = outbound.send(Box::new(Ok(HubMessage::Refusal(refusal).into()))).await;
                return;
            }
        };
        let mut bases = ReportBases::new(hub.fold.engine().clone(), arrival.session);
        let mut decoder = EdgeMessageDecoder::default();
        // By reference: a future that took the stream over would reserve its size twice.
        let mut messages = (&mut messages)
            .map(|message| message.and_then(|wire| decode(wire, &mut decoder, &mut bases)));
        SessionTask::serve(hub, arrival, &mut messages, outbound).await;
    });
    ReceiverStream::new(outgoing).map(|message| *message)
}

/// Waits for the hello, and looks up the node that may send it.
async fn arrival(
    hub: &SessionDependencies,
    messages: &mut BoxStream<'static, IncomingMessage>,
    peer: &Peer,
) -> Result<Box<Arrival>, NoSession> {
    let first = tokio::select! {
        biased;
        () = hub.stop.cancelled() => return Err(NoSession::Ended),
        first = timeout(hub.limits.hello_within, messages.next()) => first,
    };
    let hello = first.map_err(|_| NoSession::NoHello(no_hello()))?.ok_or(NoSession::Ended)?;
    let hello = hello.and_then(hello_of).map_err(NoSession::NoHello)?;
    peer.set_hello_received();
    let node = peer.node(&hello.identity.node).map_err(|reason| {
        tracing::debug!(claims = %hello.identity.node, %reason, "a hello is refused");
        let message = reason.to_string();
        NoSession::Forbidden(Refusal { code: RefusalCode::Forbidden, message })
    })?;
    let (session, valid_until, trust) = (hub.sessions.next_id(), peer.valid_until(), peer.trust());
    // Boxed: each function on the way of an arrival would reserve its size, for as long as the session lasts.
    Ok(Box::new(Arrival { session, node, valid_until, trust, hello }))
}

/// The hello in a first message, which has no earlier message to build on.
fn hello_of(message: wire::EdgeMessage) -> Result<Hello, Status> {
    match message.try_into().map_err(unreadable)? {
        EdgeMessage::Hello(hello) => Ok(hello),
        _ => Err(no_hello()),
    }
}

fn no_hello() -> Status {
    Status::failed_precondition("the edge must begin its session with a hello, and in time")
}

/// A message with its patches applied, checked.
fn decode(
    message: wire::EdgeMessage,
    decoder: &mut EdgeMessageDecoder,
    bases: &mut ReportBases,
) -> Result<EdgeMessage, Status> {
    let store_failed = |error| {
        tracing::error!(%error, "session ends: the hub cannot keep the report bases");
        Status::unavailable("the hub's store failed")
    };
    let message = decoder.decode(message, bases).map_err(|error| match error {
        EdgeMessageError::Wire(error) => unreadable(error),
        EdgeMessageError::Store(error) => store_failed(error),
    })?;
    bases.commit().map_err(store_failed)?;
    Ok(message)
}

fn unreadable(error: WireError) -> Status {
    Status::invalid_argument(format!("the hub cannot read a message: {error}"))
}
