//! The messages of a session to its edge, which may have to wait, and its requests.
//!
//! A wait here blocks the session's next step. It ends with the dismissal of the session, and a
//! transfer slot that is granted meanwhile expires in time.

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use headwater_event::{NodeRequest, RequestVerb};
use headwater_proto::wire::HubFrame;
use headwater_session::SharedPush;
use headwater_session::message::{HubMessage, Push, Request, Response};
use tokio::time::sleep;
use tracing::Span;

use super::{SessionTask, dismissal, spans};
use crate::admission::Dismissal;
use crate::metrics::EndReason;

/// The longest wait for a response: longer than any session lives.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl SessionTask {
    /// Whether the queue of the socket has room for a message.
    pub(super) fn has_room(&self) -> bool {
        self.outbound.capacity() > 0
    }

    /// Sends a message, for which there is room.
    pub(super) fn send(&mut self, mut message: HubMessage) -> ControlFlow<EndReason> {
        // The spans end when the transport has the message.
        let _spans = self.spans(&mut message);
        self.send_in_spans(message)
    }

    /// Sends a message once there is room for it. Its spans include the wait.
    pub(super) async fn send_later(&mut self, mut message: HubMessage) -> ControlFlow<EndReason> {
        let _spans = self.spans(&mut message);
        self.wait_for_room().await?;
        self.send_in_spans(message)
    }

    /// Sends a push that other sessions send too, for which there is room. It is encoded once, unless it
    /// is traced: each node has a trace context of its own.
    pub(super) fn share(&mut self, shared: &SharedPush) -> ControlFlow<EndReason> {
        let push = shared.push();
        if is_traced(push) {
            return self.send(HubMessage::Push(push.clone()));
        }
        let encoded = shared.encoded(HubFrame::encode_push);
        self.counters.pushing(push, shared.bytes(), &self.hub.wall_clock);
        self.queue(HubFrame::Encoded(encoded))
    }

    /// Sends a push that other sessions send too, once there is room for it.
    pub(super) async fn share_later(&mut self, shared: &SharedPush) -> ControlFlow<EndReason> {
        let push = shared.push();
        if is_traced(push) {
            return self.send_later(HubMessage::Push(push.clone())).await;
        }
        self.wait_for_room().await?;
        self.share(shared)
    }

    /// Starts the spans of a message.
    fn spans(&self, message: &mut HubMessage) -> Vec<Span> {
        match message {
            HubMessage::Push(push) => spans::push(push, &self.node),
            _ => Vec::new(),
        }
    }

    fn send_in_spans(&mut self, message: HubMessage) -> ControlFlow<EndReason> {
        self.counters.sending(&message, &self.hub.wall_clock);
        self.queue(message.into())
    }

    /// Queues a message for the socket; there is room.
    fn queue(&self, frame: HubFrame) -> ControlFlow<EndReason> {
        // No other task sends, so the room is still there unless the edge has left.
        match self.outbound.try_send(Box::new(Ok(frame))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(EndReason::Left),
        }
    }

    /// Waits for room. A session whose edge takes nothing for too long is dropped.
    pub(super) async fn wait_for_room(&mut self) -> ControlFlow<EndReason> {
        let mut room = pin!(self.outbound.reserve());
        let mut too_long = pin!(sleep(self.hub.limits.outbound_within));
        loop {
            tokio::select! {
                biased;
                room = &mut room => return match room {
                    Ok(_) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(EndReason::Left),
                },
                dismissal = dismissal(&self.dismissal) => {
                    return ControlFlow::Break(self.dropped(&dismissal));
                }
                () = self.transfer_slot.granted() => self.changed.notify_one(),
                () = &mut too_long => {
                    tracing::warn!(node = %self.node, "session dropped: the edge takes no bytes");
                    return ControlFlow::Break(EndReason::Slow);
                }
            }
        }
    }

    /// Dispatches a request of the node in a task of its own.
    pub(super) fn request(&mut self, request: Request) {
        let Request { id, timeout_ms, verb, key, body } = request;
        let timeout = Duration::from_millis(timeout_ms).min(REQUEST_TIMEOUT_MAX);
        let (node, verb) = (self.node.clone(), verb.unwrap_or(RequestVerb::Get));
        let request = NodeRequest { node, timeout, verb, key, body };
        let hub = self.hub.clone();
        self.requests.spawn(async move {
            let outcome = hub.requests.dispatch(request).await;
            Response { id, outcome }
        });
    }

    /// The session ends while it waits: there is no room for a last message.
    fn dropped(&self, dismissal: &Dismissal) -> EndReason {
        tracing::info!(node = %self.node, ?dismissal, "session dropped");
        match dismissal {
            Dismissal::Refused(refusal) => EndReason::Refused(refusal.code),
            Dismissal::Leaving => EndReason::Moved,
        }
    }
}

/// Whether a change of a push has a trace context.
fn is_traced(push: &Push) -> bool {
    push.changes.iter().any(|pushed| pushed.traceparent.is_some())
}
