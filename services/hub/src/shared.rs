//! What every session of a hub shares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use headwater_event::{Identity, NodeName, NodeStanding, ReportKey, ResourceKey};
use headwater_log::Record;
use headwater_session::message::{Refusal, RefusalCode, RequestError};
use headwater_session::{HubSettings, SessionId, SessionRegistry};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fold::Fold;
use crate::known::Known;
use crate::limits::HubLimits;
use crate::metrics::HubMetrics;
use crate::pace::Paces;
use crate::reports::Upstream;
use crate::standing::settled;
use crate::turns::Turns;
use crate::wakers::Wakers;

/// Milliseconds since the Unix epoch, by the hub's clock. Data for people; orders nothing.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Who answers what a node asks of the cloud.
#[tonic::async_trait]
pub trait Answers: Send + Sync {
    /// The JSON of the object at `key`. The hub has checked that `node` may ask.
    ///
    /// # Errors
    /// [`RequestError::NotFound`] when there is none, `Unavailable` when nobody can tell.
    async fn answer(&self, node: &NodeName, key: &ResourceKey) -> Result<Bytes, RequestError>;
}

/// Has nothing of what anybody asks for.
pub struct NoAnswers;

#[tonic::async_trait]
impl Answers for NoAnswers {
    async fn answer(&self, _: &NodeName, _: &ResourceKey) -> Result<Bytes, RequestError> {
        Err(RequestError::NotFound)
    }
}

/// A live connection, as the others see it.
#[derive(Debug)]
struct Live {
    node: NodeName,
    dismiss: watch::Sender<Option<Dismissal>>,
}

/// Why a session is to end that would go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dismissal {
    /// It is refused.
    Refused(Refusal),
    /// Its edge is to go on elsewhere.
    Leaving,
}

/// What every session of a hub shares.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) settings: HubSettings,
    pub(crate) limits: HubLimits,
    pub(crate) fold: Arc<Fold>,
    pub(crate) wakers: Arc<Wakers>,
    pub(crate) known: Arc<Known>,
    pub(crate) upstream: Upstream,
    pub(crate) answers: Arc<dyn Answers>,
    pub(crate) wall_clock: WallClock,
    pub(crate) metrics: HubMetrics,
    /// Cancelled when the hub leaves: no session begins any more.
    pub(crate) stop: CancellationToken,
    /// The tasks of all connections.
    pub(crate) connections: TaskTracker,
    /// Whose turn it is to catch up.
    pub(crate) turns: Turns,
    pub(crate) sessions: Sessions,
}

/// The sessions of a hub and the nodes they are of.
pub(crate) struct Sessions {
    next: AtomicU64,
    started: Instant,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// How fast hellos are taken.
    paces: Paces,
    registry: SessionRegistry,
    live: BTreeMap<SessionId, Live>,
    cut: BTreeSet<NodeName>,
    standings: BTreeMap<NodeName, NodeStanding>,
}

/// Why a connection is turned away at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// The operator cut the node's link.
    LinkCut,
    /// The hub stops.
    Stopping,
    /// The hub has as many sessions as it may have.
    Full,
    /// Too many edges connect at once.
    Pace,
    /// The node itself connects too often.
    NodePace,
}

impl TurnedAway {
    /// Its name, as metrics say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LinkCut => "link_cut",
            Self::Stopping => "stopping",
            Self::Full => "full",
            Self::Pace => "pace",
            Self::NodePace => "node_pace",
        }
    }

    /// What the edge is told.
    pub(crate) fn refusal(self, node: &NodeName) -> Refusal {
        match self {
            Self::LinkCut => link_cut(node),
            Self::Stopping => unavailable(HUB_STOPS),
            Self::Full => unavailable("the hub has as many sessions as it may have"),
            Self::Pace => unavailable("too many edges connect at once"),
            Self::NodePace => unavailable("the node connects too often"),
        }
    }
}

impl Sessions {
    /// None yet.
    pub(crate) fn new(limits: &HubLimits) -> Self {
        let table = Table {
            paces: Paces::new(limits),
            registry: SessionRegistry::default(),
            live: BTreeMap::new(),
            cut: BTreeSet::new(),
            standings: BTreeMap::new(),
        };
        Self { next: AtomicU64::new(1), started: Instant::now(), table: Mutex::new(table) }
    }
}

