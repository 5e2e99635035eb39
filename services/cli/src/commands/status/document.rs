//! The document of `status -o json`. Stable: fields are added, never renamed. A value that the
//! running process does not know is null.

use headwater_proto::operator::{DiskStatus, NodeStatus, StatusResponse, StreamStatus};
use serde::Serialize;

use super::summary::Summary;
use crate::render;

#[derive(Serialize)]
pub(super) struct Document {
    summary: Summary,
    log_id: Option<String>,
    part: Option<String>,
    writer_epoch: Option<u64>,
    reconciled: Option<bool>,
    stands_by: Option<bool>,
    nodes: Vec<Node>,
    troubles: Vec<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Node {
    name: String,
    state: String,
    connected: bool,
    hub: Option<String>,
    incarnation: u64,
    boot: u64,
    outbox_depth: u64,
    last_contact: Option<String>,
    last_meta_sync: Option<String>,
    trouble: Option<String>,
    disk: Option<Disk>,
    streams: Vec<Stream>,
}

#[derive(Serialize)]
struct Disk {
    state: String,
    since: Option<String>,
    advice: Option<String>,
    free_bytes: u64,
    store_bytes: u64,
}

#[derive(Serialize)]
struct Stream {
    stream: String,
    log_id: Option<String>,
    tail: Option<u64>,
    sent: Option<u64>,
    applied: u64,
    durable: u64,
    acked: Option<u64>,
    lag_events: Option<u64>,
    lag_seconds: Option<f64>,
}

/// Returns the document of a status.
pub(super) fn document(status: StatusResponse) -> Document {
    Document {
        summary: Summary::of(&status.nodes),
        log_id: some(status.log_id),
        part: some(status.part),
        writer_epoch: status.writer_epoch,
        reconciled: status.reconciled,
        stands_by: status.stands_by,
        nodes: status.nodes.into_iter().map(node).collect(),
        troubles: status.troubles,
        notes: status.notes,
    }
}

fn node(node: NodeStatus) -> Node {
    Node {
        name: node.name,
        state: node.state,
        connected: node.connected,
        hub: some(node.hub),
        incarnation: node.incarnation,
        boot: node.boot,
        outbox_depth: node.outbox_depth,
        last_contact: time(node.last_contact_ms),
        last_meta_sync: time(node.last_meta_sync_ms),
        trouble: some(node.trouble),
        disk: node.disk.map(disk),
        streams: node.streams.into_iter().map(stream).collect(),
    }
}

fn disk(disk: DiskStatus) -> Disk {
    Disk {
        state: disk.state,
        since: time(disk.since_ms),
        advice: some(disk.advice),
        free_bytes: disk.free_bytes,
        store_bytes: disk.store_bytes,
    }
}

fn stream(stream: StreamStatus) -> Stream {
    Stream {
        stream: stream.stream,
        log_id: some(stream.log_id),
        tail: stream.tail,
        sent: stream.sent,
        applied: stream.applied,
        durable: stream.durable,
        acked: stream.acked,
        lag_events: stream.lag_events,
        lag_seconds: stream.lag_seconds,
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn time(ms: i64) -> Option<String> {
    (ms != 0).then(|| render::time(ms))
}
