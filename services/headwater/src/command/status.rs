//! `headwater status`: positions and lag of every node.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use headwater_proto::operator::{NodeStatus, StatusRequest, StatusResponse, StreamStatus};
use jiff::Timestamp;
use serde::Serialize;

use super::render;
use crate::cli::{HistoryOutput, Status};
use crate::client;
use crate::exit::{CommandResult, Outcome};
use crate::table::Table;

/// Clears the terminal and goes to its first line.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Between two prints of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// From this many nodes on, a summary stands above the table: fewer are seen at a glance.
const SUMMARY_NODES_MIN: usize = 5;

/// `status -o json`. Stable: fields are added, never renamed.
#[derive(Serialize)]
struct Document {
    nodes: Vec<Node>,
    troubles: Vec<String>,
}

#[derive(Serialize)]
struct Node {
    name: String,
    connected: bool,
    incarnation: u64,
    boot: u64,
    outbox_depth: u64,
    last_contact: Option<String>,
    last_meta_sync: Option<String>,
    trouble: Option<String>,
    streams: Vec<Stream>,
}

#[derive(Serialize)]
struct Stream {
    stream: String,
    log_id: String,
    tail: u64,
    sent: u64,
    applied: u64,
    durable: u64,
    acked: u64,
    lag_events: u64,
    lag_seconds: f64,
}

