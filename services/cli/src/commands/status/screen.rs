//! The screen of `status`: the summary, then the nodes, the worst first, as many as fit.

use headwater_proto::operator::{NodeStatus, StatusResponse, StreamStatus};
use jiff::Timestamp;
use terminal_size::{Height, Width, terminal_size};

use super::summary;
use crate::args::{Sort, Status, StatusOutput};
use crate::render::{self, bytes};
use crate::table::Table;

/// The state of a node without a problem.
const IN_STEP: &str = "in step";

/// The nodes that are shown even on a small terminal.
const NODES_SHOWN_MIN: usize = 3;

/// The lines besides summary and nodes: an empty one, the header, `... and N more`, the prompt.
const LINES_BESIDES: usize = 4;

/// The size of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    lines: usize,
    /// The width. Longer lines would wrap, and a redraw would not overwrite them.
    columns: Option<usize>,
    /// Whether nodes with problems may be omitted too: the next redraw follows soon.
    strict: bool,
}

impl Room {
    /// Returns the size of the terminal; `None`: the output is not a terminal.
    pub(super) fn of_terminal(watch: bool) -> Option<Self> {
        let (Width(columns), Height(lines)) = terminal_size()?;
        Some(Self { lines: lines.into(), columns: watch.then_some(columns.into()), strict: watch })
    }
}

/// Formats the summary and as many nodes as fit.
pub(super) fn screen(
    status: &StatusResponse,
    args: &Status,
    room: Option<Room>,
    now: Timestamp,
) -> String {
    let mut text = String::new();
    // A write into a string does not fail.
    let _ = summary::write(&mut text, status);
    text.push('\n');
    let wide = args.output == StatusOutput::Wide;
    // In another order, the nodes in step are not the last ones.
    let room_for_all = room.is_none_or(|room| !room.strict && args.sort != Sort::Worst);
    let shown = match room {
        Some(room) if !room_for_all => fitting(status, wide, room, text.lines().count()),
        _ => status.nodes.len(),
    };
    let (nodes, hidden) = status.nodes.split_at(shown);
    let table = table(nodes, wide, now).without_headers(args.no_headers);
    text.push_str(&table.to_string());
    if !hidden.is_empty() {
        text.push_str(&more(hidden));
    }
    match room.and_then(|room| room.columns) {
        Some(columns) => text.lines().map(|line| cut(line, columns) + "\n").collect(),
        None => text,
    }
}

/// Returns the number of nodes that fit, from the first.
fn fitting(status: &StatusResponse, wide: bool, room: Room, summary_lines: usize) -> usize {
    let mut left = room.lines.saturating_sub(summary_lines + LINES_BESIDES);
    for (at, node) in status.nodes.iter().enumerate() {
        let may_give_way = room.strict || node.state == IN_STEP;
        let lines = shown_streams(node, wide).count().max(1);
        if at >= NODES_SHOWN_MIN && may_give_way && lines > left {
            return at;
        }
        left = left.saturating_sub(lines);
    }
    status.nodes.len()
}

fn more(hidden: &[NodeStatus]) -> String {
    if hidden.iter().all(|node| node.state == IN_STEP) {
        format!("... and {} more nodes in step\n", hidden.len())
    } else {
        format!("... and {} more nodes: {}\n", hidden.len(), summary::states(hidden))
    }
}

fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// Adds one line for each stream of a node, with the columns of the node on the first.
pub(crate) fn table(nodes: &[NodeStatus], wide: bool, now: Timestamp) -> Table {
    let mut header = vec![
        "NODE", "STATE", "STREAM", "TAIL", "SENT", "APPLIED", "DURABLE", "ACKED", "LAG", "OUTBOX",
        "METASYNC", "DISK",
    ];
    if wide {
        header.extend(["CONTACT", "BOOT", "STORE", "FREE", "HUB"]);
    }
    let mut table = Table::new(header);
    for node in nodes {
        let disk = node.disk.clone().unwrap_or_default();
        let unknown = StreamStatus { stream: "-".to_owned(), ..StreamStatus::default() };
        let mut streams: Vec<&StreamStatus> = shown_streams(node, wide).collect();
        if streams.is_empty() {
            streams.push(&unknown);
        }
        for (at, stream) in streams.into_iter().enumerate() {
            // Only the first line has the columns of the node.
            let own = |text: String| if at == 0 { text } else { String::new() };
            let mut row = vec![
                own(node.name.clone()),
                own(state(node, now)),
                stream.stream.clone(),
                known(stream.tail),
                known(stream.sent),
                stream.applied.to_string(),
                stream.durable.to_string(),
                known(stream.acked),
                lag(stream),
                own(node.outbox_depth.to_string()),
                own(since(node.last_meta_sync_ms, now)),
                own(match (&node.disk, disk.since_ms) {
                    (None, _) => "-".to_owned(),
                    (_, 0) => disk.state.clone(),
                    (_, ms) => format!("{} {}", disk.state, since(ms, now)),
                }),
            ];
            if wide {
                row.extend([
                    own(match node.last_contact_ms {
                        0 => "-".to_owned(),
                        ms => since(ms, now),
                    }),
                    own(format!("{}.{}", node.incarnation, node.boot)),
                    own(bytes(disk.store_bytes)),
                    own(bytes(disk.free_bytes)),
                    own(node.hub.clone()),
                ]);
            }
            table.row(row);
        }
    }
    table
}

/// Returns the streams to show: the private one, and others on which the node lags.
fn shown_streams(node: &NodeStatus, wide: bool) -> impl Iterator<Item = &StreamStatus> {
    let is_shown = move |(at, stream): &(usize, &StreamStatus)| {
        wide || *at == 0 || stream.lag_events.is_some_and(|lag| lag != 0)
    };
    node.streams.iter().enumerate().filter(is_shown).map(|(_, stream)| stream)
}

/// A node's state in a word; with the time for a node that is away.
fn state(node: &NodeStatus, now: Timestamp) -> String {
    match node.state.as_str() {
        "away" if node.last_contact_ms != 0 => {
            format!("away {}", since(node.last_contact_ms, now))
        }
        state => state.to_owned(),
    }
}

/// A position, if the running process knows it.
fn known(position: Option<u64>) -> String {
    position.map_or_else(|| "-".to_owned(), |position| position.to_string())
}

fn lag(stream: &StreamStatus) -> String {
    match (stream.lag_events, stream.lag_seconds) {
        (Some(0), _) => "0".to_owned(),
        (Some(events), Some(seconds)) => format!("{events} ({seconds:.1}s)"),
        (events, _) => known(events),
    }
}

/// How long ago a moment was, milliseconds since the Unix epoch.
pub(crate) fn since(ms: i64, now: Timestamp) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(at) if ms != 0 => render::age(at, now),
        _ => "never".to_owned(),
    }
}

#[cfg(test)]
mod tests;
