//! I3: each event has its effect on a replica once.

use std::collections::BTreeMap;

use headwater_event::{Checkpoint, Seq, StreamId, WriterEpoch};

/// The position of each stream of one replica, by its applied events.
#[derive(Clone, Debug, Default)]
pub struct Once {
    applied: BTreeMap<StreamId, Checkpoint>,
}

/// An event that was applied again, or one that is older than what is applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "I3 {stream}: seqs from {} are applied in log {} epoch {} onto seq {} of log {} epoch {}",
    .from.0 + 1, .to.log_id, .to.epoch, .applied.seq, .applied.log_id, .applied.epoch
)]
pub struct AppliedTwice {
    /// The stream.
    pub stream: StreamId,
    /// What was applied before.
    pub applied: Checkpoint,
    /// The exclusive start of what was applied now.
    pub from: Seq,
    /// Its end.
    pub to: Checkpoint,
}

impl Once {
    /// Events of `(from, to]` were applied on top of what was there.
    ///
    /// # Errors
    /// When some of them were there already.
    pub fn events(
        &mut self,
        stream: &StreamId,
        from: Seq,
        to: Checkpoint,
    ) -> Result<(), AppliedTwice> {
        if let Some(applied) = self.applied.get(stream)
            && (applied.seq > from || order(applied) >= order(&to))
        {
            return Err(AppliedTwice { stream: stream.clone(), applied: *applied, from, to });
        }
        self.applied.insert(stream.clone(), to);
        Ok(())
    }

    /// The whole state was replaced by that at `to`.
    ///
    /// # Errors
    /// When that is older than what was there.
    pub fn replaced(&mut self, stream: &StreamId, to: Checkpoint) -> Result<(), AppliedTwice> {
        if let Some(applied) = self.applied.get(stream)
            && order(applied) > order(&to)
        {
            let from = Seq::ZERO;
            return Err(AppliedTwice { stream: stream.clone(), applied: *applied, from, to });
        }
        self.applied.insert(stream.clone(), to);
        Ok(())
    }

    /// A crash took the stream back to where it was durable; `None`: nothing was.
    pub fn fell_back(&mut self, stream: &StreamId, durable: Option<Checkpoint>) {
        match durable {
            Some(durable) => self.applied.insert(stream.clone(), durable),
            None => self.applied.remove(stream),
        };
    }
}

/// A replica moves forward in this order, whatever its seqs do.
fn order(checkpoint: &Checkpoint) -> (u64, WriterEpoch, Seq) {
    (checkpoint.log_id.number, checkpoint.epoch, checkpoint.seq)
}

#[cfg(test)]
mod tests {
    use headwater_event::LogId;
    use uuid::Uuid;

    use super::*;

    fn at(epoch: u64, seq: u64) -> Checkpoint {
        let log_id = LogId { number: 1, uuid: Uuid::from_u128(1) };
        Checkpoint { log_id, epoch: WriterEpoch(epoch), seq: Seq(seq) }
    }

    #[test]
    fn an_event_is_applied_once_unless_a_crash_undid_it() {
        let mut once = Once::default();
        let stream = StreamId::Cluster;
        assert_eq!(once.events(&stream, Seq(0), at(1, 5)), Ok(()));
        assert!(once.events(&stream, Seq(4), at(1, 6)).is_err());
        once.fell_back(&stream, Some(at(1, 4)));
        assert_eq!(once.events(&stream, Seq(4), at(1, 6)), Ok(()));
        assert!(once.replaced(&stream, at(1, 3)).is_err());
        assert_eq!(once.replaced(&stream, at(2, 3)), Ok(()));
    }
}
