//! Row 22: what a log that is read through the port of the hub does to the changes of the same edge.
//!
//! A client reads the log of a pod without end; log and session share the edge, the hub and the processors, but not a
//! connection. The changes are those of row 4.

use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use headwater_daemon::free_ports;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::latency::Quantiles;
use headwater_loadtest::scenario::EdgeKind;
use headwater_loadtest::schedule::at_rate;
use headwater_loadtest::target::StreamSettings;
use serde_json::json;

use crate::bound::Bound;
use crate::cluster::{Cluster, Nodes, Taken};
use crate::figure::{Figure, RowResult};
use crate::pods::{PODS_PER_NODE, pods};
use crate::run::Run;
use crate::samples::Samples;
use crate::waiting::wait;

const OBJECT_BYTES: usize = 2 << 10;
const NODE: &str = "node-1";

/// Changes a second: a quiet row 4.
const PER_SECOND: u32 = 200;

/// A link of 100 Mbit/s.
const LINK_KIB_PER_SECOND: u64 = 12_207;

/// The pod with the log, and its container.
const POD: &str = "writer";
const CONTAINER: &str = "main";

/// The bytes of its log: less than a file that is rotated.
const LOG_BYTES: usize = 8 << 20;

/// A reader takes so many bytes at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A log that is silent for longer is not read any more.
const SILENT_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Beside,
    Alone,
}

/// A client that reads the log again and again.
struct LogReader {
    is_over: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    began: Instant,
    thread: JoinHandle<Result<(), Failure>>,
}

/// Measures it.
///
/// # Errors
/// When a change is not seen, or the log cannot be read.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let [port] = free_ports().tried("a port of the hub")?;
    let streams = StreamSettings { port, kib_per_second: LINK_KIB_PER_SECOND };
    let nodes = Nodes { count: 1, kind: EdgeKind::Real, behind_hops: 0, unmeasured: 0 };
    let objects = pods(1, PODS_PER_NODE - 1, OBJECT_BYTES);
    let count = u32::try_from(objects.len()).tried("the number of pods")?;
    let mut cluster = Cluster::start_with(nodes, objects, Some(streams))?;
    cluster.connect(1)?;
    cluster.set_up(0..count)?;
    let mut source = UnixStream::connect(cluster.objects_socket()).tried("the objects socket")?;
    source.write_all(writer().as_bytes()).tried("a pod with a log")?;
    wait("the log of the pod", || {
        let mut bytes = 0;
        let read = connect(port).and_then(|mut stream| {
            read_log(&mut stream, |count| {
                bytes += count;
                true
            })
        });
        (read.is_ok() && bytes >= LOG_BYTES as u64).then_some(())
    })?;

    let (rounds, changes, warm_up) = (run.pick(7, 15), run.pick(2_000, 10_000), PER_SECOND);
    let turns = at_rate(PER_SECOND, (0..warm_up + changes).map(|turn| turn % count));
    let measured_from = turns[warm_up as usize].at;
    let mut rate = Samples::default();
    let taken = run.turns.take(rounds, [Side::Beside, Side::Alone], |side| {
        let reader = (side == Side::Beside).then(|| LogReader::start(port));
        let taken = cluster.load(turns.clone(), measured_from)?;
        if let Some(reader) = reader {
            rate.push(reader.end()? / 1e6);
        }
        Ok(taken)
    })?;

    let mut measured = RowResult::default();
    let of = |side: usize, quantile: &dyn Fn(&Quantiles) -> Option<f64>| -> Samples {
        let ms = |round: &[Taken; 2]| quantile(&round[side].latency).unwrap_or(f64::NAN);
        taken.iter().map(ms).collect()
    };
    let limit = "the same changes alone";
    for (name, quantile, bound) in [
        ("p50", (|it: &Quantiles| it.p50_ms) as fn(&Quantiles) -> Option<f64>, None),
        ("p99", |it: &Quantiles| it.p99_ms, Some(Bound::at_most(1.1, 1.1))),
    ] {
        let what = format!("{PER_SECOND}/s beside a log that is read: ms, {name}");
        let figure = Figure::ratio(&what, of(0, &quantile), limit, of(1, &quantile)).latency();
        measured.push(match bound {
            Some(bound) => figure.held_to(bound),
            None => figure,
        });
    }
    measured.push(Figure::alone("MB/s of the log", rate));
    measured.set("pods", format!("{count} on one node, about {OBJECT_BYTES} bytes each"));
    measured.set("parts", "controller, hub, edge (RocksDB) and Kafka, a process each; no TLS");
    measured.set("log", format!("{} MiB, read again and again on one connection", LOG_BYTES >> 20));
    measured.set("link", format!("[streams] kib_per_second = {LINK_KIB_PER_SECOND}"));
    Ok(measured)
}

/// The line of the objects socket for the pod with the log.
fn writer() -> String {
    let script = format!("yes 'a line of a log' | head -c {LOG_BYTES}; exec sleep 1000000");
    let line = json!({"object": {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": POD, "namespace": "default"},
        "spec": {
            "nodeName": NODE,
            "containers": [{
                "name": CONTAINER, "image": "registry.example/writer:1",
                "command": ["/bin/sh", "-c", script],
            }],
        },
    }});
    format!("{line}\n")
}

/// The request for its log at the port of the hub; what an answer begins with, and its last chunk.
const REQUEST: &str = "GET /containerLogs/default/writer/main HTTP/1.1\r\nHost: node-1\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 ";
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

impl LogReader {
    fn start(port: u16) -> Self {
        let (is_over, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, read) = (is_over.clone(), bytes.clone());
        let reading = move || {
            // It stays connected: one stream carries everything.
            let mut stream = connect(port)?;
            while !over.load(Ordering::Relaxed) {
                read_log(&mut stream, |count| {
                    read.fetch_add(count, Ordering::Relaxed);
                    !over.load(Ordering::Relaxed)
                })?;
            }
            Ok(())
        };
        Self { is_over, bytes, began: Instant::now(), thread: thread::spawn(reading) }
    }

    /// Bytes a second.
    fn end(self) -> Result<f64, Failure> {
        let rate = self.bytes.load(Ordering::Relaxed) as f64 / self.began.elapsed().as_secs_f64();
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| Failure::of("the reader of the log died"))??;
        if rate == 0.0 { Err(Failure::of("nothing of the log was read")) } else { Ok(rate) }
    }
}

fn connect(port: u16) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(("127.0.0.1", port)).tried("the port of the hub")?;
    stream.set_read_timeout(Some(SILENT_WITHIN)).tried("a deadline")?;
    Ok(stream)
}

/// Reads the log to its end, or as long as `goes_on` with the number of the bytes that came.
fn read_log(stream: &mut TcpStream, mut goes_on: impl FnMut(u64) -> bool) -> Result<(), Failure> {
    stream.write_all(REQUEST.as_bytes()).tried("a request for the log")?;
    let (mut chunk, mut is_first, mut last) = (vec![0; CHUNK_BYTES], true, Vec::new());
    loop {
        let count = stream.read(&mut chunk).tried("the log")?;
        if count == 0 || (std::mem::take(&mut is_first) && !chunk[..count].starts_with(ANSWER)) {
            return Err(Failure::of("the hub's port does not answer with the log"));
        }
        last.extend_from_slice(&chunk[count.saturating_sub(LAST_CHUNK.len())..count]);
        last.drain(..last.len().saturating_sub(LAST_CHUNK.len()));
        if !goes_on(count as u64) || last == LAST_CHUNK {
            return Ok(());
        }
    }
}
