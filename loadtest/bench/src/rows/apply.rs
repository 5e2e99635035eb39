//! Rows 1 and 2: how fast an edge applies events, against what RocksDB and the disk alone do with
//! the same bytes.
//!
//! The edge is whole: a hub on loopback, the session, the replica, RocksDB. What it wrote in a
//! first run is written again by the limits: the same batches to a bare RocksDB of the same
//! options, the same bytes to a file, with a sync wherever the edge had one.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_edge::{Edge, EdgeConfig, EdgeDependencies};
use headwater_event::NodeName;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{
    Durability, Engine, EngineError, KeyValue, MemoryEngine, Range, Read, WriteBatch, schema,
};

use crate::bound::Bound;
use crate::canned::{CannedHub, Course};
use crate::figure::{Figure, RowResult};
use crate::kafka::runtime;
use crate::limit::{Taken, Written, file, rocks};
use crate::run::Run;
use crate::samples::Samples;
use crate::thread_time::ThreadTime;

const OBJECT_BYTES: usize = 2 << 10;

/// Different objects: more than one commit gathers, so that none is written over in its batch.
const OBJECTS: u64 = 4_096;

/// What a hub sends an edge that lags by more: a quarter of a frame.
const EVENTS_PER_PUSH: u64 = 128;

/// The writer.
#[derive(Clone, Copy)]
enum Side {
    Edge,
    Rocks,
    File,
}

/// Row 1: no sync.
///
/// # Errors
/// When the edge does not take what it is sent.
pub(crate) fn unsynced(run: &mut Run) -> Result<RowResult, Failure> {
    let bench = Bench::new(run, false)?;
    let taken = run.turns.take(bench.rounds, [Side::Edge, Side::Rocks], |side| bench.turn(side))?;
    let mut measured = RowResult::default();
    let bound = Bound::at_least(0.5, 0.75);
    let sides = bench.sides(&taken);
    measured.push(sides.ratio("events/s, no syncs", 0, 1, RAW).held_to(bound));
    measured.push(sides.processor(1, RAW));
    bench.describe(&mut measured);
    Ok(measured)
}

/// Row 2: a sync for every group.
///
/// # Errors
/// When the edge does not take what it is sent.
pub(crate) fn synced(run: &mut Run) -> Result<RowResult, Failure> {
    let bench = Bench::new(run, true)?;
    let sides = [Side::Edge, Side::File, Side::Rocks];
    let taken = run.turns.take(bench.rounds, sides, |side| bench.turn(side))?;
    let mut measured = RowResult::default();
    let bound = Bound::at_least(0.7, 0.85);
    let sides = bench.sides(&taken);
    measured.push(sides.ratio("events/s, synced groups", 0, 1, FILE).held_to(bound));
    measured.push(sides.ratio("events/s, synced groups", 0, 2, "RocksDB with the same syncs"));
    measured.push(sides.ratio("RocksDB with the same syncs, events/s", 2, 1, FILE));
    measured.push(sides.processor(2, "RocksDB with the same syncs"));
    bench.describe(&mut measured);
    Ok(measured)
}

const RAW: &str = "the same batches to bare RocksDB";
const FILE: &str = "write + fdatasync of the same bytes";

/// What is written, and how often.
struct Bench {
    node: NodeName,
    course: Arc<Course>,
    events: u64,
    rounds: usize,
    syncs: bool,
    /// What the edge wrote in its first run.
    written: Vec<Written>,
}

impl Bench {
    fn new(run: &Run, syncs: bool) -> Result<Self, Failure> {
        let events = run.pick(32_768, 1_048_576);
        let rounds = run.pick(7, 9);
        let node: NodeName = "gw-1".parse().tried("a node's name")?;
        let course = Course::new(&node, events, OBJECTS, OBJECT_BYTES, EVENTS_PER_PUSH);
        let mut bench =
            Self { node, course: Arc::new(course), events, rounds, syncs, written: Vec::new() };
        bench.written = bench.edge(true)?.1;
        Ok(bench)
    }

    fn turn(&self, side: Side) -> Result<Taken, Failure> {
        match side {
            Side::Edge => Ok(self.edge(false)?.0),
            Side::Rocks => rocks::write(&self.written, self.syncs),
            Side::File => file::write(&self.written),
        }
    }

