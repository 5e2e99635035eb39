//! Positions and lag of every node, from its hub and from the edge itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use alphanumeric_sort::compare_str;
use headwater_edge::EdgeStatus;
use headwater_event::{Checkpoint, NodeName, NodeProgress, Seq, StreamId};
use headwater_log::LogContact;
use headwater_proto::operator::{NodeStatus, StatusResponse, StreamStatus};
use headwater_view::StreamReader;
use jiff::Timestamp;

use super::{ControllerView, OperatorDependencies, disk};

/// The names of a node's states. Stable: they are in `status -o json`.
mod state {
    pub(super) const IN_STEP: &str = "in step";
    pub(super) const LAGGING: &str = "lagging";
    /// It is connected, but a part of it does not work.
    pub(super) const TROUBLED: &str = "troubled";
    pub(super) const AWAY: &str = "away";
    /// Another node has the same identity: neither is served.
    pub(super) const HELD: &str = "held";
    /// Its edge does not run.
    pub(super) const FAILED: &str = "failed";
    pub(super) const DISK_FULL: &str = "disk: full";
}

/// The code of the refusal of a held identity, in an edge's trouble.
const CLONE_REFUSED: &str = "(Clone)";

/// A log that has not answered anything for so long is a trouble: longer than the writer's heartbeats,
/// which each reader receives, are apart.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// The trouble of a node that is connected, though no object and no setting names it.
const NOT_NAMED: &str = "it is connected, but nothing is for it: no object names it, nor does the \
                         setting `nodes` of the controller; add it there, or issue its certificate for \
                         the right name";

/// Returns the positions and the disk of every node.
pub(super) async fn with_disks(dependencies: &OperatorDependencies) -> StatusResponse {
    let mut status = status(dependencies).await;
    let dirs: Vec<(usize, PathBuf)> = status
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(at, node)| {
            let node: NodeName = node.name.parse().ok()?;
            // The disks of other nodes are on other machines.
            dependencies.nodes.get(&node)?;
            Some((at, (dependencies.node_dirs)(&node)))
        })
        .collect();
    let since: BTreeMap<String, i64> = dependencies
        .nodes
        .iter()
        .filter_map(|(name, view)| Some((name.to_string(), view.trouble()?.since_ms)))
        .collect();
    let look = || dirs.into_iter().map(|(at, dir)| (at, disk::look(&dir))).collect::<Vec<_>>();
    // Listing directories blocks.
    for (at, found) in tokio::task::spawn_blocking(look).await.unwrap_or_default() {
        let node = &mut status.nodes[at];
        let since_ms = since.get(&node.name).copied().unwrap_or(0);
        let trouble = (!node.trouble.is_empty()).then_some((node.trouble.as_str(), since_ms));
        node.disk = Some(disk::judge(&found, trouble));
    }
    status
}

