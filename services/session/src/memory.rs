//! A fold in memory: the [`crate::Source`] of tests and simulation.

use std::collections::BTreeMap;

use headwater_event::{Identity, LogId, NodeName};

/// Folds envelopes, in memory.
#[derive(Clone, Debug, Default)]
pub struct MemorySource {
    log_id: Option<LogId>,
    known: BTreeMap<NodeName, Identity>,
}

impl MemorySource {
    /// The fold of nothing, of no log yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the cloud knows of a node.
    pub fn know(&mut self, identity: Identity) {
        self.known.insert(identity.node.clone(), identity);
    }

    /// The log that is folded.
    pub fn log(&self) -> Option<LogId> {
        self.log_id
    }
}
