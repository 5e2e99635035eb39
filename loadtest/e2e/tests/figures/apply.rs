//! How fast an edge applies events, beside what its disk and RocksDB alone do with the same bytes.
//!
//! The edge is whole: a hub on loopback, the session, the replica, RocksDB. What it wrote in a
//! first run is written again by the limits: the same batches to a bare RocksDB of the same
//! options, the same bytes to a file, with a sync wherever the edge had one. Edge and limit take
//! turns. With syncs RocksDB alone takes a turn too: what it makes of its tables meanwhile is no
//! part of the file's limit, and no part of what an edge adds. Processor time of the threads that
//! fold and sync is the second witness: neighbours move it less.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_edge::{Edge, EdgeConfig, Seams};
use headwater_event::NodeName;
use headwater_rocks::{Budget, RocksEngine, Role, Shared};
use headwater_store::{
    Durability, Engine, EngineError, KeyValue, MemoryEngine, Range, Read, WriteBatch, WriteOp,
    schema,
};

use crate::canned::{Canned, Course};
use crate::table::{Row, Samples, print};

const EVENTS: u64 = 32_768;
const OBJECT_BYTES: usize = 2 << 10;

/// What a hub sends an edge that lags by more: a quarter of a frame.
const EVENTS_PER_PUSH: u64 = 128;

/// Pairs of edge and limit.
const ROUNDS: usize = 9;

#[test]
#[ignore = "a measurement: takes a minute, and the machine for itself"]
fn apply() {
    let node: NodeName = "gw-1".parse().expect("a node name");
    let course = Arc::new(Course::new(&node, EVENTS, OBJECT_BYTES, EVENTS_PER_PUSH));
    let mut rows = measure("unsynced", &node, &course, false);
    rows.extend(measure("synced", &node, &course, true));
    print(&format!("edge apply, {EVENTS} events of {OBJECT_BYTES} bytes a round"), &rows);
}

fn measure(mode: &'static str, node: &NodeName, course: &Arc<Course>, syncs: bool) -> Vec<Row> {
    let (_, recorded) = run(node, course, syncs, true);
    let bytes: usize = recorded.iter().map(|done| done.batch.bytes()).sum();
    let groups = recorded.iter().filter(|done| done.synced).count();
    println!(
        "{mode}: {} batches, {groups} groups, {:.1} MiB",
        recorded.len(),
        bytes as f64 / f64::from(1 << 20)
    );
    let (mut edge, mut limit, mut ratio) = <(Samples, Samples, Samples)>::default();
    let (mut rocks, mut rocks_ratio) = <(Samples, Samples)>::default();
    let (mut edge_cpu, mut limit_cpu) = <(Samples, Samples)>::default();
    for _ in 0..ROUNDS {
        let (ours, _) = run(node, course, syncs, false);
        let bare = write_batches(&recorded, syncs);
        rocks.push(bare.per_second());
        rocks_ratio.push(ours.per_second() / bare.per_second());
        let theirs = if syncs { write_groups(&recorded) } else { bare };
        edge.push(ours.per_second());
        limit.push(theirs.per_second());
        ratio.push(ours.per_second() / theirs.per_second());
        edge_cpu.push(ours.cpu_us());
        limit_cpu.push(theirs.cpu_us());
    }
    let cpu_ratio = limit_cpu.median() / edge_cpu.median();
    let (figure, cpu) = match syncs {
        false => ("unsynced, events/s (raw batches)", "  us of writing threads/event"),
        true => ("synced, events/s (fdatasync)", "  us of writing threads/event"),
    };
    let of_rocks = syncs.then(|| Row {
        figure: "synced, events/s (raw batches)",
        limit: format!("{rocks:.0}"),
        value: format!("{edge:.0}"),
        ratio: format!("{rocks_ratio}"),
        count: rocks_ratio.count(),
    });
    let rows = [
        Row {
            figure,
            limit: format!("{limit:.0}"),
            value: format!("{edge:.0}"),
            ratio: format!("{ratio}"),
            count: ratio.count(),
        },
        Row {
            figure: cpu,
            limit: format!("{limit_cpu:.1}"),
            value: format!("{edge_cpu:.1}"),
            ratio: format!("{cpu_ratio:.2}"),
            count: ratio.count(),
        },
    ];
    rows.into_iter().chain(of_rocks).collect()
}

/// What one run took.
struct Taken {
    wall: Duration,
    cpu: Duration,
}

impl Taken {
    fn per_second(&self) -> f64 {
        EVENTS as f64 / self.wall.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / EVENTS as f64
    }
}

/// One write of the edge, and whether a sync followed before the next.
struct Written {
    batch: WriteBatch,
    synced: bool,
}

