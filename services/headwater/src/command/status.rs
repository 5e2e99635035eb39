//! `headwater status`: positions and lag of every node.

use headwater_proto::operator::{NodeStatus, StatusRequest, StatusResponse, StreamStatus};
use jiff::Timestamp;
use serde::Serialize;

use super::render;
use crate::cli::{HistoryOutput, Status};
use crate::client;
use crate::exit::{CommandResult, Outcome};
use crate::table::Table;

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
    let status = operator.status(StatusRequest {}).await?.into_inner();
    match args.output {
        HistoryOutput::Json => println!("{}", serde_json::to_string_pretty(&document(status))?),
        HistoryOutput::Table => {
            for trouble in &status.troubles {
                eprintln!("warning: {trouble}");
            }
            print!("{}", table(&status.nodes, Timestamp::now()));
        }
    }
    Ok(Outcome::Done)
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
}
