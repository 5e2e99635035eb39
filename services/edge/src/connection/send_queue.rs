//! What waits to be said to the hub, in order.

use std::collections::VecDeque;

use headwater_proto::replication;
use headwater_proto::wire::EdgeMessageEncoder;
use headwater_session::message::EdgeMessage;

/// The messages of one connection that its socket has not taken. The session bounds reports and
/// requests; what is cumulative replaces its forerunner, so a hub that reads slowly makes no
/// queue of it.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    waiting: VecDeque<EdgeMessage>,
    encoder: EdgeMessageEncoder,
}

impl SendQueue {
    /// Adds a message.
    pub(crate) fn push(&mut self, message: EdgeMessage) {
        match &message {
            // Said earlier, it is as true: what stands behind it may build on it.
            EdgeMessage::Ack(_) => {
                let is_ack = |waiting: &&mut EdgeMessage| matches!(waiting, EdgeMessage::Ack(_));
                if let Some(waiting) = self.waiting.iter_mut().find(is_ack) {
                    *waiting = message;
                    return;
                }
            }
            // It goes behind the acknowledgement that covers its positions.
            EdgeMessage::Heartbeat(_) => {
                self.waiting.retain(|waiting| !matches!(waiting, EdgeMessage::Heartbeat(_)));
            }
            _ => {}
        }
        self.waiting.push_back(message);
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the next message, as the socket is to have it.
    pub(crate) fn pop(&mut self) -> Option<replication::EdgeMessage> {
        self.waiting.pop_front().map(|message| self.encoder.encode(message))
    }

    /// Forgets everything: it belonged to another connection.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use headwater_session::message::{Ack, EdgeHeartbeat, Reports};

    use super::*;

    fn ack(received_bytes: u64) -> EdgeMessage {
        EdgeMessage::Ack(Ack { received_bytes, progress: Vec::new() })
    }

    fn heartbeat(outbox_depth: u64) -> EdgeMessage {
        EdgeMessage::Heartbeat(EdgeHeartbeat { outbox_depth, ..EdgeHeartbeat::default() })
    }

    fn reports() -> EdgeMessage {
        EdgeMessage::Reports(Reports { after: None, reports: Vec::new() })
    }

    #[test]
    fn the_newest_of_what_is_cumulative_is_said_and_all_of_the_rest() {
        let mut outgoing = SendQueue::default();
        for message in [heartbeat(1), ack(1), reports(), ack(2), heartbeat(2), reports(), ack(3)] {
            outgoing.push(message);
        }
        let said: Vec<_> = std::iter::from_fn(|| outgoing.pop()).collect();
        assert_eq!(said, [ack(3), reports(), heartbeat(2), reports()].map(Into::into));
    }
}
