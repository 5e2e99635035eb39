//! The hub's fold of the downstream log: what sessions read.
//!
//! Besides the streams themselves ([`headwater_view::StreamState`]) it keeps, in the same batch,
//! which key each seq last changed and the last events as they came ([`history`]). Its disk is a
//! cache: losing it costs a re-read of the log.

mod catch_up;
mod history;
mod newest;
mod patches;
mod source;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use headwater_event::{LogId, StreamId, WriterEpoch};
use headwater_follow::{DerivedRows, Follower};
use headwater_log::acceptance::PartitionState;
use headwater_store::{Engine, EngineError, Read};

use catch_up::SharedSnapshots;
pub(crate) use history::History;
use newest::Newest;
pub(crate) use source::FoldSource;
use source::Moment;

use crate::known::Known;

/// The fold, as sessions see it. The task that follows the log writes, sessions read.
pub(crate) struct Fold {
    engine: Arc<dyn Engine>,
    known: Arc<Known>,
    facts: RwLock<Arc<Facts>>,
    snapshots: SharedSnapshots,
    newest: Arc<Newest>,
}

/// What is true of the fold as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The log that is folded; `None` before its birth was read.
    pub(crate) log_id: Option<LogId>,
    /// Whether the log was read to where its end was when the fold began.
    pub(crate) folded: bool,
    /// Whether the newest writer has appended all differences of its sources.
    pub(crate) reconciled: bool,
    /// The newest claim of each partition: what came before it is settled.
    pub(crate) claims: Vec<WriterEpoch>,
    /// Streams that did not hash to what the log says.
    pub(crate) damaged: BTreeSet<StreamId>,
    /// Whether the upstream log was read to its end, so that known identities are complete.
    pub(crate) knows_identities: bool,
    /// Why the log is not followed just now.
    pub(crate) trouble: Option<String>,
}

impl Facts {
    /// Whether snapshots may be served.
    pub(crate) fn is_complete(&self) -> bool {
        self.folded && self.reconciled
    }

    /// The newest claim in the partition of `stream`.
    pub(crate) fn claimed(&self, stream: &StreamId) -> WriterEpoch {
        let count = u32::try_from(self.claims.len()).unwrap_or(u32::MAX);
        if count == 0 {
            return WriterEpoch::default();
        }
        let partition = stream.partition(count).0 as usize;
        self.claims.get(partition).copied().unwrap_or_default()
    }
}

impl Fold {
    pub(crate) fn new(engine: Arc<dyn Engine>, known: Arc<Known>) -> Self {
        Self {
            engine,
            known,
            facts: RwLock::default(),
            snapshots: SharedSnapshots::default(),
            newest: Arc::default(),
        }
    }

    /// What derives the history of the streams, for whoever follows the log into this.
    pub(crate) fn history(&self) -> History {
        History::telling(self.newest.clone())
    }

    /// The fold as it is when it is first asked something; from then on it does not move while
    /// the value lives.
    pub(crate) fn source(&self) -> FoldSource<'_> {
        FoldSource::new(self)
    }

    /// The fold as it is now, with what is remembered of `streams`. What it holds is never older
    /// than the facts: a fold that is given up is emptied only after [`Fold::lose`], so that nobody
    /// takes it for a complete one.
    fn moment(&self, streams: Option<&BTreeSet<StreamId>>) -> Moment<'_> {
        let facts = self.facts.read().unwrap_or_else(PoisonError::into_inner);
        let (heads, read) = self.newest.with(streams, || self.engine.snapshot());
        Moment::new(facts.clone(), heads, read)
    }

    /// A consistent view of the stored streams.
    pub(crate) fn snapshot(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }

    /// Where the fold lies.
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// What is true of the fold as a whole.
    pub(crate) fn facts(&self) -> Arc<Facts> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over what the follower knows; whether anything changed for every session.
    ///
    /// # Errors
    /// When the streams that are folded for the first time cannot be read.
    pub(crate) fn follow<R: DerivedRows>(
        &self,
        follower: &Follower<R>,
    ) -> Result<bool, EngineError> {
        if follower.is_folded() && !self.facts().folded {
            self.newest.load(&*self.engine)?;
        }
        let acceptance = follower.acceptance();
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let now = Facts {
            log_id: Some(acceptance.birth().log_id),
            folded: follower.is_folded(),
            reconciled: acceptance.is_reconciled(),
            claims: acceptance.partitions().values().map(PartitionState::claimed).collect(),
            damaged: follower.damaged().clone(),
            knows_identities: facts.knows_identities,
            trouble: None,
        };
        let changed = **facts != now;
        if changed {
            *facts = Arc::new(now);
        }
        Ok(changed)
    }

    /// The log cannot be followed, for this reason: nothing is served until it is again.
    pub(crate) fn lose(&self, trouble: String) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let (knows_identities, trouble) = (facts.knows_identities, Some(trouble));
        *facts = Arc::new(Facts { knows_identities, trouble, ..Facts::default() });
        self.newest.clear();
    }

    /// One that remembers what is told to `newest`.
    #[cfg(test)]
    fn remembering(self, newest: Arc<Newest>) -> Self {
        Self { newest, ..self }
    }

    /// A complete fold of this log, without a follower.
    #[cfg(test)]
    pub(crate) fn assume_log(&self, log_id: LogId) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let complete =
            Facts { log_id: Some(log_id), folded: true, reconciled: true, ..Facts::default() };
        *facts = Arc::new(complete);
    }

    /// The upstream log was read to its end.
    pub(crate) fn identities_known(&self) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut facts).knows_identities = true;
    }
}
