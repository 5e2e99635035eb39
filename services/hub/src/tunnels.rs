//! Streams to nodes: a client of this process waits for one, and the edge opens it.
//!
//! ```text
//!   HubView::dial --> DialQueue of the session --> Dial --> edge
//!        ^                                                    |
//!        +------ PendingDials <------ Tunnel.Stream <---------+     on another connection
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `pending` | the streams that clients wait for, by id |
//! | `queue` | the dials that a session has not sent yet |
//! | `error` | why there is no stream |

mod error;
mod pending;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use headwater_event::{NodeName, NodeProgress};
use headwater_session::message::{Dial, DialId};
use tokio::io::DuplexStream;
use tokio::time::timeout;

pub use error::DialError;
pub(crate) use pending::{ClaimError, PendingDials, StreamRefusal};
pub(crate) use queue::DialQueue;

use crate::session::SessionDependencies;

/// How long an edge may take to open a stream: DNS, TCP and TLS over a link with a round trip of a second.
/// A client of an API server waits longer.
const DIAL_WITHIN: Duration = Duration::from_secs(10);

/// Bytes between a stream and its client, beside the window of the stream.
pub(crate) const CLIENT_BYTES: usize = 64 << 10;

/// Opens a stream to the kubelet's server of a node.
pub(crate) async fn dial(
    hub: &Arc<SessionDependencies>,
    node: &NodeName,
) -> Result<DuplexStream, DialError> {
    let id = draw_id(&*hub.chance);
    let pending = hub.dials.add(id, node).ok_or(DialError::HubBusy)?;
    let within_ms = u64::try_from(DIAL_WITHIN.as_millis()).unwrap_or(u64::MAX);
    let absent = || DialError::absent(node, &hub.name, contact(hub, node).as_ref());
    let dials = hub.sessions.dials(node).ok_or_else(absent)?;
    let dials = dials.ok_or_else(|| DialError::Earlier { node: node.clone() })?;
    let silent = dials.silent(hub.limits.dial_receipt_within);
    dials.add(Dial { id, within_ms });
    let opened = tokio::select! {
        biased;
        opened = timeout(DIAL_WITHIN, pending.opened()) => opened,
        () = dials.ended() => return Err(absent()),
        () = silent => {
            return Err(DialError::silent(node, contact(hub, node).as_ref()));
        }
    };
    match opened {
        Ok(Some(Ok(stream))) => Ok(stream),
        Ok(Some(Err(refusal))) => Err(DialError::refused(node, refusal)),
        Ok(None) => Err(DialError::Stopping),
        Err(_) => Err(DialError::late(node, DIAL_WITHIN, contact(hub, node).as_ref())),
    }
}

/// The last contact of a node: with this hub, or a later one with another.
pub(crate) fn contact(hub: &SessionDependencies, node: &NodeName) -> Option<NodeProgress> {
    let (own, logged) = (hub.sessions.position(node), hub.fold.contacts().of(node));
    match (own, logged) {
        // The log has the position of this hub later than the hub itself.
        (Some(own), Some(logged)) if own.is_superseded_by(&logged) => Some(logged),
        (own, logged) => own.or(logged),
    }
}

/// Draws an id, 32 bits at a time.
fn draw_id(chance: &dyn Fn() -> f64) -> DialId {
    DialId(crate::hub::draw_uuid(chance).into_bytes())
}
