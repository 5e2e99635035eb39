//! Row 12: an edge that is killed while events come, from its next start to right answers,
//! against RocksDB alone opening the same database.
//!
//! The edge is a process; the hub, in this one, is gone when it starts again: what it answers it
//! has from its own disk. An answer is right when its hash is that of the log at its position,
//! and nothing that the edge called durable is missing.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::part::Part;
use headwater_event::NodeName;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::socket::edge_status;
use headwater_proto::local::EdgeStatus;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::bound::Bound;
use crate::canned::{CannedHub, Course};
use crate::figure::{Figure, RowResult};
use crate::kafka::runtime;
use crate::limit::rocks;
use crate::run::Run;
use crate::samples::Samples;
use crate::waiting::wait;

const NODE: &str = "gw-1";
const OBJECT_BYTES: usize = 1 << 10;
const EVENTS_PER_PUSH: u64 = 50;

/// Pushes a second: 5,000 events a second.
const PUSHES_PER_SECOND: u32 = 100;

/// Between two looks at a part that starts.
const POLL: Duration = Duration::from_millis(1);

/// What one kill led to.
struct Taken {
    ms: f64,
    bare_ms: f64,
    durable: u64,
    applied_before: u64,
}

/// Measures it.
///
/// # Errors
/// When an answer is wrong, or none comes.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let objects = run.pick(20_000, 100_000);
    let rounds = run.pick(5, 20);
    let node: NodeName = NODE.parse().tried("a node's name")?;
    // Every object once, and then changes for as long as a kill may take.
    let events = objects + 20_000;
    let course = Course::new(&node, events, objects, OBJECT_BYTES, EVENTS_PER_PUSH);
    let course = Arc::new(course);
    let mut taken = Vec::new();
    for round in 0..rounds {
        // Somewhere in the changes, not always at the same place.
        let kill_at = objects + 1_000 + (round * 2_713) % 15_000;
        taken.push(kill(&course, objects, kill_at)?);
    }
    let of = |what: fn(&Taken) -> f64| taken.iter().map(what).collect::<Samples>();
    let mut measured = RowResult::default();
    let limit = "RocksDB opens the same database";
    measured.push(
        Figure::alone("s from the start to right answers", of(|one| one.ms / 1e3))
            .held_to(Bound::at_most(3.0, 1.0))
            .latency(),
    );
    measured.push(Figure::ratio("ms", of(|one| one.ms), limit, of(|one| one.bare_ms)).latency());
    let lost = of(|one| one.applied_before.saturating_sub(one.durable) as f64);
    measured.push(Figure::alone("events to be sent again", lost));
    measured.set("objects", format!("{objects} of {OBJECT_BYTES} bytes"));
    measured.set("events", format!("{} a second", u64::from(PUSHES_PER_SECOND) * EVENTS_PER_PUSH));
    measured.set("killed", "kill -9 of the process, at another event each time");
    measured.note(
        "No answer was wrong: each had the log's hash at its position, and nothing durable was \
         missing. The whole process starts in ours; the bare open is of a copy of its files.",
    );
    Ok(measured)
}

fn kill(course: &Arc<Course>, objects: u64, kill_at: u64) -> Result<Taken, Failure> {
    let folder = TempDir::new().tried("making a folder")?;
    let of_hub = runtime("hub", 1)?;
    let paced = CannedHub::paced(Arc::clone(course), objects, PUSHES_PER_SECOND);
    let (hub, address) = of_hub.block_on(paced)?;
    let hub_address = address.to_string();
    let args = ["edge", "--node", NODE, "--hub", &hub_address, "--insecure-loopback", "--no-edged"];
    let mut edge = Part::start(folder.path(), NODE, args.into_iter().map(str::to_owned).collect());
    hub.go();
    of_hub.block_on(hub.until(|acked| acked.applied >= kill_at))?;
    edge.kill();
    let acked = hub.acked();
    drop(of_hub);

    let root = edge.data().join("nodes").join(NODE);
    let bare_ms = bare_open(&root.join("state"))?;
    let of_asking = runtime("asking", 1)?;
    let began = Instant::now();
    edge.start_again();
    let status = answers(&of_asking, &root.join("edge.sock"))?;
    let ms = began.elapsed().as_secs_f64() * 1e3;

    let stream = format!("node/{NODE}");
    let own = status.streams.iter().find(|one| one.stream == stream);
    let own = own.tried("the edge does not know its stream any more")?;
    let wanted = course.hash_at(own.durable).tried("the edge is past the end")?;
    if own.hash != wanted.to_string() {
        return Err(Failure::of(format!("at {} the edge has another hash", own.durable)));
    }
    if own.durable < acked.durable {
        let (durable, acked) = (own.durable, acked.durable);
        return Err(Failure::of(format!("{acked} was durable, and {durable} is there")));
    }
    edge.kill();
    Ok(Taken { ms, bare_ms, durable: own.durable, applied_before: acked.applied })
}

fn answers(runtime: &Runtime, socket: &Path) -> Result<EdgeStatus, Failure> {
    wait("the edge answers", || {
        let status = runtime.block_on(edge_status(socket));
        let is_there = |status: &EdgeStatus| status.streams.iter().any(|one| one.durable > 0);
        if status.is_none() {
            thread::sleep(POLL);
        }
        status.filter(is_there)
    })
}

/// How long RocksDB alone takes to open a copy of the database, in milliseconds.
fn bare_open(state: &Path) -> Result<f64, Failure> {
    let copy = TempDir::new().tried("making a folder")?;
    for file in fs::read_dir(state).tried("reading a database")?.flatten() {
        if file.path().is_file() {
            fs::copy(file.path(), copy.path().join(file.file_name())).tried("copying")?;
        }
    }
    let began = Instant::now();
    let opened = rocks::open(copy.path())?;
    let taken = began.elapsed();
    drop(opened);
    Ok(taken.as_secs_f64() * 1e3)
}
