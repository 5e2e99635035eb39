//! Two runs compared: ratios, and when not to conclude anything from them.
//!
//! The spread of a figure is taken from the run itself: it is looked at part by part, and where the
//! parts of the two runs overlap, the difference between the runs is not larger than that within
//! them.

use std::fmt;

use crate::latency::LatencyAt;
use crate::record::{Latencies, Run};

/// Parts that a run is looked at in; with fewer seconds each second is one.
const PARTS: usize = 7;

/// Two runs, compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Figure by figure.
    pub rows: Vec<Row>,
    /// Why nothing is to be concluded at all, if so.
    pub refusals: Vec<String>,
    /// What else differs between the runs.
    pub notes: Vec<String>,
}

/// One figure of both.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Which.
    pub figure: String,
    /// Of the first run.
    pub before: f64,
    /// Of the second run.
    pub after: f64,
    /// After over before; absent where there is nothing to divide by.
    pub ratio: Option<f64>,
    /// What is to be made of it.
    pub conclusion: Conclusion,
}

/// What is to be made of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The second is less, by more than either spreads.
    Less,
    /// The second is more, by more than either spreads.
    More,
    /// The parts of the runs overlap.
    WithinSpread,
    /// There is one value of each: no spread is known.
    Single,
    /// The runs are not to be compared.
    Refused,
}

impl fmt::Display for Conclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Less => "less",
            Self::More => "more",
            Self::WithinSpread => "none: within the spread of the runs",
            Self::Single => "one value each: run it again before concluding",
            Self::Refused => "none",
        })
    }
}

/// Compares `after` with `before`.
pub fn compare(before: &Run, after: &Run) -> Comparison {
    let refusals = refusals(before, after);
    let mut rows = Vec::new();
    for (name, [before, after]) in [
        ("visible", [&before.propagation, &after.propagation]),
        ("round trip", [&before.round_trip, &after.round_trip]),
    ] {
        if let (Some(before), Some(after)) = (before, after) {
            rows.extend(latencies(name, before, after));
        }
    }
    rows.extend(costs(before, after));
    if let (Some(before), Some(after)) = (&before.wire, &after.wire) {
        rows.push(single("wire down, bytes", before.down_bytes as f64, after.down_bytes as f64));
        rows.push(single("wire up, bytes", before.up_bytes as f64, after.up_bytes as f64));
    }
    if !refusals.is_empty() {
        rows.iter_mut().for_each(|row| row.conclusion = Conclusion::Refused);
    }
    Comparison { rows, refusals, notes: notes(before, after) }
}

/// Why the runs are not to be compared.
fn refusals(before: &Run, after: &Run) -> Vec<String> {
    let mut refusals = Vec::new();
    for (which, run) in [("first", before), ("second", after)] {
        if !run.correctness.right {
            refusals.push(format!("the {which} run was wrong"));
        }
        if run.void.is_some() {
            refusals.push(format!("the {which} run is void"));
        }
    }
    if before.scenario != after.scenario {
        refusals.push("the scenarios or their settings differ".to_owned());
    }
    if (before.target, before.edges) != (after.target, after.edges) {
        refusals.push("they ran on different targets or edges".to_owned());
    }
    if before.machine != after.machine {
        refusals.push("they ran on different machines".to_owned());
    }
    refusals
}

fn notes(before: &Run, after: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    for (which, run) in [("first", before), ("second", after)] {
        if let Some(saturated) = &run.saturated {
            notes.push(format!("the {which} run is saturated: {saturated}"));
        }
    }
    if before.versions.build != after.versions.build {
        notes.push("they were built differently".to_owned());
    }
    if before.seed != after.seed {
        notes.push("their schedules were made from different seeds".to_owned());
    }
    notes
}

fn latencies(name: &str, before: &Latencies, after: &Latencies) -> Vec<Row> {
    let mut rows = Vec::new();
    let quantiles = [&before.quantiles, &after.quantiles];
    let parts = [before, after].map(|run| part_medians(&run.over_time));
    if let [Some(one), Some(two)] = quantiles.map(|of| of.p50_ms) {
        let conclusion = conclude(&parts[0], &parts[1]);
        rows.push(Row { conclusion, ..single(&format!("{name} p50, ms"), one, two) });
    }
    for (quantile, values) in [
        ("p90", quantiles.map(|of| of.p90_ms)),
        ("p99", quantiles.map(|of| of.p99_ms)),
        ("p99.9", quantiles.map(|of| of.p999_ms)),
        ("max", quantiles.map(|of| of.max_ms)),
    ] {
        if let [Some(one), Some(two)] = values {
            rows.push(single(&format!("{name} {quantile}, ms"), one, two));
        }
    }
    rows
}

fn costs(before: &Run, after: &Run) -> Vec<Row> {
    let mut rows = Vec::new();
    for one in &before.costs.processes {
        let Some(two) = after.costs.processes.iter().find(|two| two.name == one.name) else {
            continue;
        };
        let cores = [one, two].map(|of| of.over_time.iter().map(|at| at.cores).collect::<Vec<_>>());
        let [parts_one, parts_two] = cores.map(|cores| part_means(&cores));
        rows.push(Row {
            conclusion: conclude(&parts_one, &parts_two),
            ..single(&format!("{} cores", one.name), one.cores_mean, two.cores_mean)
        });
        if let (Some(one_max), Some(two_max)) = (one.pss_bytes_max, two.pss_bytes_max) {
            let figure = format!("{} PSS, MiB", one.name);
            rows.push(single(&figure, mib(one_max), mib(two_max)));
        }
    }
    rows
}

fn single(figure: &str, before: f64, after: f64) -> Row {
    Row {
        figure: figure.to_owned(),
        before,
        after,
        ratio: (before != 0.0).then(|| after / before),
        conclusion: Conclusion::Single,
    }
}

/// Whether one run lies wholly on one side of the other.
fn conclude(before: &[f64], after: &[f64]) -> Conclusion {
    let (Some(before), Some(after)) = (spread(before), spread(after)) else {
        return Conclusion::Single;
    };
    if after.1 < before.0 {
        Conclusion::Less
    } else if after.0 > before.1 {
        Conclusion::More
    } else {
        Conclusion::WithinSpread
    }
}

/// The smallest and the largest, of two at least.
fn spread(parts: &[f64]) -> Option<(f64, f64)> {
    let min = parts.iter().copied().min_by(f64::total_cmp)?;
    let max = parts.iter().copied().max_by(f64::total_cmp)?;
    (parts.len() >= 2).then_some((min, max))
}

/// The middle second's median of each part of the run: medians are chosen among, never averaged.
fn part_medians(over_time: &[LatencyAt]) -> Vec<f64> {
    let medians: Vec<f64> = over_time.iter().filter_map(|at| at.quantiles.p50_ms).collect();
    let of_part = |part: &[f64]| {
        let mut part = part.to_vec();
        part.sort_by(f64::total_cmp);
        part.get(part.len() / 2).copied()
    };
    parts(&medians).filter_map(of_part).collect()
}

fn part_means(values: &[f64]) -> Vec<f64> {
    parts(values).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

fn parts(values: &[f64]) -> impl Iterator<Item = &[f64]> {
    values.chunks(values.len().div_ceil(PARTS).max(1))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
pub(crate) mod tests;
