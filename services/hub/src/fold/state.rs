//! The state of the fold as a whole: whether it is complete, and which writer the log has.

use std::collections::BTreeSet;

use headwater_event::record::Claim;
use headwater_event::{LogId, StreamId, WriterAddress, WriterEpoch};
use headwater_follow::{DerivedRows, Follower};
use headwater_log::acceptance::PartitionState;

/// The state of the fold as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoldState {
    /// The log that is folded; `None` before the follower has read its metadata.
    pub(crate) log_id: Option<LogId>,
    /// Whether the log was read to the end that it had when the fold began.
    pub(crate) folded: bool,
    /// Whether the newest writer has appended all differences of its sources.
    pub(crate) reconciled: bool,
    /// The newest claim of each partition: records before it are final.
    pub(crate) claims: Vec<WriterEpoch>,
    /// Where the writer of the newest claim listens, unless it has stopped in order.
    pub(crate) writer_address: Option<WriterAddress>,
    /// Streams whose state does not hash to what the log records.
    pub(crate) damaged: BTreeSet<StreamId>,
    /// Why the log is not followed at present.
    pub(crate) trouble: Option<String>,
}

impl FoldState {
    /// The state after a step of `follower`.
    pub(super) fn of<R: DerivedRows>(follower: &Follower<R>) -> Self {
        let acceptance = follower.acceptance();
        let writer = acceptance.writer().filter(|_| !acceptance.is_released());
        Self {
            log_id: Some(acceptance.metadata().log_id),
            folded: follower.is_folded(),
            reconciled: acceptance.is_reconciled(),
            claims: acceptance.partitions().values().map(PartitionState::claimed).collect(),
            writer_address: writer.and_then(Claim::writer_address),
            damaged: follower.damaged().clone(),
            trouble: None,
        }
    }

    /// The state of a fold whose log cannot be read for now, with the reason. The fold stays, and
    /// sessions continue from it.
    pub(super) fn paused(&self, trouble: String) -> Self {
        Self { trouble: Some(trouble), ..self.clone() }
    }

    /// The state of a fold that is emptied next, or whose log has no fold, with the reason.
    pub(super) fn suspended(trouble: String) -> Self {
        Self { trouble: Some(trouble), ..Self::default() }
    }

    /// Whether snapshots may be served.
    pub(crate) fn is_complete(&self) -> bool {
        self.folded && self.reconciled
    }

    /// Whether the state of `stream` is the fold of the whole log.
    pub(super) fn is_folded(&self, stream: &StreamId) -> bool {
        self.folded && !self.damaged.contains(stream)
    }

    /// The newest claim in the partition of `stream`.
    pub(super) fn claimed(&self, stream: &StreamId) -> WriterEpoch {
        let Some((first, others)) = self.claims.split_first() else {
            return WriterEpoch::default();
        };
        // One writer mostly has all partitions. A session asks several times an event, and the partition of a
        // stream is a hash of its text.
        if others.iter().all(|claim| claim == first) {
            return *first;
        }
        let count = u32::try_from(self.claims.len()).unwrap_or(u32::MAX);
        let partition = stream.partition(count).0 as usize;
        self.claims.get(partition).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_of_a_stream_is_that_of_its_partition() {
        const PARTITIONS: u32 = 4;
        let stream = StreamId::Cluster;
        let own = stream.partition(PARTITIONS).0 as usize;
        let claimed = |claims: &[WriterEpoch]| {
            FoldState { claims: claims.to_vec(), ..FoldState::default() }.claimed(&stream)
        };
        assert_eq!(claimed(&[]), WriterEpoch::default());
        let of_one_writer = [WriterEpoch(1); PARTITIONS as usize];
        assert_eq!(claimed(&of_one_writer), WriterEpoch(1));
        for partition in 0..of_one_writer.len() {
            let mut claims = of_one_writer;
            claims[partition] = WriterEpoch(2);
            let expected = WriterEpoch(if partition == own { 2 } else { 1 });
            assert_eq!(claimed(&claims), expected, "partition {partition}");
        }
    }
}
