//! Forgets nodes that are gone for long.
//!
//! The log alone says how long: its clock accepted the records of all nodes, while each hub has a clock of its
//! own. A position that an earlier version stored has no such time. It gets that of the first look: its node is then
//! forgotten so long after the update at the latest. A node of which only statuses are left, because the log lost the
//! positions, is forgotten so long after a controller first looked at it.
//!
//! No record says that a node will never come back. A node without a stream has no pod, no Node
//! object and no declaration, so nothing is lost with what it reported; when it comes back after
//! all, the fold misses its closing and asks it for a whole snapshot. The log keeps its records, and
//! a fold from the start forgets the node once more.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_event::{Cursor, EntryKey, NodeName, StreamId};
use headwater_store::{Batch, Durability, EngineError, Json};
use headwater_view::StreamReader;

use super::{Fold, ReportFold};
use crate::picture::tables::{LoggedProgress, NODE_PROGRESS, NODES, TERMINATIONS};

/// How long before the newest record of all the last record of such a node is: longer than a machine is
/// repaired, and no longer than a superseded record stays in the log. A hub appends the position of an
/// idle node every 5 min.
const GONE_AFTER_MS: i64 = 7 * 24 * 3600 * 1000;

/// A batch of positions of this many bytes is committed: an engine takes 8 MiB at once.
const COMMIT_BYTES: usize = 1 << 20;

/// How often the nodes are looked at: ten thousand rows take some ten milliseconds.
pub(super) const DEPARTURES_INTERVAL: Duration = Duration::from_secs(60);

impl ReportFold {
    /// Forgets nodes that are gone, while this controller is the writer: then the published streams
    /// say which nodes have one. `cursor` is the position of the fold. Returns whether it looked.
    pub(super) fn forget_departed(
        &self,
        fold: &mut Fold,
        cursor: &Cursor,
    ) -> Result<bool, EngineError> {
        if !self.progress.borrow().reconciled {
            return Ok(false);
        }
        let mut departed = Vec::new();
        let mut dated = Batch::new();
        let newest_ms = fold.newest_ms;
        let is_gone = |last_ms: i64| newest_ms.saturating_sub(last_ms) > GONE_AFTER_MS;
        let mut without_position: BTreeSet<NodeName> = fold.statuses.nodes().cloned().collect();
        for row in NODE_PROGRESS.rows(&*self.engine) {
            let (node, Json(LoggedProgress { progress, logged_ms })) = row?;
            without_position.remove(&node);
            if logged_ms.is_none() {
                let logged = LoggedProgress { progress, logged_ms: Some(fold.newest_ms) };
                dated.put(&NODE_PROGRESS, &node, &Json(logged));
                if dated.bytes() >= COMMIT_BYTES {
                    let dated = std::mem::take(&mut dated);
                    dated.commit(&*self.engine, &[*cursor], Durability::Buffered)?;
                }
                continue;
            }
            // A position may be left out; a report that came since is a contact, too.
            let last_ms = logged_ms.max(fold.reported_ms.get(&node).copied());
            if last_ms.is_some_and(is_gone) && !self.has_stream(&node)? {
                departed.push(node);
            }
        }
        // A node that left before the topic of positions was made again has none. It was last heard when this run first
        // looked at it, or later.
        for node in without_position {
            let last_ms = *fold.reported_ms.entry(node.clone()).or_insert(newest_ms);
            if is_gone(last_ms) && !self.has_stream(&node)? {
                departed.push(node);
            }
        }
        if !dated.is_empty() {
            dated.commit(&*self.engine, &[*cursor], Durability::Buffered)?;
        }
        // One batch a node: each has as many rows as it had pods.
        for node in &departed {
            let mut changed = self.changes.begin();
            changed.node(node);
            let statuses = fold.statuses.node(node).map(|statuses| statuses.snapshot());
            let before = statuses.map_or(0, |snapshot| snapshot.len());
            let pods = statuses.into_iter().flat_map(|snapshot| snapshot.pods());
            pods.for_each(|(pod, _)| changed.object(pod));
            let mut batch = Batch::new();
            fold.statuses.forget(node, &mut batch);
            fold.reported_ms.remove(node);
            batch.delete(&NODES, node);
            batch.delete(&NODE_PROGRESS, node);
            batch.delete_of(&TERMINATIONS, node);
            batch.commit(&*self.engine, &[*cursor], Durability::Buffered)?;
            self.metrics.statuses_moved(before, 0);
            self.changes.publish(changed);
            tracing::info!(%node, "the node has no stream and is gone for long: forgotten");
        }
        self.metrics.forgot_nodes(departed.len());
        Ok(true)
    }

    fn has_stream(&self, node: &NodeName) -> Result<bool, EngineError> {
        let published = StreamReader::new(&*self.published);
        Ok(published.entry(&StreamId::node(node), &EntryKey::Streams)?.is_some())
    }
}
