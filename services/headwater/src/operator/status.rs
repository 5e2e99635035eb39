//! Positions and lag of every node: what its hub knows, and what it says itself.

use headwater_event::{NodeName, NodeStanding, Seq, StreamId};
use headwater_proto::operator::{NodeStatus, StatusResponse, StreamStatus};

use super::Sight;

/// Where every node stands.
pub(crate) async fn status(sight: &Sight) -> StatusResponse {
    let now_ms = (sight.wall_clock)();
    let standings = sight.hub.standings();
    let mut nodes = Vec::new();
    for (node, view) in sight.nodes.iter() {
        let mut status = of_standing(node, standings.get(node));
        if let Some(edge) = view.edge()
            && let Ok(own) = edge.status().await
        {
            status.connected &= own.connected;
            status.incarnation = own.identity.incarnation.0;
            status.boot = own.identity.boot.number;
            status.outbox_depth = own.outbox_depth as u64;
            status.last_meta_sync_ms = own.last_meta_sync_ms;
            status.trouble = own.trouble.unwrap_or_default();
            for stream in own.streams {
                // The edge knows of itself before the hub does.
                let status = entry(&mut status.streams, &stream.stream);
                let applied = stream.applied.map_or(Seq::ZERO, |checkpoint| checkpoint.seq);
                status.applied = status.applied.max(applied.0);
                status.durable = status.durable.max(stream.durable.0);
            }
        }
        if let Some(trouble) = view.trouble() {
            status.trouble = trouble;
            status.connected = false;
        }
        for stream in sight.hub.streams(node).unwrap_or_default() {
            entry(&mut status.streams, &stream);
        }
        for stream in &mut status.streams {
            measure_lag(sight, stream, now_ms);
        }
        nodes.push(status);
    }
    // The worst on top: whoever is in trouble, then whoever is away, then whoever lags most.
    nodes.sort_by_key(|node| {
        let lag = node.streams.iter().map(|stream| stream.lag_events).max().unwrap_or_default();
        let worst_first = (node.trouble.is_empty(), node.connected, std::cmp::Reverse(lag));
        // Then node-2 before node-10.
        (worst_first, node.name.len(), node.name.clone())
    });
    StatusResponse { nodes, troubles: (sight.troubles)() }
}

fn of_standing(node: &NodeName, standing: Option<&NodeStanding>) -> NodeStatus {
    let Some(standing) = standing else {
        return NodeStatus { name: node.to_string(), ..NodeStatus::default() };
    };
    let streams = standing.streams.iter().map(|stream| StreamStatus {
        stream: stream.stream.to_string(),
        log_id: stream.log_id.clone(),
        tail: stream.tail.0,
        sent: stream.sent.0,
        applied: stream.applied.0,
        durable: stream.durable.0,
        acked: stream.acked.0,
        ..StreamStatus::default()
    });
    NodeStatus {
        name: node.to_string(),
        connected: standing.connected,
        incarnation: standing.incarnation.0,
        boot: standing.boot.number,
        outbox_depth: standing.outbox_depth,
        streams: streams.collect(),
        last_contact_ms: standing.contact_ms,
        last_meta_sync_ms: standing.meta_sync_ms,
        trouble: String::new(),
    }
}

/// The row of `stream`, made if it is not there yet.
fn entry<'s>(streams: &'s mut Vec<StreamStatus>, stream: &StreamId) -> &'s mut StreamStatus {
    let name = stream.to_string();
    let at = streams.iter().position(|status| status.stream == name).unwrap_or_else(|| {
        streams.push(StreamStatus { stream: name, ..StreamStatus::default() });
        streams.len() - 1
    });
    &mut streams[at]
}

/// Compares with the end of the stream as it is now; a standing may be older than that.
fn measure_lag(sight: &Sight, status: &mut StreamStatus, now_ms: i64) {
    let Ok(stream) = status.stream.parse::<StreamId>() else { return };
    let Ok(lag) = sight.hub.lag(&stream, Seq(status.applied)) else { return };
    status.tail = status.tail.max(lag.tail.seq.0);
    status.log_id = lag.tail.log_id.to_string();
    status.lag_events = status.tail.saturating_sub(status.applied);
    if let Some(since_ms) = lag.since_ms {
        let ms = u32::try_from(now_ms.saturating_sub(since_ms).max(0)).unwrap_or(u32::MAX);
        status.lag_seconds = f64::from(ms) / 1000.0;
    }
}