/// Returns the positions of the nodes whose edges run here, else of those that a hub or a
/// controller knows.
pub async fn status(dependencies: &OperatorDependencies) -> StatusResponse {
    let now_ms = (dependencies.wall_clock)();
    let mut nodes = Vec::new();
    // A hub serves any node with a certificate; only a controller knows which nodes are meant.
    let named: Option<BTreeSet<NodeName>> =
        dependencies.cloud.as_ref().map(|cloud| cloud.picture.nodes().into_iter().collect());
    let is_known = |node: &NodeName| named.as_ref().is_none_or(|named| named.contains(node));
    for (node, progress) in node_progress(dependencies, now_ms) {
        let view = dependencies.nodes.get(&node);
        let mut status = of_progress(&node, progress.as_ref());
        if let Some(edge) = view.and_then(|view| view.edge())
            && let Ok(own) = edge.status().await
        {
            add_own(&mut status, own, progress.is_some());
        }
        if let Some(trouble) = view.and_then(|view| view.trouble()) {
            status.trouble = trouble.reason;
        }
        let failed = view.is_some_and(|view| view.failure().is_some());
        if failed {
            status.connected = false;
        }
        if let Some(hub) = &dependencies.hub {
            for stream in hub.streams(&node).unwrap_or_default() {
                entry(&mut status.streams, &stream);
            }
        }
        for stream in &mut status.streams {
            measure_lag(dependencies, stream, now_ms);
        }
        // The private stream comes first, because people look for it most.
        status.streams.sort_by_key(|stream| !stream.stream.starts_with("node/"));
        if status.connected && status.last_contact_ms == 0 {
            // Nothing recorded a contact yet, but the connection is one.
            status.last_contact_ms = now_ms;
        }
        if status.trouble.is_empty() && status.connected && !is_known(&node) {
            status.trouble = NOT_NAMED.to_owned();
        }
        status.state = state_of(&status, failed).to_owned();
        nodes.push(status);
    }
    // The worst first: nodes in trouble, then nodes that are away, then the greatest lag; among equal
    // ones node-2 before node-10.
    nodes.sort_by(|a, b| compare_str(&a.name, &b.name));
    nodes.sort_by_cached_key(|node| {
        let lag = node.streams.iter().filter_map(|stream| stream.lag_events).max();
        (node.trouble.is_empty(), node.connected, Reverse(lag))
    });
    let log_id = match tail(dependencies, &StreamId::Cluster) {
        Some(tail) => tail.log_id,
        None => {
            nodes.iter().flat_map(|node| &node.streams).map(log_id_of).max().unwrap_or_default()
        }
    };
    let progress = dependencies.cloud.as_ref().map(|cloud| cloud.progress.borrow().clone());
    let hub_reconciled = dependencies.hub.as_ref().map(|hub| hub.is_reconciled());
    let writes = progress.as_ref().filter(|progress| !progress.is_standby);
    StatusResponse {
        nodes,
        troubles: troubles(dependencies, now_ms),
        notes: dependencies.notes.clone(),
        log_id,
        writer_epoch: writes.map(|progress| progress.epoch.0),
        reconciled: writes.map(|progress| progress.reconciled).or(match progress {
            Some(_) => None,
            None => hub_reconciled,
        }),
        part: dependencies.part.name().to_owned(),
        stands_by: progress.as_ref().map(|progress| progress.is_standby),
    }
}

/// The troubles of the part, among them a log that does not answer.
fn troubles(dependencies: &OperatorDependencies, now_ms: i64) -> Vec<String> {
    let mut troubles = (dependencies.troubles)();
    let logs = dependencies.logs.iter().flat_map(|logs| [&logs.downstream, &logs.upstream]);
    let contact = logs.filter_map(|log| log.contact()).reduce(LogContact::joined);
    // A reader or writer that has given up says more.
    if let Some(contact) = contact
        && troubles.iter().all(|trouble| !trouble.contains("Kafka"))
    {
        troubles.extend(silence(&contact, now_ms));
    }
    troubles
}

/// The trouble of a log that does not answer, if it lasts.
fn silence(contact: &LogContact, now_ms: i64) -> Option<String> {
    let lasts = contact.silence().filter(|lasts| *lasts >= SILENCE_MAX)?;
    let lasts_ms = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
    let since = Timestamp::from_millisecond(now_ms.saturating_sub(lasts_ms)).unwrap_or_default();
    Some(format!(
        "{} has not answered since {since:.0}; what is asked of it waits. Look at its brokers",
        contact.with
    ))
}

/// A node's state in a word: the worst that applies.
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
    } else if node.streams.iter().any(|stream| stream.lag_events.unwrap_or_default() != 0) {
        state::LAGGING
    } else {
        state::IN_STEP
    }
}

/// Returns the nodes, each with its positions from the hub or the upstream log.
fn node_progress(
    dependencies: &OperatorDependencies,
    now_ms: i64,
) -> BTreeMap<NodeName, Option<NodeProgress>> {
    let of_log = |cloud: &ControllerView| {
        cloud.picture.node_progress(now_ms).unwrap_or_else(|error| {
            tracing::warn!(%error, "the positions of the nodes cannot be read");
            BTreeMap::new()
        })
    };
    let mut known = match &dependencies.hub {
        // The hub knows positions earlier than the log.
        Some(hub) => hub.node_positions(),
        None => dependencies.cloud.as_ref().map(of_log).unwrap_or_default(),
    };
    if !dependencies.nodes.is_empty() {
        let own = dependencies.nodes.keys();
        return own.map(|node| (node.clone(), known.remove(node))).collect();
    }
    let mut all: BTreeMap<NodeName, Option<NodeProgress>> =
        known.into_iter().map(|(node, progress)| (node, Some(progress))).collect();
    if let Some(cloud) = &dependencies.cloud {
        for node in cloud.picture.nodes() {
            all.entry(node).or_default();
        }
    }
    all
}

