//! Positions and lag of every node: what its hub knows, and what it says itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headwater_event::{NodeName, NodeStanding, Seq, StreamId};
use headwater_proto::operator::{NodeStatus, StatusResponse, StreamStatus};

use super::{Sight, disk};

/// What a node's state is called. Stable: `status -o json` says it.
mod state {
    pub(super) const IN_STEP: &str = "in step";
    pub(super) const LAGGING: &str = "lagging";
    /// It is connected, but does not do all it should.
    pub(super) const TROUBLED: &str = "troubled";
    pub(super) const AWAY: &str = "away";
    /// Another node has the same identity: neither is served.
    pub(super) const HELD: &str = "held";
    /// Its edge does not run.
    pub(super) const FAILED: &str = "failed";
    pub(super) const DISK_FULL: &str = "disk: full";
}

/// What stands in an edge's trouble when its identity is held: the refusal's code.
const CLONE_REFUSED: &str = "(Clone)";

/// Where every node stands, and how its disk is.
pub(super) async fn with_disks(sight: &Sight) -> StatusResponse {
    let mut status = status(sight).await;
    let dirs: Vec<(usize, PathBuf)> = status
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(at, node)| {
            let worker = (sight.node_dirs)(&node.name.parse().ok()?);
            Some((at, worker.parent()?.to_owned()))
        })
        .collect();
    let since: BTreeMap<String, i64> = sight
        .nodes
        .iter()
        .filter_map(|(name, view)| Some((name.to_string(), view.trouble_since_ms()?)))
        .collect();
    let look = || dirs.into_iter().map(|(at, dir)| (at, disk::look(&dir))).collect::<Vec<_>>();
    // A look lists directories, which blocks.
    for (at, found) in tokio::task::spawn_blocking(look).await.unwrap_or_default() {
        let node = &mut status.nodes[at];
        let since_ms = since.get(&node.name).copied().unwrap_or(0);
        let trouble = (!node.trouble.is_empty()).then_some((node.trouble.as_str(), since_ms));
        node.disk = Some(disk::judge(&found, trouble));
    }
    status
}

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
        let failed = view.trouble();
        if let Some(trouble) = &failed {
            status.trouble.clone_from(trouble);
            status.connected = false;
        }
        for stream in sight.hub.streams(node).unwrap_or_default() {
            entry(&mut status.streams, &stream);
        }
        for stream in &mut status.streams {
            measure_lag(sight, stream, now_ms);
        }
        // A node's own stream is what is asked about most.
        status.streams.sort_by_key(|stream| !stream.stream.starts_with("node/"));
        status.state = state_of(&status, failed.is_some()).to_owned();
        nodes.push(status);
    }
    // The worst on top: whoever is in trouble, then whoever is away, then whoever lags most.
    nodes.sort_by_cached_key(|node| {
        let lag = node.streams.iter().map(|stream| stream.lag_events).max().unwrap_or_default();
        let worst_first = (node.trouble.is_empty(), node.connected, std::cmp::Reverse(lag));
        // Then node-2 before node-10.
        (worst_first, node.name.len(), node.name.clone())
    });
    let progress = sight.progress.borrow().clone();
    let log = sight.hub.lag(&StreamId::Cluster, Seq::ZERO).ok().map(|lag| lag.tail.log_id);
    StatusResponse {
        nodes,
        troubles: (sight.troubles)(),
        // Logs are numbered from 1.
        log_id: log.filter(|log| log.number > 0).map(|log| log.to_string()).unwrap_or_default(),
        writer_epoch: progress.epoch.0,
        reconciled: progress.reconciled,
    }
}

/// A node's state in a word: the worst that is true of it.
fn state_of(node: &NodeStatus, failed: bool) -> &'static str {
    if disk::is_full(&node.trouble) {
        state::DISK_FULL
    } else if node.trouble.contains(CLONE_REFUSED) {
        state::HELD
    } else if failed {
        state::FAILED
    } else if !node.connected {
        state::AWAY
    } else if !node.trouble.is_empty() {
        state::TROUBLED
    } else if node.streams.iter().any(|stream| stream.lag_events != 0) {
        state::LAGGING
    } else {
        state::IN_STEP
    }
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
        ..NodeStatus::default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_that_is_true_of_a_node_is_its_state() {
        let mut node = NodeStatus {
            streams: vec![StreamStatus { lag_events: 3, ..StreamStatus::default() }],
            ..NodeStatus::default()
        };
        assert_eq!(state_of(&node, false), state::AWAY);
        node.connected = true;
        assert_eq!(state_of(&node, false), state::LAGGING);
        node.streams.clear();
        assert_eq!(state_of(&node, false), state::IN_STEP);
        node.trouble = "the hub refused the session (Clone): another node".to_owned();
        assert_eq!(state_of(&node, false), state::HELD);
        node.trouble = "disk: full".to_owned();
        assert_eq!(state_of(&node, true), state::DISK_FULL);
        node.trouble = "the Outbox database failed".to_owned();
        assert_eq!(state_of(&node, true), state::FAILED);
    }
}
