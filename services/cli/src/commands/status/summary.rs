//! The summary of the fleet, above the nodes.

use std::collections::BTreeSet;
use std::fmt;

use headwater_proto::operator::{DiskStatus, NodeStatus, StatusResponse};
use serde::Serialize;

use super::lag::{lag_events, lag_seconds};
use crate::render::plain;

/// The order of states in the counts: the best first, the worst last.
const STATES: [&str; 7] =
    ["in step", "lagging", "troubled", "away", "held", "failed", "disk: full"];

/// The most troubles in the summary; the rest is counted. `-o json` has all of them.
const TROUBLES_SHOWN_MAX: usize = 5;

/// The most nodes in one line; the rest is counted.
const NAMES_SHOWN_MAX: usize = 3;

/// The fleet in figures. Stable: it is part of `status -o json`.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) nodes: usize,
    pub(super) connected: usize,
    pub(super) in_step: usize,
    pub(super) lagging: usize,
    pub(super) away: usize,
    pub(super) held: usize,
    pub(super) lag_events_max: u64,
    pub(super) lag_seconds_max: f64,
    pub(super) outbox_depth: u64,
}

impl Summary {
    pub(super) fn of(nodes: &[NodeStatus]) -> Self {
        let count = |state: &str| nodes.iter().filter(|node| node.state == state).count();
        Self {
            nodes: nodes.len(),
            connected: nodes.iter().filter(|node| node.connected).count(),
            in_step: count("in step"),
            lagging: count("lagging"),
            away: count("away"),
            held: count("held"),
            lag_events_max: nodes.iter().map(lag_events).max().unwrap_or_default(),
            lag_seconds_max: nodes.iter().map(lag_seconds).fold(0.0, f64::max),
            outbox_depth: nodes.iter().map(|node| node.outbox_depth).sum(),
        }
    }
}

/// The number of nodes in each state: `3 lagging, 1 away`.
pub(super) fn states(nodes: &[NodeStatus]) -> String {
    let known = STATES.iter().filter_map(|state| {
        let count = nodes.iter().filter(|node| node.state == *state).count();
        (count > 0).then(|| format!("{count} {state}"))
    });
    known.collect::<Vec<_>>().join(", ")
}

/// Writes the summary for people: a word, then the value.
pub(super) fn write(f: &mut impl fmt::Write, status: &StatusResponse) -> fmt::Result {
    let nodes = &status.nodes;
    let Summary { connected, lag_events_max, lag_seconds_max, outbox_depth, .. } =
        Summary::of(nodes);
    writeln!(f, "nodes    {connected} of {} connected: {}", nodes.len(), states(nodes))?;
    if lag_events_max == 0 {
        writeln!(f, "lag      none")?;
    } else {
        // Of several equal nodes, the first one, which is on top.
        let most = nodes.iter().rev().max_by_key(|node| lag_events(node));
        let longest = nodes.iter().rev().max_by(|a, b| lag_seconds(a).total_cmp(&lag_seconds(b)));
        let name = |node: Option<&NodeStatus>| node.map_or("", |node| &node.name).to_owned();
        writeln!(
            f,
            "lag      at most {} ({}), {lag_seconds_max:.1}s ({})",
            counted(lag_events_max, "event"),
            name(most),
            name(longest)
        )?;
    }
    let waiting = nodes.iter().filter(|node| node.outbox_depth > 0).count();
    match waiting {
        0 => writeln!(f, "outbox   empty")?,
        _ => writeln!(
            f,
            "outbox   {} waiting at {}",
            counted(outbox_depth, "report"),
            counted(waiting as u64, "node")
        )?,
    }
    let parts =
        [Some(status.log_id.as_str()).filter(|id| !id.is_empty()), writer(status).as_deref()]
            .map(|parts| parts.map(str::to_owned));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        writeln!(f, "log      {}", parts.join(", "))?;
    }
    // Only an edge has one hub; a fleet's hubs are in the rows of its nodes.
    if let ("edge", [node]) = (status.part.as_str(), nodes.as_slice()) {
        let hub = if node.hub.is_empty() { "none yet" } else { node.hub.as_str() };
        writeln!(f, "hub      {}", plain(hub))?;
    }
    write_disks(f, nodes)?;
    write_troubles(f, status)?;
    status.notes.iter().try_for_each(|note| writeln!(f, "note     {}", plain(note)))
}

/// The writer of the log, as far as the running process knows it.
fn writer(status: &StatusResponse) -> Option<String> {
    Some(match (status.writer_epoch, status.reconciled) {
        _ if status.stands_by == Some(true) => {
            "written by another controller: this one is a standby".to_owned()
        }
        (Some(0), _) => "no writer yet".to_owned(),
        (Some(epoch), Some(false)) => {
            format!("writer epoch {epoch}, not everything is published yet")
        }
        (Some(epoch), _) => format!("writer epoch {epoch}"),
        (None, Some(true)) => "folded to its end".to_owned(),
        (None, Some(false)) => "not folded to its end yet".to_owned(),
        (None, None) => return None,
    })
}