fn of_progress(node: &NodeName, progress: Option<&NodeProgress>) -> NodeStatus {
    let Some(progress) = progress else {
        return NodeStatus { name: node.to_string(), ..NodeStatus::default() };
    };
    let streams = progress.streams.iter().map(|stream| StreamStatus {
        stream: stream.stream.to_string(),
        log_id: stream.log_id.clone(),
        tail: Some(stream.tail.0),
        sent: Some(stream.sent.0),
        applied: stream.applied.0,
        durable: stream.durable.0,
        acked: Some(stream.acked.0),
        ..StreamStatus::default()
    });
    NodeStatus {
        name: node.to_string(),
        connected: progress.connected,
        incarnation: progress.incarnation.0,
        boot: progress.boot.number,
        outbox_depth: progress.outbox_depth,
        streams: streams.collect(),
        last_contact_ms: progress.contact_ms,
        last_meta_sync_ms: progress.meta_sync_ms,
        hub: progress.hub.clone(),
        ..NodeStatus::default()
    }
}

/// Adds the status of the edge itself, which is newer than its hub's.
fn add_own(status: &mut NodeStatus, own: EdgeStatus, stands_at_hub: bool) {
    status.connected = own.connected && (status.connected || !stands_at_hub);
    status.incarnation = own.identity.incarnation.0;
    status.boot = own.identity.boot.number;
    status.outbox_depth = own.outbox_depth as u64;
    status.last_meta_sync_ms = own.last_meta_sync_ms;
    status.trouble = own.trouble.unwrap_or_default();
    if status.hub.is_empty() {
        status.hub = own.hub.unwrap_or_default();
    }
    for stream in own.streams {
        let status = entry(&mut status.streams, &stream.stream);
        raise(status, stream.applied, stream.durable);
        // A connected edge knows the end of the log from its hub.
        if own.connected && status.tail.is_none() {
            status.tail = Some(stream.tail.0);
            let lag = stream.tail.0.saturating_sub(status.applied);
            status.lag_events = Some(lag);
            status.lag_seconds = (lag == 0).then_some(0.0);
        }
    }
}

/// Raises the positions that the hub recorded to the edge's own, which are newer. The hub had sent
/// what the edge applied of its log, so the positions stay in order.
fn raise(status: &mut StreamStatus, applied: Option<Checkpoint>, durable: Seq) {
    status.durable = status.durable.max(durable.0);
    let Some(applied) = applied else { return };
    status.applied = status.applied.max(applied.seq.0);
    let log_id = applied.log_id.to_string();
    if status.log_id.is_empty() {
        status.log_id = log_id;
    } else if status.log_id == log_id {
        status.sent = status.sent.map(|sent| sent.max(applied.seq.0));
        status.tail = status.tail.map(|tail| tail.max(applied.seq.0));
    }
}

/// Returns the row of `stream`; adds it if it is missing.
fn entry<'s>(streams: &'s mut Vec<StreamStatus>, stream: &StreamId) -> &'s mut StreamStatus {
    let name = stream.to_string();
    let at = streams.iter().position(|status| status.stream == name).unwrap_or_else(|| {
        streams.push(StreamStatus { stream: name, ..StreamStatus::default() });
        streams.len() - 1
    });
    &mut streams[at]
}

/// Compares with the present end of the stream, which may be newer than the positions.
fn measure_lag(dependencies: &OperatorDependencies, status: &mut StreamStatus, now_ms: i64) {
    let Ok(stream) = status.stream.parse::<StreamId>() else { return };
    let Some(tail) = tail(dependencies, &stream) else { return };
    let end = status.tail.unwrap_or_default().max(tail.seq);
    let lag = end.saturating_sub(status.applied);
    status.tail = Some(end);
    status.log_id = tail.log_id;
    status.lag_events = Some(lag);
    // Only a hub records the times of events.
    status.lag_seconds = (lag == 0).then_some(0.0);
    if let Some(hub) = &dependencies.hub
        && let Ok(behind) = hub.lag(&stream, Seq(status.applied))
    {
        status.lag_seconds = lag_seconds(behind.since_ms, now_ms);
    }
}

