//! What the session's task waits for. Every wait may be given up halfway and begun again.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;

use headwater_session::message::HubMessage;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::Command;
use crate::link::{Link, LinkError};
use crate::{replica, upstream};

/// Where the connection is.
pub(super) enum Phase {
    /// There is none until then.
    Waiting(Instant),
    /// A hub is being asked for one.
    Dialing(Pin<Box<dyn Future<Output = Result<Link, LinkError>> + Send>>),
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
pub(super) enum Happened {
    /// Something was handed on.
    Nothing,
    /// The replica said this.
    Answered(replica::Answer),
    /// Upstream said this.
    Upstream(upstream::Event),
    /// Somebody asks this.
    Asked(Command),
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
    pub(super) command: replica::Command,
    pub(super) units: u32,
}

/// What comes of the present phase.
pub(super) async fn linked(phase: &mut Phase, may_read: bool, has_outgoing: bool) -> Happened {
    match phase {
        Phase::Waiting(until) => {
            tokio::time::sleep_until(*until).await;
            Happened::WaitOver
        }
        Phase::Dialing(dial) => Happened::Dialed(dial.await),
        Phase::Up { link, .. } => tokio::select! {
            heard = link.incoming.recv(), if may_read => heard.map_or(Happened::Gone, Happened::Heard),
            room = link.outgoing.reserve(), if has_outgoing => match room {
                Ok(_) => Happened::Writable,
                // The connection has ended, and its reader says why.
                Err(_) => link.incoming.recv().await.map_or(Happened::Gone, Happened::Heard),
            },
            () = pending(), if !may_read && !has_outgoing => Happened::Nothing,
        },
        Phase::Held => pending().await,
    }
}

/// Hands one command to the replica; false: it is gone.
pub(super) async fn to_replica(
    waiting: &mut VecDeque<ToReplica>,
    intake: &Arc<Semaphore>,
    replica: &mpsc::Sender<replica::Command>,
) -> bool {
    let Some(units) = waiting.front().map(|next| next.units) else { return pending().await };
    let room = match units {
        0 => None,
        units => Arc::clone(intake).acquire_many_owned(units).await.ok(),
    };
    let Ok(permit) = replica.reserve().await else { return false };
    match waiting.pop_front().map(|next| next.command) {
        Some(replica::Command::Apply { push, .. }) => {
            permit.send(replica::Command::Apply { push, room });
        }
        Some(command) => permit.send(command),
        None => {}
    }
    true
}

/// Hands one command to upstream; false: it is gone.
pub(super) async fn to_upstream(
    waiting: &mut VecDeque<upstream::Command>,
    upstream: &mpsc::Sender<upstream::Command>,
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
