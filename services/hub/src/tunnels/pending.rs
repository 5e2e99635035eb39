//! The streams that clients wait for, by id. An edge claims each once, and only the edge that was dialed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::NodeName;
use headwater_session::message::DialId;
use tokio::io::DuplexStream;
use tokio::sync::oneshot;

/// Streams that clients wait for at a time: a person or a scraper each, and each waits for seconds.
const PENDING_MAX: usize = 1_024;

/// The reply to a client: its end of the stream.
type StreamReply = Result<DuplexStream, StreamRefusal>;

/// Why an edge does not serve a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamRefusal {
    /// The reason, for people.
    pub(crate) reason: String,
    /// Whether the node has as many streams as it may have.
    pub(crate) is_busy: bool,
}

/// Why an id opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClaimError {
    /// It was taken, its client left, or there was none.
    #[error("the hub waits for no such stream")]
    Unknown,
    /// It is another node's.
    #[error("the hub has dialed another node")]
    OtherNode,
}

/// The streams that clients wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingDials(Arc<Mutex<HashMap<DialId, Waiting>>>);

#[derive(Debug)]
struct Waiting {
    node: NodeName,
    reply: oneshot::Sender<StreamReply>,
}

/// A client that waits. Dropping it withdraws the id.
pub(crate) struct PendingDial {
    id: DialId,
    dials: PendingDials,
    opened: oneshot::Receiver<StreamReply>,
}

impl PendingDials {
    /// Adds a client; `None`: too many wait, or the id is there.
    pub(crate) fn add(&self, id: DialId, node: &NodeName) -> Option<PendingDial> {
        let mut all = self.lock();
        if all.len() >= PENDING_MAX || all.contains_key(&id) {
            return None;
        }
        let (reply, opened) = oneshot::channel();
        all.insert(id, Waiting { node: node.clone(), reply });
        Some(PendingDial { id, dials: self.clone(), opened })
    }

    /// Takes an id, which `node` claims. An id that another node claims stays.
    ///
    /// # Errors
    /// See [`ClaimError`].
    pub(crate) fn claim(
        &self,
        id: DialId,
        node: &NodeName,
    ) -> Result<oneshot::Sender<StreamReply>, ClaimError> {
        let mut all = self.lock();
        match all.get(&id) {
            None => Err(ClaimError::Unknown),
            Some(waiting) if waiting.node != *node => Err(ClaimError::OtherNode),
            Some(_) => all.remove(&id).map(|waiting| waiting.reply).ok_or(ClaimError::Unknown),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DialId, Waiting>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingDial {
    /// Waits for the edge; `None`: the hub stops.
    pub(crate) async fn opened(mut self) -> Option<StreamReply> {
        (&mut self.opened).await.ok()
    }
}

impl Drop for PendingDial {
    fn drop(&mut self) {
        self.dials.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    #[test]
    fn an_id_is_taken_once_and_by_the_node_that_was_dialed() {
        let (dials, id) = (PendingDials::default(), DialId([7; 16]));
        let _waiting = dials.add(id, &node("gw-1")).expect("room");
        assert!(dials.add(id, &node("gw-2")).is_none(), "no id is given twice");
        assert_eq!(dials.claim(id, &node("gw-2")).err(), Some(ClaimError::OtherNode));
        assert_eq!(dials.claim(DialId([8; 16]), &node("gw-1")).err(), Some(ClaimError::Unknown));
        assert!(dials.claim(id, &node("gw-1")).is_ok());
        assert_eq!(dials.claim(id, &node("gw-1")).err(), Some(ClaimError::Unknown));
    }

    #[test]
    fn a_client_that_left_withdraws_its_id() {
        let (dials, id) = (PendingDials::default(), DialId([7; 16]));
        drop(dials.add(id, &node("gw-1")).expect("room"));
        assert_eq!(dials.claim(id, &node("gw-1")).err(), Some(ClaimError::Unknown));
        assert!(dials.lock().is_empty());
    }

    #[test]
    fn the_clients_that_wait_are_bounded() {
        let dials = PendingDials::default();
        let id = |at: usize| DialId((at as u128).to_be_bytes());
        let waiting: Vec<_> =
            (0..PENDING_MAX).map(|at| dials.add(id(at), &node("gw-1")).expect("room")).collect();
        assert!(dials.add(id(PENDING_MAX), &node("gw-1")).is_none());
        drop(waiting);
        assert!(dials.add(id(PENDING_MAX), &node("gw-1")).is_some());
    }
}