/// How long ago the first event that lacks was appended; `None`: its time is unknown, and a lag since
/// 1970 would mislead. Without such an event there is no lag.
fn lag_seconds(since_ms: Option<i64>, now_ms: i64) -> Option<f64> {
    let Some(since_ms) = since_ms else { return Some(0.0) };
    let ms = (since_ms > 0).then(|| now_ms.saturating_sub(since_ms).max(0))?;
    Some(f64::from(u32::try_from(ms).unwrap_or(u32::MAX)) / 1000.0)
}

/// The end of a stream.
struct Tail {
    seq: u64,
    log_id: String,
}

/// Returns the end of a stream in the fold of this process: the hub's, else the controller's.
fn tail(dependencies: &OperatorDependencies, stream: &StreamId) -> Option<Tail> {
    let checkpoint = match (&dependencies.hub, &dependencies.cloud) {
        (Some(hub), _) => hub.lag(stream, Seq::ZERO).ok()?.tail,
        (None, Some(cloud)) => {
            StreamReader::new(&*cloud.published).position(stream).ok()?.map(|(at, _)| at)?
        }
        (None, None) => return None,
    };
    let log_id = checkpoint.log_id;
    // Logs are numbered from 1.
    let log_id = if log_id.number > 0 { log_id.to_string() } else { String::new() };
    Some(Tail { seq: checkpoint.seq.0, log_id })
}

fn log_id_of(stream: &StreamStatus) -> String {
    stream.log_id.clone()
}

#[cfg(test)]
mod tests {
    use headwater_event::{LogId, WriterEpoch};

    use super::*;

    #[test]
    fn the_positions_of_an_edge_and_the_earlier_ones_of_its_hub_are_in_order() {
        let of_log = |number| Checkpoint {
            log_id: LogId { number, uuid: Default::default() },
            epoch: WriterEpoch(1),
            seq: Seq(6),
        };
        let log_id = of_log(1).log_id.to_string();
        let recorded = StreamStatus {
            log_id,
            tail: Some(5),
            sent: Some(5),
            applied: 5,
            durable: 4,
            acked: Some(4),
            ..StreamStatus::default()
        };
        let mut status = recorded.clone();
        raise(&mut status, Some(of_log(1)), Seq(6));
        let expected =
            StreamStatus { tail: Some(6), sent: Some(6), applied: 6, durable: 6, ..recorded };
        assert_eq!(status, expected);

        // The hub has sent nothing yet of the log that replaces the edge's.
        status.sent = Some(0);
        raise(&mut status, Some(of_log(2)), Seq(6));
        assert_eq!(status.sent, Some(0));
    }

    #[test]
    fn a_lag_counts_from_the_time_of_an_event_and_not_from_1970() {
        assert_eq!(lag_seconds(None, 9_000), Some(0.0));
        assert_eq!(lag_seconds(Some(7_500), 9_000), Some(1.5));
        assert_eq!(lag_seconds(Some(9_500), 9_000), Some(0.0), "clocks differ");
        assert_eq!(lag_seconds(Some(0), 9_000), None);
    }

    #[test]
    fn the_worst_that_is_true_of_a_node_is_its_state() {
        let mut node = NodeStatus {
            streams: vec![StreamStatus { lag_events: Some(3), ..StreamStatus::default() }],
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

    #[test]
    fn a_log_is_silent_if_neither_of_its_topics_answers_what_is_asked() {
        let seconds = |count: Option<u64>| count.map(Duration::from_secs);
        let contact = |waits, answered| LogContact {
            with: "Kafka at b:1".to_owned(),
            waits: seconds(waits),
            answered: seconds(answered),
        };
        let silence_of = |contact: &LogContact| silence(contact, 9_000);
        assert_eq!(silence_of(&contact(Some(3), None)), None);
        let text = "Kafka at b:1 has not answered since 1970-01-01T00:00:05Z; what is asked of it \
                    waits. Look at its brokers";
        assert_eq!(silence_of(&contact(Some(4), None)).as_deref(), Some(text));
        assert_eq!(silence_of(&contact(Some(8), Some(4))).as_deref(), Some(text));
        assert_eq!(silence_of(&contact(Some(8), Some(1))), None, "it answers something else");
        assert_eq!(silence_of(&contact(None, Some(8))), None, "nothing is asked");
        let both = contact(Some(8), None).joined(contact(None, Some(1)));
        assert_eq!(silence_of(&both), None, "the other topic has records");
    }
}
