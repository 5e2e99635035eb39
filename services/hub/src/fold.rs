//! The hub's fold of the downstream log, and the reads of sessions over it.
//!
//! Besides the streams themselves ([`headwater_view::StreamState`]) the fold keeps, in the same
//! batch, the seq at which each key last changed and the newest events of each stream
//! (`history`). Its store is a cache: when it is lost, the hub reads the log once more.
//!
//! ```text
//!  downstream log ──► follower ──► history, heads ──► Fold ──► source ──► a session's step
//!  upstream log ────► identities ───────────────────►  │
//!                                                      └──► subscriptions ──► wakes sessions
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `follower` | the task that folds the downstream log |
//! | `contacts` | the last contact of each node with any hub |
//! | `identities` | the highest identity of each node, folded from the upstream log |
//! | `partition_readiness` | which partitions of the upstream log are read to their ends |
//! | `state` | whether the fold is complete, and the claims of writers |
//! | `history` | past changes and events, as the log is folded |
//! | `history_rows` | their tables and rows |
//! | `patches` | each event as a patch |
//! | `heads` | the ends of streams, in memory |
//! | `shared_tails` | the pushes that the sessions of a shared stream send alike |
//! | `source` | the fold as one session reads it |
//! | `transfer` | deltas, snapshots and corrections, in parts |
//! | `subscriptions` | which sessions wait for which stream |
//! | `notification_pacer` | when the sessions of a shared stream are notified |

mod contacts;
mod follower;
mod heads;
mod history;
mod history_rows;
mod identities;
mod notification_pacer;
mod partition_readiness;
mod patches;
mod shared_tails;
mod source;
mod state;
mod subscriptions;
mod transfer;

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use headwater_event::{EntryKey, NodeName, RequestError, ResourceKey, StreamId, WriterAddress};
use headwater_follow::{DerivedRows, Follower};
use headwater_store::{Engine, EngineError, Read};
use headwater_view::{Entry, StreamReader};
use tokio::sync::watch;

use contacts::NodeContacts;
pub(crate) use follower::DownstreamFollower;
use heads::StreamHeads;
use history::History;
pub(crate) use identities::IdentityFollower;
use identities::KnownIdentities;
use source::FoldSnapshot;
pub(crate) use source::FoldSource;
pub(crate) use state::FoldState;
use subscriptions::StreamSubscriptions;
use transfer::SharedSnapshots;

/// The fold. Its followers write it, sessions read it.
pub(crate) struct Fold {
    engine: Arc<dyn Engine>,
    state: RwLock<Arc<FoldState>>,
    /// Where the writer of the newest claim listens, as in the state.
    writer_address: watch::Sender<Option<WriterAddress>>,
    heads: Arc<StreamHeads>,
    snapshots: SharedSnapshots,
    identities: KnownIdentities,
    contacts: NodeContacts,
    subscriptions: StreamSubscriptions,
}

