//! From the moment a change was to be said to the moment a worker at the node sees it.
//!
//! Open loop: each change has its moment from the beginning, and its latency counts from there,
//! whenever it was really written, so a stall is felt by every change that it delays. A change
//! enters through the objects socket; it is seen through a watch of the edge's local API, which
//! tells nothing that is not synced in the edge's RocksDB.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use headwater_e2e::running::Running;
use headwater_proto::local::WatchRequest;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::watch_event::Kind;
use serde_json::{Value, json};
use tonic::transport::Endpoint;

use crate::pods::{PODS_PER_NODE, pod};
use crate::table::{Row, print};

const PER_SECOND: u32 = 200;
const CHANGES: u64 = 6_000;

/// Changes before the first that counts.
const WARM_UP: u64 = 400;

/// What a change waits for on disk: the log's sync, then the edge's.
const SYNCS: f64 = 2.0;

/// Microseconds to a minute, three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("bounds in order")
}

#[test]
#[ignore = "a measurement: half a minute, and the machine for itself"]
fn propagation() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("objects.sock");
    let path = socket.display().to_string();
    let running = Running::start(&["--objects", &path, "--nodes", "1", "--runtime", "hollow"]);
    let mut source = running.wait_for("the objects socket", |_| UnixStream::connect(&socket).ok());
    for number in 0..PODS_PER_NODE {
        say(&mut source, number, 0);
    }
    running.wait_for_pods(PODS_PER_NODE, |status| status == "Running");
    running.wait_until_in_step();

    let before = sync_latency(folder.path());
    let began = Instant::now() + Duration::from_millis(100);
    let edge = running.data().join("nodes/node-1/edge.sock");
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    let watching = thread::spawn(move || watch(&edge, began, &ready));
    is_ready.recv().expect("the watch begins");
    let lag = drive(&mut source, began);
    let (latency, seen) = watching.join().expect("the watch goes on");
    let mut syncs = sync_latency(folder.path());
    syncs.add(before).expect("the same bounds");

    let count = usize::try_from(seen).unwrap_or(usize::MAX);
    let ms = |of: &Histogram<u64>, quantile| of.value_at_quantile(quantile) as f64 / 1e3;
    let row = |figure, quantile| {
        let (limit, value) = (SYNCS * ms(&syncs, quantile), ms(&latency, quantile));
        let ratio = format!("{:.2}", value / limit);
        Row { figure, limit: format!("{limit:.2}"), value: format!("{value:.2}"), ratio, count }
    };
    let late = |figure, quantile| {
        let value = format!("{:.2}", ms(&lag, quantile));
        Row { figure, limit: "-".to_owned(), value, ratio: "-".to_owned(), count }
    };
    print(
        &format!("append to visible, ms, {PER_SECOND} changes/s (limit: {SYNCS} bare fdatasyncs)"),
        &[
            row("p50", 0.5),
            row("p90", 0.9),
            row("p99", 0.99),
            row("max", 1.0),
            late("the generator's own lag, p50", 0.5),
            late("the generator's own lag, p99", 0.99),
        ],
    );
}

/// The moment of a change.
fn moment(began: Instant, turn: u64) -> Instant {
    began + Duration::from_secs(turn) / PER_SECOND
}

/// Says every change at its moment. Gives how late it was.
fn drive(source: &mut UnixStream, began: Instant) -> Histogram<u64> {
    let mut lag = histogram();
    for turn in 1..=CHANGES {
        let moment = moment(began, turn);
        thread::sleep(moment.saturating_duration_since(Instant::now()));
        let late = moment.elapsed();
        say(source, turn as usize % PODS_PER_NODE, turn);
        if turn > WARM_UP {
            lag.saturating_record(micros(late));
        }
    }
    lag
}

fn say(source: &mut UnixStream, number: usize, turn: u64) {
    let mut line = json!({ "object": pod(1, number, turn) }).to_string();
    line.push('\n');
    source.write_all(line.as_bytes()).expect("the source listens");
}

/// Watches until the last change. Gives how long after its moment each was seen, and how many
/// were: a change that a later one of its pod overtook is not told.
fn watch(
    socket: &Path,
    began: Instant,
    ready: &std::sync::mpsc::SyncSender<()>,
) -> (Histogram<u64>, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
        let channel = endpoint.expect("an address").connect().await.expect("the edge answers");
        let request = WatchRequest {
            subscriber: "edged".to_owned(),
            types: vec!["pod".to_owned()],
            ..WatchRequest::default()
        };
        let watching = MetaClient::new(channel).watch(request).await;
        let mut events = watching.expect("watches").into_inner();
        let mut latency = histogram();
        while let Some(event) = events.message().await.expect("the watch goes on") {
            match event.kind() {
                Kind::InitDone => ready.send(()).expect("somebody waits"),
                Kind::Apply => {
                    let now = Instant::now();
                    let turn = turn_of(&event.object.expect("an object").object);
                    if turn > WARM_UP {
                        latency.saturating_record(micros(now - moment(began, turn)));
                    }
                    if turn == CHANGES {
                        break;
                    }
                }
                _ => {}
            }
        }
        let seen = latency.len();
        assert!(seen * 100 >= (CHANGES - WARM_UP) * 99, "{seen} changes were seen");
        (latency, seen)
    })
}

fn turn_of(object: &[u8]) -> u64 {
    let object: Value = serde_json::from_slice(object).expect("JSON");
    let turn = object["metadata"]["annotations"]["turn"].as_str();
    turn.and_then(|turn| turn.parse().ok()).expect("a turn")
}

/// What a write of one object's bytes and its sync take on this disk.
fn sync_latency(folder: &Path) -> Histogram<u64> {
    let mut file = File::create(folder.join("syncs")).expect("a file");
    let mut taken = histogram();
    for _ in 0..500 {
        let began = Instant::now();
        file.write_all(&[7; 1_500]).expect("written");
        file.sync_data().expect("synced");
        taken.saturating_record(micros(began.elapsed()));
        thread::sleep(Duration::from_millis(2));
    }
    taken
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