    /// Runs the edge through the course once, on an empty disk.
    fn edge(&self, records: bool) -> Result<(Taken, Vec<Written>), Failure> {
        let folder = tempfile::tempdir().tried("making a folder")?;
        let state = Arc::new(Tap {
            engine: open(folder.path())?,
            syncs: self.syncs,
            written: records.then(Mutex::default),
        });
        let (of_hub, of_edge) = (runtime("hub", 1)?, runtime("edge", 2)?);
        let (hub, address) = of_hub.block_on(CannedHub::start(Arc::clone(&self.course)))?;
        let config =
            EdgeConfig::new(self.node.clone(), vec![address], folder.path().join("edge.sock"));
        let outbox = Arc::new(MemoryEngine::new());
        let starting = Edge::start(config, state.clone(), outbox, EdgeDependencies::default());
        let edge = of_edge.block_on(starting).tried("starting an edge")?;
        of_hub.block_on(hub.until(|acked| acked.durable >= 1))?;

        let thread = |part: &str| ThreadTime::named(&format!("{part} {}", self.node));
        let threads = [thread("replica").tried("the edge has no thread for its replica")?]
            .into_iter()
            .chain(thread("sync"))
            .collect::<Vec<_>>();
        let processor = || threads.iter().map(ThreadTime::taken).sum::<Duration>();
        let (began, before) = (Instant::now(), processor());
        hub.go();
        let (end, syncs) = (self.course.end.0, self.syncs);
        of_hub.block_on(
            hub.until(|acked| acked.applied >= end && (!syncs || acked.durable >= end)),
        )?;
        let wall = began.elapsed();
        let taken = Taken { wall, processor: processor().saturating_sub(before) };
        of_edge.block_on(edge.stop());
        drop((of_edge, of_hub));
        let written = state.written.as_ref().map(|written| {
            std::mem::take(&mut *written.lock().unwrap_or_else(PoisonError::into_inner))
        });
        Ok((taken, written.unwrap_or_default()))
    }

    fn sides<'a, const K: usize>(&self, taken: &'a [[Taken; K]]) -> Sides<'a, K> {
        Sides { taken, events: self.events }
    }

    fn describe(&self, measured: &mut RowResult) {
        let bytes: usize = self.written.iter().map(|one| one.batch.bytes()).sum();
        let groups = self.written.iter().filter(|one| one.synced).count();
        measured.set("events a turn", format!("{} of {OBJECT_BYTES} bytes", self.events));
        measured.set("objects", OBJECTS);
        measured.set(
            "written",
            format!(
                "{:.1} MiB in {} batches, {groups} groups{}",
                bytes as f64 / f64::from(1 << 20),
                self.written.len(),
                if self.syncs { ", each synced" } else { ", none synced" },
            ),
        );
        measured
            .set("options", "those of an edge's state database: lz4, 2 MiB memtables, 8 MiB cache");
        measured.set(
            "session",
            format!("in one process over loopback, {EVENTS_PER_PUSH} events a push"),
        );
    }
}

/// The turns of every side.
struct Sides<'a, const K: usize> {
    taken: &'a [[Taken; K]],
    events: u64,
}

impl<const K: usize> Sides<'_, K> {
    fn samples(&self, side: usize, what: impl Fn(&Taken) -> f64) -> Samples {
        self.taken.iter().map(|round| what(&round[side])).collect()
    }

    fn per_second(&self, side: usize) -> Samples {
        self.samples(side, |taken| self.events as f64 / taken.wall.as_secs_f64())
    }

    /// A side as a part of another.
    fn ratio(&self, what: &str, side: usize, other: usize, limit: &str) -> Figure {
        Figure::ratio(what, self.per_second(side), limit, self.per_second(other))
    }

    /// Time of the writing threads.
    fn processor(&self, other: usize, limit: &str) -> Figure {
        let us = |taken: &Taken| taken.processor.as_secs_f64() * 1e6 / self.events as f64;
        let what = "us of the writing threads an event";
        Figure::ratio(what, self.samples(0, us), limit, self.samples(other, us))
    }
}

fn open(folder: &Path) -> Result<RocksEngine, Failure> {
    let shared = DatabaseMemory::new(Budget::EDGE);
    RocksEngine::open(folder.join("state"), Role::State, &shared, schema::NODE_STATE)
        .tried("opening a database")
}

/// RocksDB, perhaps without its syncs, and what was written to it.
struct Tap {
    engine: RocksEngine,
    syncs: bool,
    written: Option<Mutex<Vec<Written>>>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("engine", &self.engine).finish_non_exhaustive()
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
