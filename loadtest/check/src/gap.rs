//! I7: an event is applied only at the replica's position: a gap stops the stream.

use headwater_event::{Seq, StreamId};

/// Events that were applied at another position than that of the replica.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I7 {stream}: ({from}, {to}] was applied while the replica was at {applied}")]
pub struct Gap {
    /// The stream.
    pub stream: StreamId,
    /// The exclusive start of the events.
    pub from: Seq,
    /// Their end.
    pub to: Seq,
    /// The position of the replica.
    pub applied: Seq,
}

/// Events of `(from, to]` were applied on a replica at `applied`.
///
/// # Errors
/// When they do not continue it.
pub fn check(stream: &StreamId, from: Seq, to: Seq, applied: Seq) -> Result<(), Gap> {
    if from == applied && to > from {
        return Ok(());
    }
    Err(Gap { stream: stream.clone(), from, to, applied })
}

/// The seqs that a reader saw are dense.
///
/// # Errors
/// Names the first gap.
pub fn check_dense(
    stream: &StreamId,
    from: Seq,
    seqs: impl IntoIterator<Item = Seq>,
) -> Result<(), Gap> {
    let mut applied = from;
    for to in seqs {
        if to.0.checked_sub(applied.0) != Some(1) {
            return Err(Gap {
                stream: stream.clone(),
                from: Seq(to.0.saturating_sub(1)),
                to,
                applied,
            });
        }
        applied = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_continue_at_the_position_of_the_replica() {
        let stream = StreamId::Cluster;
        assert!(check(&stream, Seq(4), Seq(6), Seq(4)).is_ok());
        assert!(check(&stream, Seq(5), Seq(6), Seq(4)).is_err());
        assert!(check(&stream, Seq(3), Seq(6), Seq(4)).is_err());
        assert!(check_dense(&stream, Seq(1), [Seq(2), Seq(3)]).is_ok());
        assert!(check_dense(&stream, Seq(1), [Seq(2), Seq(4)]).is_err());
    }
}