impl Shared {
    /// A number for a new session, never given twice.
    pub(crate) fn next_session(&self) -> SessionId {
        SessionId(self.sessions.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a connection, unless the node's link is cut, the hub stops, or it has no room for
    /// one more just now.
    pub(crate) fn enter(
        &self,
        session: SessionId,
        node: &NodeName,
        dismiss: watch::Sender<Option<Dismissal>>,
    ) -> Result<(), TurnedAway> {
        let mut table = self.lock();
        if table.cut.contains(node) {
            return Err(TurnedAway::LinkCut);
        }
        if self.stop.is_cancelled() {
            return Err(TurnedAway::Stopping);
        }
        // A node that connects again takes its own place.
        let has_room = table.live.len() < self.limits.sessions_max;
        if !has_room && table.registry.live(node).is_none() {
            return Err(TurnedAway::Full);
        }
        table.paces.take(node, self.sessions.started.elapsed())?;
        table.live.insert(session, Live { node: node.clone(), dismiss });
        Ok(())
    }

    /// Forgets a connection; the node's standing stays, no longer connected.
    pub(crate) fn leave(&self, session: SessionId, node: &NodeName) {
        let mut table = self.lock();
        table.live.remove(&session);
        table.registry.remove(node, session);
        let other = table.live.values().any(|live| &live.node == node);
        if let Some(standing) = table.standings.get_mut(node).filter(|_| !other) {
            standing.connected = false;
        }
    }

    /// Decides about a hello, and dismisses the session that has to give way.
    pub(crate) fn identify(
        &self,
        session: SessionId,
        identity: &Identity,
    ) -> Result<Option<Identity>, Refusal> {
        let mut table = self.lock();
        let admission = table.registry.admit(session, identity);
        if let Some((older, refusal)) = admission.replaced {
            table.dismiss(older, Dismissal::Refused(refusal));
        }
        admission.result
    }

    /// Keeps where a node stands and appends it upstream, so that anyone can see the fleet.
    pub(crate) fn publish(&self, node: &NodeName, standing: &NodeStanding) {
        self.keep(node, standing.clone());
        self.append(node, standing);
    }

    /// Keeps and appends where a node stood whose session is over, unless another one is live.
    pub(crate) fn publish_last(&self, node: &NodeName, standing: NodeStanding) {
        let standing = {
            let mut table = self.lock();
            if table.registry.live(node).is_some() {
                return;
            }
            let standing = settled(table.standings.get(node), standing);
            table.standings.insert(node.clone(), standing.clone());
            standing
        };
        self.append(node, &standing);
    }

    fn append(&self, node: &NodeName, standing: &NodeStanding) {
        let Ok(value) = serde_json::to_vec(standing) else { return };
        let record = Record {
            key: ReportKey::Position.record_key(node).into(),
            value: Some(value.into()),
            header: Bytes::new(),
            traceparent: None,
        };
        self.upstream.position(node, record);
    }

    /// Keeps where a node stands for those who ask this hub.
    pub(crate) fn keep(&self, node: &NodeName, standing: NodeStanding) {
        self.lock().standings.insert(node.clone(), standing);
    }

    /// How many connections there are that said hello.
    pub(crate) fn session_count(&self) -> usize {
        self.lock().live.len()
    }

    /// Where each node stands that has been connected to this hub.
    pub(crate) fn standings(&self) -> BTreeMap<NodeName, NodeStanding> {
        self.lock().standings.clone()
    }

    /// Cuts or restores the link of `node`: ends its sessions and lets none be made.
    pub(crate) fn set_link(&self, node: &NodeName, cut: bool) {
        let mut table = self.lock();
        if !cut {
            table.cut.remove(node);
            return;
        }
        table.cut.insert(node.clone());
        table.dismiss_all(|live| &live.node == node, &link_cut(node));
    }

    /// Lets no session be made any more; those that there are go on.
    pub(crate) fn close(&self) {
        self.stop.cancel();
        self.connections.close();
    }

    /// The sessions that there are, oldest first.
    pub(crate) fn live(&self) -> Vec<SessionId> {
        self.lock().live.keys().copied().collect()
    }

    /// Tells a session's edge to go on elsewhere.
    pub(crate) fn say_goodbye(&self, session: SessionId) {
        self.lock().dismiss(session, Dismissal::Leaving);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.sessions.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn dismiss(&self, session: SessionId, dismissal: Dismissal) {
        if let Some(live) = self.live.get(&session) {
            live.dismiss.send_replace(Some(dismissal));
        }
    }

    fn dismiss_all(&self, which: impl Fn(&Live) -> bool, refusal: &Refusal) {
        for live in self.live.values().filter(|live| which(live)) {
            live.dismiss.send_replace(Some(Dismissal::Refused(refusal.clone())));
        }
    }
}

/// What edges are told when it does.
pub(crate) const HUB_STOPS: &str = "the hub stops";

/// The edge is to come back, here or elsewhere.
pub(crate) fn unavailable(message: &str) -> Refusal {
    Refusal { code: RefusalCode::Unavailable, message: message.to_owned() }
}

fn link_cut(node: &NodeName) -> Refusal {
    unavailable(&format!("the link of node {node} is cut by the operator"))
}