/// Why the fold cannot tell whether a node has an object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    /// A stream of the node is not folded to its end.
    #[error("{}", RequestError::LOG_NOT_READ)]
    Folding,
    /// The store cannot be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Fold {
    /// The fold that `engine` stores.
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            state: RwLock::default(),
            writer_address: watch::Sender::default(),
            heads: Arc::default(),
            snapshots: SharedSnapshots::default(),
            identities: KnownIdentities::default(),
            contacts: NodeContacts::default(),
            subscriptions: StreamSubscriptions::default(),
        }
    }

    /// The fold at the moment of the first question; it does not change while the value lives.
    pub(crate) fn source(&self) -> FoldSource<'_> {
        FoldSource::new(self)
    }

    /// A consistent view of the stored streams.
    pub(crate) fn stored(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }

    /// The store of the fold.
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The identities that the cloud knows.
    pub(crate) fn identities(&self) -> &KnownIdentities {
        &self.identities
    }

    /// The last contacts of nodes.
    pub(crate) fn contacts(&self) -> &NodeContacts {
        &self.contacts
    }

    /// The sessions that wait for streams.
    pub(crate) fn subscriptions(&self) -> &StreamSubscriptions {
        &self.subscriptions
    }

    /// Where the writer of the newest claim listens, and each change of it, also a new claim of the same address.
    pub(crate) fn writer_address(&self) -> watch::Receiver<Option<WriterAddress>> {
        self.writer_address.subscribe()
    }

    /// The state of the fold as a whole.
    pub(crate) fn state(&self) -> Arc<FoldState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The entry at `key` in the streams that `node` reads.
    ///
    /// # Errors
    /// See [`LookupError`].
    pub(crate) fn entry(
        &self,
        node: &NodeName,
        key: &ResourceKey,
    ) -> Result<Option<Entry>, LookupError> {
        let FoldSnapshot { state, stored, .. } = self.snapshot(&[]);
        let (reader, key) = (StreamReader::new(&*stored), EntryKey::from(key.clone()));
        let mut is_folded = true;
        for stream in [StreamId::node(node), StreamId::Cluster] {
            if !state.is_folded(&stream) {
                is_folded = false;
            } else if let Some(entry) = reader.entry(&stream, &key)? {
                return Ok(Some(entry));
            }
        }
        if is_folded { Ok(None) } else { Err(LookupError::Folding) }
    }

    /// The fold as it is now, with the heads of `streams`. The stored state is never older than
    /// the state: a fold is emptied only after [`Fold::suspend`], so that a session never takes
    /// an emptied fold for a complete one.
    fn snapshot(&self, streams: &[StreamId]) -> FoldSnapshot<'_> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let (heads, stored) = self.heads.with(streams, || self.engine.snapshot());
        FoldSnapshot::new(state.clone(), heads, stored)
    }

    /// What derives the history rows while a follower folds the log.
    fn history(&self) -> History {
        History::with_heads(self.heads.clone())
    }

    /// Takes over the state of the follower. Returns whether it changed, which concerns every
    /// session.
    ///
    /// # Errors
    /// When the streams of a fold that has just become complete cannot be read.
    fn refresh<R: DerivedRows>(&self, follower: &Follower<R>) -> Result<bool, EngineError> {
        if follower.is_folded() && !self.state().folded {
            self.heads.load(&*self.engine)?;
        }
        let mut state = self.state_mut();
        let now = FoldState::of(follower);
        let has_changed = **state != now;
        if has_changed {
            *state = Arc::new(now);
            self.show_writer(&state);
        }
        Ok(has_changed)
    }

    /// The log cannot be read for now: sessions continue from the fold as it is.
    fn pause(&self, trouble: String) {
        let mut state = self.state_mut();
        *state = Arc::new(state.paused(trouble));
    }

    /// The fold may be emptied: the hub serves nothing until the log is followed again.
    fn suspend(&self, trouble: String) {
        let mut state = self.state_mut();
        *state = Arc::new(FoldState::suspended(trouble));
        self.show_writer(&state);
        self.heads.clear();
    }

    fn show_writer(&self, state: &FoldState) {
        self.writer_address.send_if_modified(|address| {
            let has_changed = *address != state.writer_address;
            address.clone_from(&state.writer_address);
            has_changed
        });
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, Arc<FoldState>> {
        // No code here panics while it holds the lock; a poisoned one is still whole.
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fold whose heads a test keeps.
    #[cfg(test)]
    fn with_heads(self, heads: Arc<StreamHeads>) -> Self {
        Self { heads, ..self }
    }

    /// A complete fold of this log, without a follower.
    #[cfg(test)]
    pub(crate) fn assume_log(&self, log_id: headwater_event::LogId) {
        let complete = FoldState {
            log_id: Some(log_id),
            folded: true,
            reconciled: true,
            ..FoldState::default()
        };
        *self.state_mut() = Arc::new(complete);
    }
}
