//! A series of runs that differ in one key, and how costs grow with it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Attempt, Failure};
use crate::record::Run;

/// The name of the record of a series in its folder.
pub const FILE: &str = "SERIES.json";

/// What the parts are called that a hub runs in.
const HUBS: [&str; 2] = ["hub", "up"];

/// A series of runs, as far as it has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The key that differs.
    pub key: String,
    /// Run by run.
    pub points: Vec<Point>,
    /// The growth of costs, if the points show it.
    pub growth: Growth,
}

/// What one run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The key's value.
    pub value: f64,
    /// Whether the run was right.
    pub right: bool,
    /// Whether it is void.
    pub void: bool,
    /// Median latency, milliseconds.
    pub p50_ms: Option<f64>,
    /// Its 99th percentile.
    pub p99_ms: Option<f64>,
    /// The last memory seen of the hub (PSS), bytes.
    pub hub_pss_bytes: Option<u64>,
    /// Processor time of the hub for each change that became visible at an edge, microseconds.
    /// What idle edges cost is in it.
    pub hub_us_per_message: Option<f64>,
    /// Bytes on the wire down for each of them.
    pub wire_bytes_per_message: Option<f64>,
}

/// Exponents of the key's value: 0 is flat, 1 a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Of the hub's memory above that of the first run.
    pub hub_pss: Option<f64>,
    /// Of the hub's processor time for a message.
    pub hub_us_per_message: Option<f64>,
    /// Bytes of the hub's memory for each further unit of the key, between the first run and the
    /// last.
    pub hub_pss_bytes_each: Option<f64>,
}

impl Point {
    /// What `run`, with the key at `value`, came to.
    pub fn of(value: f64, run: &Run) -> Self {
        let hub = run.costs.processes.iter().find(|of| HUBS.contains(&of.name.as_str()));
        let seconds = run.scenario.duration.as_secs_f64();
        let messages = run.throughput.visible_per_s * seconds;
        let each = |cost: f64| (messages > 0.0).then(|| cost / messages);
        let quantiles = run.propagation.as_ref().map(|of| &of.quantiles);
        Self {
            value,
            right: run.correctness.right,
            void: run.void.is_some(),
            p50_ms: quantiles.and_then(|of| of.p50_ms),
            p99_ms: quantiles.and_then(|of| of.p99_ms),
            hub_pss_bytes: hub.and_then(|hub| hub.pss_bytes_last),
            hub_us_per_message: hub.and_then(|hub| each(hub.cpu_s * 1e6)),
            wire_bytes_per_message: run.wire.as_ref().and_then(|of| each(of.down_bytes as f64)),
        }
    }
}

impl Series {
    /// A series over `key` that has no run yet.
    pub fn new(key: &str) -> Self {
        Self { key: key.to_owned(), ..Self::default() }
    }

    /// Takes the next run in.
    pub fn push(&mut self, point: Point) {
        self.points.push(point);
        self.growth = Growth::of(&self.points);
    }

    /// Writes it into `folder`; gives the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Failure> {
        let path = folder.join(FILE);
        let shown = path.display().to_string();
        let text = serde_json::to_string_pretty(self).tried(&shown)?;
        fs::write(&path, text + "\n").tried(&shown)?;
        Ok(path)
    }
}

impl Growth {
    /// How the costs of right runs grow.
    fn of(points: &[Point]) -> Self {
        let right = || points.iter().filter(|point| point.right);
        let memory: Vec<_> =
            right().filter_map(|point| Some((point.value, point.hub_pss_bytes? as f64))).collect();
        let base = memory.first().copied();
        let above = memory.iter().skip(1).filter_map(|(value, bytes)| {
            let (_, base) = base?;
            Some((*value, *bytes - base))
        });
        let messages = right().filter_map(|point| Some((point.value, point.hub_us_per_message?)));
        Self {
            hub_pss: exponent(above),
            hub_us_per_message: exponent(messages),
            hub_pss_bytes_each: match (base, memory.last()) {
                (Some((from, least)), Some((to, most))) if *to > from => {
                    Some((most - least) / (to - from))
                }
                _ => None,
            },
        }
    }
}

/// The exponent `k` of `y = c * x^k`, by least squares over logarithms; of two points at least.
fn exponent(points: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let logs: Vec<(f64, f64)> =
        points.filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let across: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let along: f64 = logs.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    (logs.len() >= 2 && along > 0.0).then(|| across / along)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: f64, pss: u64, us: f64) -> Point {
        Point {
            value,
            right: true,
            hub_pss_bytes: Some(pss),
            hub_us_per_message: Some(us),
            ..Point::default()
        }
    }

    #[test]
    fn a_line_has_the_exponent_1_and_what_is_flat_0() {
        let mut series = Series::new("edges.count");
        for edges in [1_u32, 11, 101, 1_001] {
            series.push(point(f64::from(edges), 1_000_000 + 16_384 * u64::from(edges - 1), 4.0));
        }
        let growth = &series.growth;
        assert!((growth.hub_pss_bytes_each.expect("two points") - 16_384.0).abs() < 1.0);
        assert!((growth.hub_pss.expect("three") - 1.0).abs() < 0.03, "{growth:?}");
        assert!(growth.hub_us_per_message.expect("four").abs() < 1e-9);
    }

    #[test]
    fn a_square_has_the_exponent_2_and_one_point_none() {
        let squares = [2.0_f64, 4.0, 8.0].map(|x| (x, 3.0 * x * x));
        assert!((exponent(squares.into_iter()).expect("three") - 2.0).abs() < 1e-9);
        assert_eq!(exponent(squares.into_iter().take(1)), None);
    }

    #[test]
    fn a_wrong_run_has_no_growth() {
        let mut series = Series::new("edges.count");
        series.push(point(1.0, 10, 1.0));
        series.push(Point { right: false, ..point(10.0, 1_000, 100.0) });
        assert_eq!(series.growth, Growth::default());
    }
}
