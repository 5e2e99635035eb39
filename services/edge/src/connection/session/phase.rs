//! The phase of the connection: the one value that holds what belongs to it.

use std::future::pending;

use futures::future::BoxFuture;
use headwater_session::message::HubMessage;
use tokio::time::Instant;

use crate::connection::link::{Link, LinkError};
use crate::connection::send_queue::SendQueue;

/// See the drawing in [`super`].
pub(super) enum Phase {
    /// There is no connection before `until`.
    Waiting {
        /// When the next hub is dialed.
        until: Instant,
    },
    /// A hub is being dialed.
    Dialing(BoxFuture<'static, Result<Link, LinkError>>),
    /// A hub has accepted the connection.
    Up {
        /// The connection.
        link: Link,
        /// When the hub accepted it.
        since: Instant,
        /// What the link has not taken yet.
        send_queue: Box<SendQueue>,
    },
    /// The outbox thread raises the boot number. There is no connection before that, nor before
    /// `until`.
    Raising {
        /// The earliest moment of the next dial.
        until: Instant,
    },
    /// The operator cut the link.
    Cut {
        /// Whether the boot number is still being raised.
        is_raising: bool,
    },
    /// Another machine uses this identity. A person must act.
    Fenced,
    /// No hub is configured.
    NoHub,
}

/// What the connection brought.
pub(super) enum LinkEvent {
    /// The wait is over: the next hub is due.
    Due,
    /// A hub accepted the connection, or did not.
    Dialed(Result<Link, LinkError>),
    /// The hub sent a message, or the connection ended with an error.
    Received(Result<HubMessage, LinkError>),
    /// The link took a message.
    Sent,
    /// The connection ended without an error.
    Closed,
}

impl Phase {
    /// Waits for the next event of this phase; forever, where the phase has none. Dropping the
    /// future loses nothing. While `may_receive` is false, the hub is not read.
    pub(super) async fn next_event(&mut self, may_receive: bool) -> LinkEvent {
        match self {
            Self::Waiting { until } => {
                tokio::time::sleep_until(*until).await;
                LinkEvent::Due
            }
            Self::Dialing(dial) => LinkEvent::Dialed(dial.await),
            Self::Up { link, send_queue, .. } => exchange(link, send_queue, may_receive).await,
            Self::Raising { .. } | Self::Cut { .. } | Self::Fenced | Self::NoHub => pending().await,
        }
    }

    /// Adds a message to the connection's queue. Without a connection the message is void.
    pub(super) fn send(&mut self, message: headwater_session::message::EdgeMessage) {
        if let Self::Up { send_queue, .. } = self {
            send_queue.push(message);
        }
    }

    /// The link is cut.
    pub(super) fn cut(&mut self) {
        let is_raising = matches!(self, Self::Raising { .. } | Self::Cut { is_raising: true });
        *self = Self::Cut { is_raising };
    }

    /// The link is restored: a phase that waits for a person ends now.
    pub(super) fn restore(&mut self) {
        let until = Instant::now();
        match self {
            Self::Cut { is_raising: true } => *self = Self::Raising { until },
            Self::Cut { is_raising: false } | Self::Fenced | Self::NoHub => {
                *self = Self::Waiting { until };
            }
            Self::Waiting { .. } | Self::Dialing(_) | Self::Up { .. } | Self::Raising { .. } => {}
        }
    }

