//! Removes terminations of pods that are gone from the upstream log: see [`super::terminations`].

use std::time::Duration;

use headwater_event::upstream::ReportRecord;
use headwater_event::{EntryKey, Partition, StreamId};
use headwater_log::{Append, Record};
use headwater_store::EngineError;
use headwater_view::StreamReader;

use super::ReportFold;
use super::terminations::{EndedPod, LoggedTermination, Terminations};

/// Records in one append: a small fraction of what a log takes at once.
const REMOVALS_AT_ONCE: usize = 256;

/// The interval of the checks of the terminations in the log. A termination that stays a moment
/// longer does no harm.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl ReportFold {
    /// Appends what is due of the terminations, while this controller is the writer: then the
    /// published streams say which pods are there.
    pub(super) async fn remove_terminations(
        &self,
        terminations: &mut Terminations,
    ) -> Result<(), EngineError> {
        let writer = self.progress.borrow().clone();
        let due = terminations
            .next_due(REMOVALS_AT_ONCE, |ended, logged| self.is_published(ended, logged))?;
        // A writer that was lost meanwhile may have begun its fold anew: no pod was there.
        let is_writer = {
            let now = self.progress.borrow();
            writer.reconciled && now.reconciled && now.epoch == writer.epoch
        };
        if !is_writer {
            terminations.failed();
            return Ok(());
        }
        if due.is_empty() {
            return Ok(());
        }
        let removed = due.iter().filter(|(_, record)| record.value.is_none()).count();
        let repaired = due.len() - removed;
        let append = |(partition, record): (Partition, ReportRecord)| Append {
            partition,
            record: Record {
                key: record.key,
                value: record.value,
                header: record.header,
                traceparent: None,
            },
        };
        match self.log.append(due.into_iter().map(append).collect()).await {
            Ok(_) => {
                self.metrics.removed_terminations(removed);
                self.metrics.repaired(repaired);
            }
            Err(error) => {
                tracing::warn!(%error, "the terminations of pods that are gone cannot be removed from the log; trying again");
                terminations.failed();
            }
        }
        Ok(())
    }

    /// Whether the stream of the node has the pod.
    pub(super) fn is_published(
        &self,
        (node, pod): &EndedPod,
        logged: &LoggedTermination,
    ) -> Result<bool, EngineError> {
        let published = StreamReader::new(&*self.published);
        let entry = published.entry(&StreamId::node(node), &EntryKey::from(pod.clone()))?;
        Ok(entry.is_some_and(|entry| entry.uid == logged.uid))
    }
}
