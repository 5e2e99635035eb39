//! The messages of one connection that wait to be sent to the hub, in order.

use std::collections::VecDeque;

use headwater_proto::replication;
use headwater_proto::wire::EdgeMessageEncoder;
use headwater_session::message::EdgeMessage;

/// Messages that the link has not taken. The session bounds reports and requests. A cumulative
/// message replaces the one before it, so a slow hub does not lengthen the queue.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    waiting: VecDeque<EdgeMessage>,
    encoder: EdgeMessageEncoder,
}

impl SendQueue {
    /// Queues a message.
    pub(crate) fn push(&mut self, message: EdgeMessage) {
        match &message {
            // The newer acknowledgement may be sent earlier: later messages may depend on it.
            EdgeMessage::Ack(_) => {
                let is_ack = |waiting: &&mut EdgeMessage| matches!(waiting, EdgeMessage::Ack(_));
                if let Some(waiting) = self.waiting.iter_mut().find(is_ack) {
                    *waiting = message;
                    return;
                }
            }
            // A heartbeat follows the acknowledgement that covers its positions.
            EdgeMessage::Heartbeat(_) => {
                self.waiting.retain(|waiting| !matches!(waiting, EdgeMessage::Heartbeat(_)));
            }
            _ => {}
        }
        self.waiting.push_back(message);
    }

    /// Whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the next message, encoded for the wire.
    pub(crate) fn pop(&mut self) -> Option<replication::EdgeMessage> {
        self.waiting.pop_front().map(|message| self.encoder.encode(message))
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
    fn only_the_newest_of_a_cumulative_kind_is_sent_and_all_others() {
        let mut queue = SendQueue::default();
        for message in [heartbeat(1), ack(1), reports(), ack(2), heartbeat(2), reports(), ack(3)] {
            queue.push(message);
        }
        let sent: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(sent, [ack(3), reports(), heartbeat(2), reports()].map(Into::into));
    }
}