/// The disks with problems, each with advice; nothing if there are none.
fn write_disks(f: &mut impl fmt::Write, nodes: &[NodeStatus]) -> fmt::Result {
    let not_well = |node: &NodeStatus| {
        node.disk.as_ref().is_some_and(|disk| !disk.state.is_empty() && disk.state != "ok")
    };
    let mut nodes: Vec<&NodeStatus> = nodes.iter().filter(|node| not_well(node)).collect();
    let disk = |node: &NodeStatus| node.disk.clone().unwrap_or_default();
    let line = |node: &NodeStatus| (disk(node).state, disk(node).advice);
    nodes.sort_by_cached_key(|node| line(node));
    for alike in nodes.chunk_by(|a, b| line(a) == line(b)) {
        let names: Vec<&str> = alike.iter().map(|node| node.name.as_str()).collect();
        let DiskStatus { state, advice, .. } = disk(alike[0]);
        writeln!(f, "disk     {state}: {}: {}", some_of(&names), plain(&advice))?;
    }
    Ok(())
}

/// Whether the line of its disk has the trouble of a node.
fn is_of_disk(node: &NodeStatus) -> bool {
    let Some(disk) = &node.disk else { return false };
    match disk.state.as_str() {
        "full" => node.state == "disk: full",
        "failed" => disk.advice.starts_with(&node.trouble),
        _ => false,
    }
}

fn write_troubles(f: &mut impl fmt::Write, status: &StatusResponse) -> fmt::Result {
    let of_nodes = status.nodes.iter().filter(|node| !node.trouble.is_empty() && !is_of_disk(node));
    let of_nodes = of_nodes.map(|node| format!("{}: {}", node.name, node.trouble));
    let mut seen = BTreeSet::new();
    let all = status.troubles.iter().cloned().chain(of_nodes);
    let troubles: Vec<String> = all.filter(|trouble| seen.insert(trouble.clone())).collect();
    for trouble in troubles.iter().take(TROUBLES_SHOWN_MAX) {
        writeln!(f, "trouble  {}", plain(trouble))?;
    }
    match troubles.len().saturating_sub(TROUBLES_SHOWN_MAX) {
        0 => Ok(()),
        more => {
            let more = counted(more as u64, "more trouble");
            writeln!(f, "         ... and {more} (see -o json)")
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn some_of(names: &[&str]) -> String {
    let shown = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use headwater_proto::operator::StreamStatus;

    use super::*;

    fn text(status: &StatusResponse) -> String {
        let mut text = String::new();
        write(&mut text, status).expect("a write into a string succeeds");
        text
    }

    fn node(name: &str, state: &str, lag_events: u64) -> NodeStatus {
        let stream = StreamStatus {
            lag_events: Some(lag_events),
            lag_seconds: Some(1.25),
            ..StreamStatus::default()
        };
        NodeStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            connected: state != "away",
            streams: vec![stream],
            ..NodeStatus::default()
        }
    }

    #[test]
    fn a_fleet_that_is_well_takes_four_lines() {
        let mut well = node("a", "in step", 0);
        well.streams.clear();
        let status = StatusResponse {
            nodes: vec![well],
            log_id: "1/6f1c".to_owned(),
            writer_epoch: Some(3),
            reconciled: Some(true),
            ..StatusResponse::default()
        };
        assert_eq!(
            text(&status),
            "nodes    1 of 1 connected: 1 in step\nlag      none\noutbox   empty\n\
             log      1/6f1c, writer epoch 3\n"
        );
    }

    #[test]
    fn a_summary_counts_and_names_each_problem_with_its_remedy() {
        let mut full = node("b", "disk: full", 0);
        full.trouble = "disk: full\u{1b}[31m".to_owned();
        full.disk = Some(DiskStatus {
            state: "full".to_owned(),
            advice: "make room".to_owned(),
            ..DiskStatus::default()
        });
        full.outbox_depth = 4;
        let status = StatusResponse {
            nodes: vec![full, node("c", "away", 7), node("d", "lagging", 2)],
            troubles: (0..6).map(|n| format!("trouble {n}")).collect(),
            notes: vec!["pods share\u{1b} rights".to_owned()],
            writer_epoch: Some(0),
            ..StatusResponse::default()
        };
        let text = text(&status);
        for expected in [
            "nodes    2 of 3 connected: 1 lagging, 1 away, 1 disk: full\n",
            "lag      at most 7 events (c), 1.2s (c)",
            "outbox   4 reports waiting at 1 node\n",
            "log      no writer yet\n",
            "disk     full: b: make room\n",
            "trouble  trouble 0\n",
            "... and 1 more trouble ",
            "note     pods share",
        ] {
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn one_trouble_takes_one_line() {
        let failed = |name: &str| {
            let mut node = node(name, "failed", 0);
            node.trouble = "the State database failed".to_owned();
            node
        };
        let mut with_disk = failed("a");
        with_disk.disk = Some(DiskStatus {
            state: "failed".to_owned(),
            advice: "the State database failed; the node retries until it succeeds".to_owned(),
            ..DiskStatus::default()
        });
        let status = StatusResponse {
            nodes: vec![with_disk, failed("b")],
            troubles: vec!["b: the State database failed".to_owned(); 2],
            ..StatusResponse::default()
        };
        let text = text(&status);
        assert_eq!(text.matches("the State database failed").count(), 2, "{text}");
        assert!(text.contains("disk     failed: a: "), "{text}");
        assert!(text.contains("trouble  b: the State database failed\n"), "{text}");
    }
}