    /// The boot number is raised.
    pub(super) fn raised(&mut self) {
        match self {
            Self::Raising { until } => *self = Self::Waiting { until: *until },
            Self::Cut { is_raising } => *is_raising = false,
            _ => {}
        }
    }
}

/// Sends what is queued, else receives: the queue is bounded, what a hub sends is not.
async fn exchange(link: &mut Link, queue: &mut SendQueue, may_receive: bool) -> LinkEvent {
    let received = |message: Option<_>| message.map_or(LinkEvent::Closed, LinkEvent::Received);
    let has_queued = !queue.is_empty();
    tokio::select! {
        biased;
        room = link.outgoing.reserve(), if has_queued => match room {
            Ok(permit) => {
                if let Some(message) = queue.pop() {
                    permit.send(message);
                }
                LinkEvent::Sent
            }
            // The connection has ended; its reader has the reason.
            Err(_) => received(link.incoming.recv().await),
        },
        message = link.incoming.recv(), if may_receive => received(message),
        () = pending(), if !may_receive && !has_queued => LinkEvent::Sent,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use headwater_event::StreamId;
    use headwater_proto::replication;
    use headwater_session::message::{Ack, EdgeMessage, ParkNotice};
    use tokio::sync::mpsc;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    type Outgoing = mpsc::Receiver<replication::EdgeMessage>;

    fn up() -> (Phase, mpsc::Sender<Result<HubMessage, LinkError>>, Outgoing) {
        let (outgoing, sent) = mpsc::channel(1);
        let (hub, incoming) = mpsc::channel(1);
        let reader = AbortOnDropHandle::new(tokio::spawn(pending()));
        let link = Link::new(outgoing, incoming, reader);
        (Phase::Up { link, since: Instant::now(), send_queue: Box::default() }, hub, sent)
    }

    fn message() -> HubMessage {
        HubMessage::ParkNotice(ParkNotice { stream: StreamId::Cluster, reason: String::new() })
    }

    fn ack() -> EdgeMessage {
        EdgeMessage::Ack(Ack { received_bytes: 1, progress: Vec::new() })
    }

    #[tokio::test]
    async fn a_hub_is_not_read_while_a_push_waits() {
        let (mut phase, hub, _sent) = up();
        hub.send(Ok(message())).await.expect("room");
        assert!(phase.next_event(false).now_or_never().is_none());
        assert!(matches!(phase.next_event(true).await, LinkEvent::Received(Ok(_))));
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_seen_though_a_message_is_queued() {
        let (mut phase, hub, sent) = up();
        phase.send(ack());
        drop(sent);
        drop(hub);
        assert!(matches!(phase.next_event(false).await, LinkEvent::Closed));
    }

    #[tokio::test]
    async fn a_queued_message_is_sent_before_the_hub_is_read() {
        let (mut phase, hub, mut sent) = up();
        hub.send(Ok(message())).await.expect("room");
        phase.send(ack());
        assert!(matches!(phase.next_event(true).await, LinkEvent::Sent));
        assert_eq!(sent.recv().await, Some(ack().into()));
    }

    #[test]
    fn a_cut_link_stays_cut_until_it_is_restored_whatever_the_identity_does() {
        let until = Instant::now() + Duration::from_secs(9);
        let mut phase = Phase::Raising { until };
        phase.cut();
        phase.cut();
        assert!(matches!(phase, Phase::Cut { is_raising: true }));
        phase.raised();
        assert!(matches!(phase, Phase::Cut { is_raising: false }));
        phase.restore();
        assert!(matches!(phase, Phase::Waiting { .. }));

        let mut phase = Phase::Cut { is_raising: true };
        phase.restore();
        assert!(matches!(phase, Phase::Raising { .. }), "no hub before the identity is raised");
        phase.raised();
        assert!(matches!(phase, Phase::Waiting { .. }));
    }

    #[test]
    fn a_raised_identity_still_waits_for_its_moment() {
        let until = Instant::now() + Duration::from_secs(9);
        let mut phase = Phase::Raising { until };
        phase.restore();
        phase.raised();
        assert!(matches!(phase, Phase::Waiting { until: found } if found == until));
    }

    #[test]
    fn a_fenced_edge_dials_only_when_a_person_restores_the_link() {
        let mut phase = Phase::Fenced;
        phase.raised();
        assert!(matches!(phase, Phase::Fenced));
        phase.restore();
        assert!(matches!(phase, Phase::Waiting { .. }));
    }
}
