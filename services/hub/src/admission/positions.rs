//! Which position of a node is kept when its session ends.

use headwater_event::{NodeProgress, NodeStreamProgress};

/// The last position of a session, without the streams whose numbers are not ordered:
/// `acked <= durable <= applied <= sent <= tail` holds in every stream of the result.
///
/// Numbers are of two histories while a snapshot is due or partly sent, and when the edge is ahead
/// of the hub. Such a stream keeps its position from `before`, if that one is ordered.
pub(super) fn last_consistent(before: Option<&NodeProgress>, last: NodeProgress) -> NodeProgress {
    let streams = last.streams.into_iter().filter_map(|stream| {
        if is_ordered(&stream) {
            return Some(stream);
        }
        let mut before = before?.streams.iter();
        before.find(|kept| kept.stream == stream.stream && is_ordered(kept)).cloned()
    });
    NodeProgress { streams: streams.collect(), ..last }
}

fn is_ordered(stream: &NodeStreamProgress) -> bool {
    let NodeStreamProgress { acked, durable, applied, sent, tail, .. } = stream;
    [acked, durable, applied, sent, tail].is_sorted()
}

#[cfg(test)]
mod tests {
    use headwater_event::{Boot, Incarnation, Seq, StreamId};

    use super::*;

    fn position(positions: &[(StreamId, [u64; 5])]) -> NodeProgress {
        let stream = |(stream, [acked, durable, applied, sent, tail]): &(StreamId, [u64; 5])| {
            NodeStreamProgress {
                stream: stream.clone(),
                log_id: String::new(),
                tail: Seq(*tail),
                sent: Seq(*sent),
                applied: Seq(*applied),
                durable: Seq(*durable),
                acked: Seq(*acked),
            }
        };
        NodeProgress {
            hub: String::new(),
            connected: false,
            incarnation: Incarnation(1),
            boot: Boot { number: 1, nonce: 1 },
            connection: 0,
            outbox_depth: 0,
            contact_ms: 0,
            meta_sync_ms: 0,
            consumes_cluster: None,
            streams: positions.iter().map(stream).collect(),
        }
    }

    #[test]
    fn positions_of_two_histories_do_not_replace_a_kept_one() {
        let node: StreamId = "node/a".parse().expect("a stream");
        let before = position(&[(node.clone(), [1, 2, 3, 4, 5])]);
        let in_order = position(&[(node.clone(), [5, 5, 6, 7, 7])]);
        assert_eq!(last_consistent(Some(&before), in_order.clone()), in_order);
        let ahead = [(node.clone(), [9, 9, 9, 9, 5]), (StreamId::Cluster, [0, 0, 0, 8, 3])];
        assert_eq!(last_consistent(Some(&before), position(&ahead)), before);
        assert_eq!(last_consistent(None, position(&ahead)), position(&[]));
    }
}
