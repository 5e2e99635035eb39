//! I11: an event counts only under the highest epoch claimed before it in its partition.

use headwater_event::{Offset, Partition, WriterEpoch};

/// A record of one partition, as a reader took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderOutcome {
    /// A claim.
    Claim(WriterEpoch),
    /// An event that the reader made visible.
    Visible(WriterEpoch),
    /// An event that the reader passed over.
    PassedOver(WriterEpoch),
}

/// An event that counted although its writer was fenced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "I11 partition {partition} offset {offset}: an event of epoch {found} counts under claim {claimed}"
)]
pub struct FencedVisible {
    /// The partition.
    pub partition: Partition,
    /// The record.
    pub offset: Offset,
    /// The highest claim before it.
    pub claimed: WriterEpoch,
    /// The event's epoch.
    pub found: WriterEpoch,
}

/// Checks what a reader makes of a partition's records, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fencing {
    claimed: WriterEpoch,
}

impl Fencing {
    /// Checks the next record.
    ///
    /// # Errors
    /// When it is an event that should not have counted.
    pub fn observe(
        &mut self,
        partition: Partition,
        offset: Offset,
        seen: ReaderOutcome,
    ) -> Result<(), FencedVisible> {
        let claimed = self.claimed;
        match seen {
            ReaderOutcome::Claim(epoch) => self.claimed = claimed.max(epoch),
            ReaderOutcome::Visible(found) if found != claimed => {
                return Err(FencedVisible { partition, offset, claimed, found });
            }
            ReaderOutcome::Visible(_) | ReaderOutcome::PassedOver(_) => {}
        }
        Ok(())
    }
}

/// Checks what a reader made of a partition's records, in order.
///
/// # Errors
/// Names the first event that should not have counted.
pub fn check(
    partition: Partition,
    records: impl IntoIterator<Item = (Offset, ReaderOutcome)>,
) -> Result<(), FencedVisible> {
    let mut fencing = Fencing::default();
    records.into_iter().try_for_each(|(offset, seen)| fencing.observe(partition, offset, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_was_fenced_stays_invisible() {
        let old = WriterEpoch(1);
        let new = WriterEpoch(2);
        let fine = [
            ReaderOutcome::Claim(old),
            ReaderOutcome::Visible(old),
            ReaderOutcome::Claim(new),
            ReaderOutcome::PassedOver(old),
        ];
        let wrong =
            [ReaderOutcome::Claim(old), ReaderOutcome::Claim(new), ReaderOutcome::Visible(old)];
        let at = |records: &[ReaderOutcome]| {
            let records = (0u64..).map(Offset).zip(records.iter().copied()).collect::<Vec<_>>();
            check(Partition(0), records)
        };
        assert!(at(&fine).is_ok());
        assert!(at(&wrong).is_err());
    }
}
