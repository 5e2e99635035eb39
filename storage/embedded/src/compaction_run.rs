//! The result of one run of compaction.

/// The result of one run of compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionRun {
    /// How many records and tombstones it examined.
    pub examined: usize,
    /// How many records it dropped.
    pub dropped: usize,
    /// Whether its bound ended it: more is due now.
    pub more_due: bool,
}