/// Runs the edge through the course once, on an empty disk.
fn run(node: &NodeName, course: &Arc<Course>, syncs: bool, records: bool) -> (Taken, Vec<Written>) {
    let dir = tempfile::tempdir().expect("a directory");
    let state =
        Arc::new(Tap { engine: open(dir.path()), syncs, written: records.then(Mutex::default) });
    let hub_runtime = runtime("hub", 1);
    let edge_runtime = runtime("edge", 2);
    let (hub, address) = hub_runtime.block_on(Canned::start(Arc::clone(course)));
    let config = EdgeConfig::new(node.clone(), vec![address], dir.path().join("edge.sock"));
    let outbox = Arc::new(MemoryEngine::new());
    let starting = Edge::start(config, state.clone(), outbox, Seams::default());
    let edge = edge_runtime.block_on(starting).expect("starts");
    hub_runtime.block_on(hub.until(|acked| acked.durable >= 1));

    let threads = ["replica", "sync"].map(|part| Thread::named(&format!("{part} {node}")));
    let cpu_of_both = || threads.iter().map(Thread::cpu).sum::<Duration>();
    let (began, cpu) = (Instant::now(), cpu_of_both());
    hub.go();
    let end = course.end.0;
    hub_runtime
        .block_on(hub.until(|acked| acked.applied >= end && (!syncs || acked.durable >= end)));
    let taken = Taken { wall: began.elapsed(), cpu: cpu_of_both() - cpu };

    edge_runtime.block_on(edge.stop());
    drop(edge_runtime);
    drop(hub_runtime);
    let written = state.written.as_ref().map(|written| {
        std::mem::take(&mut *written.lock().unwrap_or_else(PoisonError::into_inner))
    });
    (taken, written.unwrap_or_default())
}

/// The same batches, to RocksDB alone, perhaps with the same syncs.
fn write_batches(recorded: &[Written], syncs: bool) -> Taken {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(dir.path());
    let batches: Vec<_> = recorded.iter().map(|done| (done.batch.clone(), done.synced)).collect();
    let me = Thread::current();
    let (began, cpu) = (Instant::now(), me.cpu());
    for (batch, synced) in batches {
        engine.write(batch, Durability::Buffered).expect("written");
        if syncs && synced {
            engine.sync().expect("synced");
        }
    }
    Taken { wall: began.elapsed(), cpu: me.cpu() - cpu }
}

/// The same bytes, to a file, with the same syncs.
fn write_groups(recorded: &[Written]) -> Taken {
    let dir = tempfile::tempdir().expect("a directory");
    let mut groups = vec![Vec::new()];
    for done in recorded {
        let group = groups.last_mut().expect("one at least");
        for op in &done.batch.ops {
            if let WriteOp::Put(key, value) = op {
                group.extend_from_slice(key);
                group.extend_from_slice(value);
            }
        }
        if done.synced {
            groups.push(Vec::new());
        }
    }
    let mut file = File::create(dir.path().join("groups")).expect("a file");
    let me = Thread::current();
    let (began, cpu) = (Instant::now(), me.cpu());
    for group in groups {
        file.write_all(&group).expect("written");
        file.sync_data().expect("synced");
    }
    Taken { wall: began.elapsed(), cpu: me.cpu() - cpu }
}

fn open(dir: &Path) -> RocksEngine {
    let shared = Shared::new(Budget::EDGE);
    RocksEngine::open(dir.join("state"), Role::State, &shared, schema::NODE_STATE).expect("opens")
}

fn runtime(name: &str, threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// A thread of this process, as the kernel accounts for it.
struct Thread(std::path::PathBuf);

impl Thread {
    fn current() -> Self {
        Self(fs::canonicalize("/proc/thread-self").expect("Linux"))
    }

    /// The thread whose name begins so, as far as the kernel keeps names.
    fn named(name: &str) -> Self {
        let tasks = fs::read_dir("/proc/self/task").expect("Linux");
        let found = tasks.flatten().map(|task| task.path()).find(|task| {
            let of_task = fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.starts_with(of_task.trim_end()) && !of_task.trim_end().is_empty()
        });
        Self(found.unwrap_or_else(|| panic!("no thread {name}")))
    }

    /// How long it has run on a processor.
    fn cpu(&self) -> Duration {
        let text = fs::read_to_string(self.0.join("schedstat")).expect("the thread lives");
        let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("nanoseconds"))
    }
}

/// RocksDB, perhaps without its syncs, and what was written to it.
#[derive(Debug)]
struct Tap {
    engine: RocksEngine,
    syncs: bool,
    written: Option<Mutex<Vec<Written>>>,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, synced: {}", self.batch.bytes(), self.synced)
    }
}

impl Tap {
    fn note(&self, note: impl FnOnce(&mut Vec<Written>)) {
        if let Some(written) = &self.written {
            note(&mut written.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Read for Tap {
    fn get(&self, key: &[u8]) -> Result<Option<bytes::Bytes>, EngineError> {
        self.engine.get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.engine.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.engine.last(range)
    }
}

impl Engine for Tap {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        let synced = durability == Durability::Synced;
        self.note(|written| written.push(Written { batch: batch.clone(), synced }));
        let durability = if self.syncs { durability } else { Durability::Buffered };
        self.engine.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.note(|written| {
            if let Some(last) = written.last_mut() {
                last.synced = true;
            }
        });
        if self.syncs { self.engine.sync() } else { Ok(()) }
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }
}
