//! I8: what is acknowledged, and what is acted on, is durable.

use headwater_event::{NodeName, Seq, StreamId};

/// Something was done from above the durable position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I8 node {node}, {stream}: {what} seq {seq}, durable is {durable}")]
pub struct NotDurable {
    /// The node.
    pub node: NodeName,
    /// The stream.
    pub stream: StreamId,
    /// What was done: "acknowledged", "started a pod from".
    pub what: &'static str,
    /// From which position.
    pub seq: Seq,
    /// What was durable at that time.
    pub durable: Seq,
}

/// `what` was done on the strength of `seq` while `durable` was synced.
///
/// # Errors
/// When `seq` is above.
pub fn check(
    node: &NodeName,
    stream: &StreamId,
    what: &'static str,
    seq: Seq,
    durable: Seq,
) -> Result<(), NotDurable> {
    if seq <= durable {
        return Ok(());
    }
    Err(NotDurable { node: node.clone(), stream: stream.clone(), what, seq, durable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_acknowledged_before_it_is_synced() {
        let node: NodeName = "a".parse().expect("well-formed");
        let check =
            |seq, durable| check(&node, &StreamId::Cluster, "acknowledged", Seq(seq), Seq(durable));
        assert!(check(4, 4).is_ok());
        assert!(check(5, 4).is_err());
    }
}
