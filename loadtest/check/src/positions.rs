//! The position inequality of an accepted session:
//! `acked <= durable <= applied <= received <= sent <= tail`.

use headwater_event::{Seq, StreamId};

/// All positions of one stream at one moment, each as its holder knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// What the hub took as acknowledged.
    pub acked: Seq,
    /// What the edge synced.
    pub durable: Seq,
    /// What the edge applied.
    pub applied: Seq,
    /// What the edge received whole.
    pub received: Seq,
    /// What the hub sent.
    pub sent: Seq,
    /// Where the stream ends in the hub's fold.
    pub tail: Seq,
}

/// A position above one that bounds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stream}: {lower_name} {lower} is above {upper_name} {upper}")]
pub struct OutOfOrder {
    /// The stream.
    pub stream: StreamId,
    /// The position that must not be above.
    pub lower_name: &'static str,
    /// Its value.
    pub lower: Seq,
    /// The position that must not be below.
    pub upper_name: &'static str,
    /// Its value.
    pub upper: Seq,
}

impl Positions {
    /// Checks the inequality from left to right.
    ///
    /// # Errors
    /// Names the first pair that breaks it.
    pub fn check(&self, stream: &StreamId) -> Result<(), OutOfOrder> {
        let chain = [
            ("acked", self.acked),
            ("durable", self.durable),
            ("applied", self.applied),
            ("received", self.received),
            ("sent", self.sent),
            ("tail", self.tail),
        ];
        for pair in chain.windows(2) {
            let [(lower_name, lower), (upper_name, upper)] = pair else { continue };
            if lower > upper {
                return Err(OutOfOrder {
                    stream: stream.clone(),
                    lower_name,
                    lower: *lower,
                    upper_name,
                    upper: *upper,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pair_that_breaks_is_named() {
        let mut positions = Positions { tail: Seq(3), sent: Seq(3), ..Positions::default() };
        assert_eq!(positions.check(&StreamId::Cluster), Ok(()));
        positions.durable = Seq(1);
        let broken = positions.check(&StreamId::Cluster).expect_err("durable above applied");
        assert_eq!((broken.lower_name, broken.upper_name), ("durable", "applied"));
    }
}
