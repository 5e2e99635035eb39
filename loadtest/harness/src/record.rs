//! The record of a run: `RUN.json`. Its fields are described in `loadtest/README.md`, and what is
//! there keeps its meaning under the same [`FORMAT`].

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::correctness::Correctness;
use crate::failure::{Attempt, Failure};
use crate::generator::Answers;
use crate::latency::{LatencyAt, Percentile, Quantiles};
use crate::machine::{Machine, Versions};
use crate::pacer::Lag;
use crate::processes::Costs;
use crate::scenario::{EdgeKind, Scenario, TargetKind};

/// The version of the record's form.
pub const FORMAT: u32 = 1;

/// The name of the record in a run's folder.
pub const FILE: &str = "RUN.json";

/// The record of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// See [`FORMAT`].
    pub format: u32,
    /// When it was started, RFC 3339.
    pub started: String,
    /// What was run, with every setting as it was.
    pub scenario: Scenario,
    /// What it ran on.
    pub target: TargetKind,
    /// What the edges were.
    pub edges: EdgeKind,
    /// The same in words, with what it leaves out.
    pub edges_are: String,
    /// From which the schedule was made.
    pub seed: u64,
    /// The machine.
    pub machine: Machine,
    /// The programs.
    pub versions: Versions,
    /// Why the figures do not count, if they do not: the generator could not keep up.
    pub void: Option<String>,
    /// Why they are those of a machine at its end, if they are.
    pub saturated: Option<String>,
    /// Whether the run was right; where it was not, it has no latencies.
    pub correctness: Correctness,
    /// The generator.
    pub generator: Driven,
    /// From the intended moment of a change until it is durable at an edge and its watch is notified.
    pub propagation: Option<Latencies>,
    /// From the intended moment to the status of that turn in the cloud's picture.
    pub round_trip: Option<Latencies>,
    /// How much there was of it.
    pub throughput: Throughput,
    /// What was done to the parts.
    pub faults: Vec<FaultDone>,
    /// Processor and memory.
    pub costs: Costs,
    /// Bytes on the wire between edges and hub.
    pub wire: Option<Wire>,
}

/// The generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Driven {
    /// How much later than intended changes were handed over.
    #[serde(flatten)]
    pub lag: Lag,
    /// Changes handed over, those of the warm-up included.
    pub handed_over: u64,
    /// What the controller answered.
    pub answers: Answers,
}

/// Latencies of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Over the whole run.
    #[serde(flatten)]
    pub quantiles: Quantiles,
    /// The percentile plot, as far as the samples carry it.
    pub percentiles: Vec<Percentile>,
    /// Second by second.
    pub over_time: Vec<LatencyAt>,
}

/// How much there was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Changes of the schedule, those of the warm-up included.
    pub changes: u64,
    /// Changes that were intended in the measured time, a second.
    pub intended_per_s: f64,
    /// Changes that became visible, each at each edge that has it, a second.
    pub visible_per_s: f64,
    /// How long it took until every edge had what there was before the first change, seconds.
    pub set_up_s: f64,
    /// How long after the last intended moment every edge stood where it ends; absent: not in the
    /// time that the scenario gives.
    pub at_rest_after_s: Option<f64>,
}

/// Something that was done to a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultDone {
    /// When it was done, seconds from the first measured moment.
    pub at_s: f64,
    /// What.
    pub what: String,
    /// Why it was not done, if it was not.
    pub failed: Option<String>,
}

/// Bytes on the wire between edges and hub, at their sockets, over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// Where they were counted.
    pub counted_at: String,
    /// Hub to edges.
    pub down_bytes: u64,
    /// Edges to hub.
    pub up_bytes: u64,
    /// Connections that were made, those of the start included.
    pub connects: u64,
    /// Look by look.
    pub over_time: Vec<WireAt>,
}

/// The wire at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireAt {
    /// Seconds from the first measured moment.
    pub at_s: f64,
    /// Bytes a second, hub to edges.
    pub down_per_s: f64,
    /// Bytes a second, edges to hub.
    pub up_per_s: f64,
    /// Connections made since the look before.
    pub connects: u64,
}

impl Run {
    /// The latencies that it has, with what each counts.
    pub fn latencies(&self) -> Vec<(&'static str, &Latencies)> {
        let kinds = [
            ("intended to visible at the edge", &self.propagation),
            ("intended to status at the cloud", &self.round_trip),
        ];
        kinds.into_iter().filter_map(|(name, of)| Some((name, of.as_ref()?))).collect()
    }

    /// Reads a record; of a folder, the one in it.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let shown = path.display().to_string();
        let text = fs::read_to_string(&path).tried(&shown)?;
        let run: Self =
            serde_json::from_str::<Self>(&text).tried(&format!("{shown} is no record of a run"))?;
        if run.format != FORMAT {
            let found = run.format;
            let other = format!("{shown} has format {found}, this program reads {FORMAT}");
            return Err(Failure::of(other));
        }
        Ok(run)
    }

    /// Writes it into `folder`, whole or not at all; gives the file.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let (path, draft) = (folder.join(FILE), folder.join(".RUN.json.new"));
        let shown = path.display().to_string();
        let text = serde_json::to_string_pretty(self).tried(&shown)?;
        fs::write(&draft, text + "\n").tried(&shown)?;
        fs::rename(&draft, &path).tried(&shown)?;
        Ok(path)
    }
}
