//! Files of a run: room for open ones, and those that it leaves.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::latency::Latency;
use crate::record::{RecordError, Run};

/// Files that an edge holds open here: a light one its connection and what belongs to it, a real
/// one the connections to its local API.
const FILES_PER_EDGE: u64 = 4;

/// Files that everything else holds open.
const FILES_BESIDES: u64 = 512;

/// There are more edges than open files allow.
#[derive(Debug, thiserror::Error)]
#[error(
    "{edges} edges hold about {needed} files open, and this process may have {allowed}: raise the \
     hard limit (`ulimit -Hn`), or ask for fewer edges"
)]
pub struct TooFewFiles {
    edges: usize,
    needed: u64,
    allowed: u64,
}

/// Raises this process's soft limit to its hard one, as far as that helps; what it starts inherits
/// it.
pub(super) fn make_room(edges: usize) -> Result<(), TooFewFiles> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let needed = (edges as u64).saturating_mul(FILES_PER_EDGE).saturating_add(FILES_BESIDES);
    if hard < needed {
        return Err(TooFewFiles { edges, needed, allowed: hard });
    }
    if soft < hard {
        // If it fails, the first file too many says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    Ok(())
}

/// Writes the record and, of a run that was right, the raw histograms.
pub(super) fn write(
    record: &Run,
    out: &Path,
    propagation: &Latency,
    round_trip: &Latency,
) -> Result<(), RecordError> {
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
            written.map_err(|source| RecordError::File { path, source })?;
        }
    }
    record.write(out).map(drop)
}
