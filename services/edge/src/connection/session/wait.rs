//! What the session's task waits for. Every wait may be given up halfway and begun again.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use futures::future::BoxFuture;
use headwater_session::message::HubMessage;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::SessionCommand;
use crate::connection::link::{Link, LinkError};
use crate::replica::{ReplicaCommand, ReplicaEvent};
use crate::upstream::{UpstreamCommand, UpstreamEvent};

/// Where the connection is.
pub(super) enum Phase {
    /// There is none until then.
    Waiting(Instant),
    /// A hub is being asked for one.
    Dialing(BoxFuture<'static, Result<Link, LinkError>>),
    /// There is one.
    Up {
        /// It.
        link: Link,
        /// How long there has been.
        since: Instant,
    },
    /// There is none until something else happens.
    Held,
}

/// What the one wait brought.
pub(super) enum SessionEvent {
    /// Something was handed on.
    Nothing,
    /// The replica said this.
    Answered(ReplicaEvent),
    /// Upstream said this.
    Upstream(UpstreamEvent),
    /// Somebody asks this.
    Asked(SessionCommand),
    /// A second has gone by.
    Tick,
    /// It is time for a connection.
    WaitOver,
    /// A hub accepted one, or did not.
    Dialed(Result<Link, LinkError>),
    /// The hub said this, or no more.
    Heard(Result<HubMessage, LinkError>),
    /// The hub takes a message.
    Writable,
    /// The connection ended without a word.
    Gone,
}

/// A command for the replica, and how much of the intake it takes.
pub(super) struct ToReplica {
    pub(super) command: ReplicaCommand,
    pub(super) units: u32,
}

/// What comes of the present phase.
pub(super) async fn linked(phase: &mut Phase, may_read: bool, has_outgoing: bool) -> SessionEvent {
    match phase {
        Phase::Waiting(until) => {
            tokio::time::sleep_until(*until).await;
            SessionEvent::WaitOver
        }
        Phase::Dialing(dial) => SessionEvent::Dialed(dial.await),
        // What is said is bounded, what is heard is not.
        Phase::Up { link, .. } => tokio::select! {
            biased;
            room = link.outgoing.reserve(), if has_outgoing => match room {
                Ok(_) => SessionEvent::Writable,
                // The connection has ended, and its reader says why.
                Err(_) => link.incoming.recv().await.map_or(SessionEvent::Gone, SessionEvent::Heard),
            },
            heard = link.incoming.recv(), if may_read => heard.map_or(SessionEvent::Gone, SessionEvent::Heard),
            () = pending(), if !may_read && !has_outgoing => SessionEvent::Nothing,
        },
        Phase::Held => pending().await,
    }
}

/// Hands one command to the replica; false: it is gone.
pub(super) async fn to_replica(
    waiting: &mut VecDeque<ToReplica>,
    intake: &Arc<Semaphore>,
    replica: &mpsc::Sender<ReplicaCommand>,
) -> bool {
    let Some(units) = waiting.front().map(|next| next.units) else { return pending().await };
    let room = match units {
        0 => None,
        units => Arc::clone(intake).acquire_many_owned(units).await.ok(),
    };
    let Ok(permit) = replica.reserve().await else { return false };
    match waiting.pop_front().map(|next| next.command) {
        Some(ReplicaCommand::Apply { push, .. }) => {
            permit.send(ReplicaCommand::Apply { push, room });
        }
        Some(command) => permit.send(command),
        None => {}
    }
    true
}

/// Hands one command to upstream; false: it is gone.
pub(super) async fn to_upstream(
    waiting: &mut VecDeque<UpstreamCommand>,
    upstream: &mpsc::Sender<UpstreamCommand>,
) -> bool {
    if waiting.is_empty() {
        return pending().await;
    }
    let Ok(permit) = upstream.reserve().await else { return false };
    if let Some(command) = waiting.pop_front() {
        permit.send(command);
    }
    true
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use headwater_event::{Checkpoint, LogId, RemovalRuns, Seq, StateHash, StreamId, WriterEpoch};
    use headwater_proto::replication;
    use headwater_session::message::{ParkNotice, Push, PushMode};
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    fn link() -> (Phase, mpsc::Sender<Result<HubMessage, LinkError>>, Outgoing) {
        let (outgoing, said) = mpsc::channel(1);
        let (heard, incoming) = mpsc::channel(1);
        let reader = AbortOnDropHandle::new(tokio::spawn(pending()));
        let link = Link::new(outgoing, incoming, reader);
        (Phase::Up { link, since: Instant::now() }, heard, said)
    }

    type Outgoing = mpsc::Receiver<replication::EdgeMessage>;

    fn message() -> HubMessage {
        HubMessage::ParkNotice(ParkNotice { stream: StreamId::Cluster, reason: String::new() })
    }

    #[tokio::test]
    async fn a_hub_is_not_read_while_a_push_waits() {
        let (mut phase, heard, _said) = link();
        heard.send(Ok(message())).await.expect("room");
        assert!(linked(&mut phase, false, false).now_or_never().is_none());
        assert!(matches!(linked(&mut phase, true, false).await, SessionEvent::Heard(Ok(_))));
    }

    #[tokio::test]
    async fn an_end_is_heard_though_something_waits_to_be_said() {
        let (mut phase, heard, said) = link();
        drop(said);
        drop(heard);
        assert!(matches!(linked(&mut phase, false, true).await, SessionEvent::Gone));
    }

    #[tokio::test]
    async fn the_intake_is_bounded_by_what_the_replica_has_not_folded() {
        let intake = Arc::new(Semaphore::new(2));
        let (sender, mut replica) = mpsc::channel(9);
        let push = Push {
            stream: StreamId::Cluster,
            mode: PushMode::Tail,
            from: Seq(1),
            to: Checkpoint {
                log_id: LogId { number: 1, uuid: uuid::Uuid::nil() },
                epoch: WriterEpoch(1),
                seq: Seq(2),
            },
            gone: RemovalRuns::default(),
            changes: Vec::new(),
            hash: StateHash::EMPTY,
            part: 0,
            last_part: true,
        };
        let apply = || ToReplica {
            command: ReplicaCommand::Apply { push: push.clone().into(), room: None },
            units: 2,
        };
        let mut waiting = VecDeque::from([apply(), apply()]);
        assert!(to_replica(&mut waiting, &intake, &sender).await);
        assert!(to_replica(&mut waiting, &intake, &sender).now_or_never().is_none());
        assert_eq!(waiting.len(), 1, "a wait that is given up loses nothing");
        let folded = replica.recv().await;
        drop(folded);
        assert!(to_replica(&mut waiting, &intake, &sender).await);
        assert!(waiting.is_empty());
    }
}
