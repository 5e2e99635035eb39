//! Row 14: what an edge with its pods takes of memory and disk, against a process that has opened
//! an empty database.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::inventory::Inventory;
use headwater_loadtest::kernel::{anonymous_bytes, memory_bytes};
use headwater_loadtest::object::ObjectSpec;
use headwater_loadtest::scenario::EdgeKind;
use headwater_loadtest::schedule::at_rate;
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::schema;
use tempfile::TempDir;

use crate::bound::Bound;
use crate::cluster::{Cluster, Nodes};
use crate::figure::{Figure, RowResult};
use crate::limit::patch;
use crate::pods::pods;
use crate::process::memory_at_rest;
use crate::run::Run;
use crate::samples::Samples;

/// A pace at which hardly two changes of one pod meet.
const CHURN_PER_SECOND: u32 = 2_000;

/// The process that is measured.
const EDGE: &str = "node-1";

const OBJECT_BYTES: usize = 4_000;

/// Pods, and the most that an edge with so many should take, in MB: floor and target.
const SIZES: [(u32, Bound); 2] =
    [(110, Bound::at_most(60.0, 30.0)), (1_000, Bound::at_most(60.0, 30.0))];

/// Measures it.
///
/// # Errors
/// When the edge does not come in step.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let changes = run.pick(10_000, 200_000);
    let rounds = run.pick(2, 5);
    let mut measured = RowResult::default();
    for (pods, bound) in SIZES {
        let (mut ours, mut bare, mut own) = <(Samples, Samples, Samples)>::default();
        let (mut disk, mut live) = <(Samples, Samples)>::default();
        for _ in 0..rounds {
            let taken = churn(pods, changes)?;
            ours.push(taken.memory / 1e6);
            bare.push(bare_memory()? / 1e6);
            own.push(taken.own / 1e6);
            disk.push(taken.disk / 1e6);
            live.push(taken.live / 1e6);
        }
        let limit = "a process with an empty database";
        let what = format!("{pods} pods: MB of memory");
        let figure = Figure::ratio(&what, ours.clone(), limit, bare);
        measured.push(figure.judged_by(ours).held_to(bound));
        measured.push(Figure::alone(&format!("{pods} pods: MB of it no file"), own));
        let what = format!("{pods} pods: MB of disk");
        let limit = "the live objects, compressed";
        measured.push(Figure::ratio(&what, disk, limit, live));
    }
    measured.set("memory", "PSS from smaps_rollup, once it has come to rest");
    measured.set("churn", format!("{changes} changes of pods, then rest"));
    measured.set("object", format!("about {OBJECT_BYTES} bytes of JSON"));
    measured.set("edge", "a process with hollow pods inside; the cloud is in others");
    measured.note(
        "Disk is shown and held to nothing: tables and write-ahead log that are not yet due for \
         compaction are more than 3x of so little.",
    );
    Ok(measured)
}

/// In bytes.
struct Taken {
    memory: f64,
    own: f64,
    disk: f64,
    live: f64,
}

fn churn(count: u32, changes: u32) -> Result<Taken, Failure> {
    let nodes = Nodes { count: 1, kind: EdgeKind::Real, behind_hops: 0, unmeasured: 0 };
    let mut cluster = Cluster::start(nodes, pods(1, count, OBJECT_BYTES))?;
    cluster.connect(1)?;
    cluster.set_up(0..count)?;
    let turns = at_rate(CHURN_PER_SECOND, (1..=changes).map(|turn| turn % count));
    cluster.load(turns, Duration::ZERO)?;
    let Inventory { nodes, objects, seed } = cluster.testbed.inventory();
    let object = |object: &ObjectSpec| object.value(nodes, changes, *seed).to_string().into_bytes();
    let live: Vec<Vec<u8>> = objects.iter().map(object).collect();
    let live = patch::frame_bytes(&live.iter().map(|one| &one[..]).collect::<Vec<_>>())?;
    let id = cluster.process(EDGE)?;
    let memory = memory_at_rest(id)?;
    let own = anonymous_bytes(id).tried("it does not run")? as f64;
    let disk = disk_bytes(&cluster.node_data(0).join("state"))?;
    cluster.end()?;
    Ok(Taken { memory, own, disk, live: live as f64 })
}

fn disk_bytes(folder: &Path) -> Result<f64, Failure> {
    let mut bytes = 0;
    for file in fs::read_dir(folder).tried("reading a database")?.flatten() {
        // A file that is gone by now counts for nothing.
        bytes += file.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(bytes as f64)
}

/// The memory of a process of this program that has opened an empty database and does nothing.
fn bare_memory() -> Result<f64, Failure> {
    let program = std::env::current_exe().tried("finding this program")?;
    let folder = TempDir::new().tried("making a folder")?;
    let mut command = Command::new(program);
    command.arg("--hold").arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = KilledOnDrop(command.spawn().tried("starting a process")?);
    let output = child.0.stdout.take().tried("its output is piped")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).tried("waiting for a process")?;
    let memory = memory_bytes(child.0.id()).tried("it does not run");
    Ok(memory? as f64)
}

/// A process that ends with this.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens an empty database in `folder`, says so, and holds it until its input ends.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn hold(folder: &Path) -> Result<(), Failure> {
    let shared = DatabaseMemory::new(Budget::EDGE);
    let state = RocksEngine::open(folder.join("state"), Role::State, &shared, schema::NODE_STATE);
    let _held = state.tried("opening a database")?;
    println!("open");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).tried("waiting for the end")?;
    Ok(())
}
