//! Row 22: what a log that is read through the port of the hub does to the changes of the same edge.
//!
//! A client reads the log of a pod without end; log and session share the edge, the hub and the processors, but not a
//! connection. The changes are those of row 4.

use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use headwater_daemon::free_ports;
use headwater_e2e::running::headwater;
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
        let output = logs(port).stderr(Stdio::null()).output().ok()?;
        (output.status.success() && output.stdout.len() >= LOG_BYTES).then_some(())
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
    measured.set("log", format!("{} MiB, `headwater logs` again and again", LOG_BYTES >> 20));
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

/// The command that reads its log through the hub.
fn logs(port: u16) -> Command {
    let mut command = headwater();
    command.args(["logs", POD, "--container", CONTAINER, "--hub", &format!("127.0.0.1:{port}")]);
    command.arg("--insecure-loopback").stdin(Stdio::null());
    command
}

impl LogReader {
    fn start(port: u16) -> Self {
        let (is_over, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, read) = (is_over.clone(), bytes.clone());
        let reading = move || {
            while !over.load(Ordering::Relaxed) {
                let child = logs(port).stdout(Stdio::piped()).spawn();
                read_all(child.tried("headwater logs")?, &over, &read)?;
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

/// Reads until the end of the log, or until it is over.
fn read_all(mut child: Child, is_over: &AtomicBool, bytes: &AtomicU64) -> Result<(), Failure> {
    let mut output = child.stdout.take().tried("its output")?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = output.read(&mut chunk).tried("the log")?;
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        if is_over.load(Ordering::Relaxed) {
            child.kill().tried("the end of headwater logs")?;
            child.wait().tried("the end of headwater logs")?;
            return Ok(());
        }
        if read == 0 {
            let status = child.wait().tried("the end of headwater logs")?;
            return if status.success() { Ok(()) } else { Err(Failure::of("the log is not read")) };
        }
    }
}
