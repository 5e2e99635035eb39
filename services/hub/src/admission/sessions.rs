//! The sessions of a hub and the nodes behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_event::{Identity, NodeName, NodeProgress};
use headwater_session::message::Refusal;
use headwater_session::{SessionId, SessionRegistry};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::AdmissionError;
use super::positions::last_consistent;
use super::rate_limiter::RateLimiter;
use crate::limits::HubLimits;
use crate::tunnels::DialQueue;
use crate::watched_value::WatchedValue;

/// The sessions of a hub and the nodes behind them.
pub(crate) struct Sessions {
    sessions_max: usize,
    /// Cancelled when the hub admits no more sessions.
    closed: CancellationToken,
    next: AtomicU64,
    started: Instant,
    table: Mutex<SessionTable>,
}

#[derive(Debug)]
struct SessionTable {
    rate_limiter: RateLimiter,
    registry: SessionRegistry,
    live: BTreeMap<SessionId, LiveSession>,
    /// The sessions in `live` of each node that has some. A list: a node mostly has one, and a set has room
    /// for eleven.
    of_node: BTreeMap<NodeName, Vec<SessionId>>,
    /// Nodes whose link the operator cut.
    cut: BTreeSet<NodeName>,
    positions: BTreeMap<NodeName, NodeProgress>,
}

/// What others send to a session.
#[derive(Debug)]
pub(crate) struct LiveSession {
    /// Why it must end.
    pub(crate) dismissal: Arc<WatchedValue<Option<Dismissal>>>,
    /// The dials to its edge; `None`: the edge takes none.
    pub(crate) dials: Option<Arc<DialQueue>>,
}

/// Why a session must end although nothing is wrong with its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dismissal {
    /// The hub refuses it.
    Refused(Refusal),
    /// The hub stops: its edge continues at another hub.
    Leaving,
}

impl Sessions {
    /// A hub without sessions. It admits none once `closed` is cancelled.
    pub(crate) fn new(limits: &HubLimits, closed: CancellationToken) -> Self {
        let table = SessionTable {
            rate_limiter: RateLimiter::new(limits),
            registry: SessionRegistry::default(),
            live: BTreeMap::new(),
            of_node: BTreeMap::new(),
            cut: BTreeSet::new(),
            positions: BTreeMap::new(),
        };
        Self {
            sessions_max: limits.sessions_max,
            closed,
            next: AtomicU64::new(1),
            started: Instant::now(),
            table: Mutex::new(table),
        }
    }

    /// A new id, unique in the life of the hub.
    pub(crate) fn next_id(&self) -> SessionId {
        SessionId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a session of `node`.
    ///
    /// # Errors
    /// See [`AdmissionError`].
    pub(crate) fn admit(
        &self,
        session: SessionId,
        node: &NodeName,
        live: LiveSession,
    ) -> Result<(), AdmissionError> {
        let mut table = self.lock();
        if table.cut.contains(node) {
            return Err(AdmissionError::LinkCut(node.clone()));
        }
        if self.closed.is_cancelled() {
            return Err(AdmissionError::Stopping);
        }
        // A node that connects again replaces its own session.
        let has_room = table.live.len() < self.sessions_max;
        if !has_room && table.registry.live(node).is_none() {
            return Err(AdmissionError::Full);
        }
        table.rate_limiter.take(node, self.started.elapsed())?;
        table.live.insert(session, live);
        table.of_node.entry(node.clone()).or_default().push(session);
        Ok(())
    }

    /// Decides about the identity in a hello, and dismisses the session that it replaces.
    ///
    /// # Errors
    /// When the identity is refused.
    pub(crate) fn identify(
        &self,
        session: SessionId,
        identity: &Identity,
    ) -> Result<Option<Identity>, Refusal> {
        let mut table = self.lock();
        let admission = table.registry.admit(session, identity);
        if let Some((older, refusal)) = admission.replaced {
            table.dismiss(older, &Dismissal::Refused(refusal));
        }
        admission.result
    }

    /// Removes a session. The position of its node stays, as no longer connected.
    pub(crate) fn remove(&self, session: SessionId, node: &NodeName) {
        let mut table = self.lock();
        table.live.remove(&session);
        table.registry.remove(node, session);
        let has_other = table.of_node.get_mut(node).is_some_and(|sessions| {
            sessions.retain(|other| *other != session);
            !sessions.is_empty()
        });
        if !has_other {
            table.of_node.remove(node);
        }
        if let Some(position) = table.positions.get_mut(node).filter(|_| !has_other) {
            position.connected = false;
        }
    }

    /// Records the position of a node.
    pub(crate) fn record_position(&self, node: &NodeName, position: NodeProgress) {
        self.lock().positions.insert(node.clone(), position);
    }

    /// Records the position at which a session ended, and returns the recorded one; `None` when
    /// another session of the node is live.
    pub(crate) fn record_last_position(
        &self,
        node: &NodeName,
        position: NodeProgress,
    ) -> Option<NodeProgress> {
        let mut table = self.lock();
        if table.registry.live(node).is_some() {
            return None;
        }
        let position = last_consistent(table.positions.get(node), position);
        table.positions.insert(node.clone(), position.clone());
        Some(position)
    }

    /// The dials of the session of `node`; `Some(None)`: its edge takes none, `None`: it has no session.
    pub(crate) fn dials(&self, node: &NodeName) -> Option<Option<Arc<DialQueue>>> {
        let table = self.lock();
        let (session, _) = table.registry.live(node)?;
        table.live.get(&session).map(|live| live.dials.clone())
    }

    /// Whether a node has a session.
    pub(crate) fn is_live(&self, node: &NodeName) -> bool {
        self.lock().registry.live(node).is_some()
    }

    /// The position of a node that has been connected to this hub.
    pub(crate) fn position(&self, node: &NodeName) -> Option<NodeProgress> {
        self.lock().positions.get(node).cloned()
    }

    /// The position of each node that has been connected to this hub.
    pub(crate) fn positions(&self) -> BTreeMap<NodeName, NodeProgress> {
        self.lock().positions.clone()
    }

    /// The number of sessions.
    pub(crate) fn count(&self) -> usize {
        self.lock().live.len()
    }

    /// The ids of the sessions, oldest first.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        self.lock().live.keys().copied().collect()
    }

    /// Cuts or restores the link of `node`: a cut ends its sessions and admits none.
    pub(crate) fn set_link(&self, node: &NodeName, cut: bool) {
        let mut table = self.lock();
        if !cut {
            table.cut.remove(node);
            return;
        }
        table.cut.insert(node.clone());
        let dismissal = Dismissal::Refused(AdmissionError::LinkCut(node.clone()).refusal());
        for session in table.of_node.get(node).into_iter().flatten() {
            table.dismiss(*session, &dismissal);
        }
    }

    /// The nodes that are held as clones.
    pub(crate) fn held(&self) -> Vec<NodeName> {
        self.lock().registry.clones().cloned().collect()
    }

    /// Releases a held node; `false`: it was not held.
    pub(crate) fn release(&self, node: &NodeName) -> bool {
        self.lock().registry.release(node)
    }

    /// Asks a session's edge to continue at another hub.
    pub(crate) fn send_goodbye(&self, session: SessionId) {
        self.lock().dismiss(session, &Dismissal::Leaving);
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionTable {
    fn dismiss(&self, session: SessionId, dismissal: &Dismissal) {
        if let Some(live) = self.live.get(&session) {
            live.dismissal.modify(|present| *present = Some(dismissal.clone()));
        }
    }
}
