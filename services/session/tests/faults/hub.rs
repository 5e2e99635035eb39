//! A hub of the simulated world: a fold that may lag, be empty, or be of a branch that is gone.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{EntryKey, Envelope, Event, Identity, NodeName, StreamId};
use headwater_session::{
    HubSession, HubSettings, MemorySource, Readiness, SessionId, SessionRegistry,
};

use crate::cloud::{Branch, Record};

/// Events that a hub keeps for tails, per stream: few, so that deltas and snapshots are common.
const RAW_EVENTS_MAX: usize = 6;

pub(crate) struct Hub {
    pub(crate) source: MemorySource,
    pub(crate) registry: SessionRegistry,
    pub(crate) sessions: BTreeMap<SessionId, HubSession>,
    /// The branch that the hub reads, and its position there.
    pub(crate) branch: usize,
    at: usize,
    /// The end of the log when the fold began.
    folded_at: usize,
    is_reconciled: bool,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self {
            source: MemorySource::new(RAW_EVENTS_MAX),
            registry: SessionRegistry::default(),
            sessions: BTreeMap::new(),
            branch: 0,
            at: 0,
            folded_at: usize::MAX,
            is_reconciled: false,
        }
    }

    /// Starts with an empty fold of the present log. The records below `compacted` are compacted.
    pub(crate) fn restart(&mut self, branch: usize, log: &Branch, compacted: usize) {
        let mut source = MemorySource::new(RAW_EVENTS_MAX);
        source.begin(log.log_id);
        let compacted = compacted.min(log.records.len());
        *self = Self { source, branch, folded_at: log.records.len(), ..Self::new() };
        for record in compact(&log.records[..compacted]) {
            self.take(record);
        }
        self.at = compacted;
        self.ready();
    }

    /// Folds up to `records` further ones.
    pub(crate) fn fold(&mut self, log: &Branch, records: usize) {
        let end = self.at.saturating_add(records).min(log.records.len());
        for record in &log.records[self.at.min(end)..end] {
            self.take(record.clone());
        }
        self.at = end;
        self.ready();
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Claim(epoch) => {
                self.source.claim(epoch);
                self.is_reconciled = false;
            }
            Record::Reconciled => self.is_reconciled = true,
            Record::Event(envelope) => {
                self.source.fold(*envelope).expect("a log in order");
            }
        }
    }

    fn ready(&mut self) {
        self.source.set_readiness(match (self.at >= self.folded_at, self.is_reconciled) {
            (false, _) => Readiness::Folding,
            (true, false) => Readiness::Folded,
            (true, true) => Readiness::Reconciled,
        });
    }

    pub(crate) fn accept(&mut self, session: SessionId, node: &NodeName, settings: &HubSettings) {
        self.sessions.insert(session, HubSession::new(settings.clone(), node.clone()));
    }

    pub(crate) fn know(&mut self, identity: Identity) {
        self.source.set_known_identity(identity);
    }
}

/// The records that compaction leaves: the latest one of each key, every claim and every mark, but
/// no tombstone with a later event in its stream.
fn compact(records: &[Record]) -> Vec<Record> {
    let mut seen: BTreeSet<(StreamId, Option<EntryKey>)> = BTreeSet::new();
    let mut has_later: BTreeSet<StreamId> = BTreeSet::new();
    let mut kept = Vec::new();
    for record in records.iter().rev() {
        if let Record::Event(envelope) = record {
            let Envelope { stream, event, .. } = &**envelope;
            let is_latest = seen.insert((stream.clone(), event.key().cloned()));
            let is_tombstone = matches!(event, Event::Removed(_));
            let is_behind = !has_later.insert(stream.clone());
            if !is_latest || (is_tombstone && is_behind) {
                continue;
            }
        }
        kept.push(record.clone());
    }
    kept.reverse();
    kept
}
