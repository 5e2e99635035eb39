//! How far a node is behind.

use headwater_proto::operator::NodeStatus;

/// The most events that a node lacks of a stream.
pub(super) fn lag_events(node: &NodeStatus) -> u64 {
    node.streams.iter().filter_map(|stream| stream.lag_events).max().unwrap_or_default()
}

/// For how long a node has lacked events of a stream.
pub(super) fn lag_seconds(node: &NodeStatus) -> f64 {
    let behind = node.streams.iter().filter(|stream| stream.lag_events != Some(0));
    behind.filter_map(|stream| stream.lag_seconds).fold(0.0, f64::max)
}
