//! Files of a run: room for open ones, and those that it leaves.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::failure::{Attempt, Failure};
use crate::latency::Latency;
use crate::record::Run;
use crate::scenario::{EdgeKind, Edges};

/// Files that a real edge takes here: the connections to its local API.
const FILES_PER_REAL_EDGE: usize = 4;

/// Files that a light edge takes, here and at the hub: its connection, and for a moment the one
/// before.
const FILES_PER_LIGHT_EDGE: usize = 2;

/// Files that a hop takes: where it listens, and both ends of what it passes on, twice for a moment.
const FILES_PER_HOP: usize = 5;

/// Files that everything else holds open.
const FILES_BESIDES: usize = 512;

/// Raises this process's soft limit to its hard one, as far as that helps; what it starts inherits
/// it.
pub(super) fn make_room(edges: &Edges) -> Result<(), Failure> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let needed = needed(edges) as u64;
    if hard < needed {
        let edges = edges.count;
        return Err(Failure::of(format!(
            "{edges} edges hold about {needed} files open, and this process may have {hard}: raise \
             the hard limit (`ulimit -Hn`), or ask for fewer edges"
        )));
    }
    if soft < hard {
        // If it fails, the first file too many says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    Ok(())
}

/// About how many files are open at once in the process that has most of them.
fn needed(edges: &Edges) -> usize {
    let per_edge = match edges.kind {
        EdgeKind::Real => FILES_PER_REAL_EDGE,
        EdgeKind::Light => FILES_PER_LIGHT_EDGE,
    };
    let of_edges = edges.count.saturating_mul(per_edge);
    let of_hops = edges.behind_hops.saturating_mul(FILES_PER_HOP);
    of_edges.saturating_add(of_hops).saturating_add(FILES_BESIDES)
}

/// Writes the record and, of a run that was right, the raw histograms.
pub(super) fn write(
    record: &Run,
    out: &Path,
    propagation: &Latency,
    round_trip: &Latency,
) -> Result<(), Failure> {
    for (name, latency, is_there) in [
        ("propagation.hlog", propagation, record.propagation.is_some()),
        ("round-trip.hlog", round_trip, record.round_trip.is_some()),
    ] {
        if is_there {
            let path = out.join(name);
            let scenario = &record.scenario.name;
            let comment = format!("{scenario}, seed {}, microseconds", record.seed);
            let written = File::create(&path).and_then(|file| {
                let mut file = BufWriter::new(file);
                latency.write_log(&mut file, &comment)?;
                file.flush()
            });
            written.tried(&path.display().to_string())?;
        }
    }
    record.write(out).map(drop)
}
