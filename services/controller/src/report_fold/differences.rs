//! Nodes whose own reports do not add up.
//!
//! A fold that did not read for long may have missed removals that compaction has deleted since. When a node differs then,
//! the whole log is folded anew. A node that differs after such a fold, or while the fold reads, is itself the cause: it
//! is noted. Otherwise one node could cause a fold of the whole log at each start.

use headwater_event::NodeName;
use headwater_store::{Batch, Durability, EngineError};

use super::ReportFold;
use crate::picture::tables::NODE_DIFFERENCES;

impl ReportFold {
    /// Whether each of the nodes is noted.
    pub(super) fn differ_by_themselves(&self, nodes: &[NodeName]) -> Result<bool, EngineError> {
        for node in nodes {
            if NODE_DIFFERENCES.get(&*self.engine, node)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes nodes that differ while the fold reads.
    pub(super) fn note_differing(&self, nodes: &[NodeName]) -> Result<(), EngineError> {
        if self.differ_by_themselves(nodes)? { Ok(()) } else { self.note(Batch::new(), nodes) }
    }

    /// Notes the nodes that differ when the fold has caught up, and no others.
    pub(super) fn replace_differing(&self, nodes: &[NodeName]) -> Result<(), EngineError> {
        let mut batch = Batch::new();
        batch.clear(&NODE_DIFFERENCES);
        self.note(batch, nodes)
    }

    fn note(&self, mut batch: Batch, nodes: &[NodeName]) -> Result<(), EngineError> {
        for node in nodes {
            batch.put(&NODE_DIFFERENCES, node, &());
        }
        batch.write(&*self.engine, Durability::Buffered)
    }
}