pub(super) async fn run(args: Status) -> CommandResult {
    let mut operator = client::connect(&args.target.data).await?;
    let mut stdout = std::io::stdout().lock();
    loop {
        let status = operator.status(StatusRequest {}).await?.into_inner();
        // Whole before it is printed, so that nothing flickers.
        let text = match args.output {
            HistoryOutput::Json => {
                format!("{}\n", serde_json::to_string_pretty(&document(status))?)
            }
            HistoryOutput::Table => text(&status, Timestamp::now()),
        };
        if args.watch && args.output == HistoryOutput::Table && stdout.is_terminal() {
            write!(stdout, "{CLEAR}")?;
        }
        stdout.write_all(text.as_bytes())?;
        stdout.flush()?;
        if !args.watch {
            return Ok(Outcome::Done);
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

fn text(status: &StatusResponse, now: Timestamp) -> String {
    let warnings = status.troubles.iter().map(|trouble| format!("warning: {trouble}\n"));
    let mut text: String = warnings.collect();
    if status.nodes.len() >= SUMMARY_NODES_MIN {
        text.push_str(&summary(&status.nodes));
        text.push_str("\n\n");
    }
    text + &table(&status.nodes, now).to_string()
}

/// The whole in one line.
fn summary(nodes: &[NodeStatus]) -> String {
    let count = |is: fn(&NodeStatus) -> bool| nodes.iter().filter(|node| is(node)).count();
    let streams = || nodes.iter().flat_map(|node| &node.streams);
    let behind = count(|node| node.streams.iter().any(|stream| stream.lag_events != 0));
    let outbox: u64 = nodes.iter().map(|node| node.outbox_depth).sum();
    format!(
        "{} nodes: {} connected, {} away, {} in trouble, {behind} behind (at most {} events); \
         {outbox} reports waiting",
        nodes.len(),
        count(|node| node.connected),
        count(|node| !node.connected),
        count(|node| !node.trouble.is_empty()),
        streams().map(|stream| stream.lag_events).max().unwrap_or_default(),
    )
}

/// One line a stream of a node; the node's own columns on its first.
pub(crate) fn table(nodes: &[NodeStatus], now: Timestamp) -> Table {
    let mut table = Table::new([
        "NODE",
        "CONNECTED",
        "STREAM",
        "TAIL",
        "SENT",
        "APPLIED",
        "DURABLE",
        "ACKED",
        "LAG",
        "OUTBOX",
        "LAST METASYNC",
    ]);
    for node in nodes {
        let mut own = [
            node.name.clone(),
            connected(node).to_owned(),
            node.outbox_depth.to_string(),
            since(node.last_meta_sync_ms, now),
        ];
        let unknown = StreamStatus { stream: "-".to_owned(), ..StreamStatus::default() };
        let streams =
            if node.streams.is_empty() { std::slice::from_ref(&unknown) } else { &node.streams };
        for stream in streams {
            let [name, connected, outbox, meta_sync] = std::mem::take(&mut own);
            table.row([
                name,
                connected,
                stream.stream.clone(),
                stream.tail.to_string(),
                stream.sent.to_string(),
                stream.applied.to_string(),
                stream.durable.to_string(),
                stream.acked.to_string(),
                lag(stream),
                outbox,
                meta_sync,
            ]);
        }
    }
    table
}

fn connected(node: &NodeStatus) -> &str {
    match (node.connected, node.trouble.is_empty()) {
        (true, true) => "yes",
        (false, true) => "no",
        (_, false) => &node.trouble,
    }
}

fn lag(stream: &StreamStatus) -> String {
    if stream.lag_events == 0 {
        "0".to_owned()
    } else {
        format!("{} ({:.1}s)", stream.lag_events, stream.lag_seconds)
    }
}

fn since(ms: i64, now: Timestamp) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(at) if ms != 0 => render::age(at, now),
        _ => "never".to_owned(),
    }
}

fn document(status: StatusResponse) -> Document {
    let time = |ms| (ms != 0).then(|| render::time(ms));
    let stream = |stream: StreamStatus| Stream {
        stream: stream.stream,
        log_id: stream.log_id,
        tail: stream.tail,
        sent: stream.sent,
        applied: stream.applied,
        durable: stream.durable,
        acked: stream.acked,
        lag_events: stream.lag_events,
        lag_seconds: stream.lag_seconds,
    };
    let node = |node: NodeStatus| Node {
        connected: node.connected,
        incarnation: node.incarnation,
        boot: node.boot,
        outbox_depth: node.outbox_depth,
        last_contact: time(node.last_contact_ms),
        last_meta_sync: time(node.last_meta_sync_ms),
        trouble: Some(node.trouble).filter(|trouble| !trouble.is_empty()),
        name: node.name,
        streams: node.streams.into_iter().map(stream).collect(),
    };
    Document { nodes: status.nodes.into_iter().map(node).collect(), troubles: status.troubles }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_once_however_many_streams_it_has() {
        let stream = |name: &str, lag_events| StreamStatus {
            stream: name.to_owned(),
            lag_events,
            lag_seconds: 1.25,
            ..StreamStatus::default()
        };
        let node = NodeStatus {
            name: "node-1".to_owned(),
            connected: true,
            streams: vec![stream("node/node-1", 3), stream("cluster", 0)],
            ..NodeStatus::default()
        };
        let text = table(&[node], Timestamp::UNIX_EPOCH).to_string();
        assert_eq!(text.matches("node-1").count(), 2, "the node, and its stream:\n{text}");
        assert!(text.contains("3 (1.2s)") && text.contains("never"), "{text}");
    }

    #[test]
    fn many_nodes_are_summed_up_first() {
        let node = |n: usize| NodeStatus {
            name: format!("node-{n}"),
            connected: n != 1,
            streams: vec![StreamStatus {
                lag_events: if n == 1 { 7 } else { 0 },
                ..StreamStatus::default()
            }],
            ..NodeStatus::default()
        };
        let status = |count| StatusResponse {
            nodes: (1..=count).map(node).collect(),
            troubles: vec!["the source stopped".to_owned()],
        };
        let many = text(&status(6), Timestamp::UNIX_EPOCH);
        let expected = "warning: the source stopped\n6 nodes: 5 connected, 1 away, 0 in trouble, \
                        1 behind (at most 7 events); 0 reports waiting\n\nNODE";
        assert!(many.starts_with(expected), "{many}");
        assert!(!text(&status(2), Timestamp::UNIX_EPOCH).contains("connected,"));
    }
}
