//! The exponent of a cost: a power of the fleet's size that fits what was counted.

/// What an action costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Records appended to both logs.
    pub(crate) records: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Records read from both logs, by all readers.
    pub(crate) read: u64,
    /// Allocations.
    pub(crate) allocations: u64,
    /// Bytes allocated, freed or not.
    pub(crate) allocated: u64,
}

/// How a cost may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Not with the fleet.
    None,
    /// With its nodes, and not with nodes x objects.
    Fleet,
}

impl Growth {
    /// The largest exponent. What a tree or a length field adds is far below the rest.
    fn exponent_max(self) -> f64 {
        match self {
            Self::None => 0.1,
            Self::Fleet => 1.1,
        }
    }
}

impl Cost {
    /// The smaller of each.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            records: self.records.min(other.records),
            bytes: self.bytes.min(other.bytes),
            read: self.read.min(other.read),
            allocations: self.allocations.min(other.allocations),
            allocated: self.allocated.min(other.allocated),
        }
    }

    fn figures(self) -> [(&'static str, u64); 5] {
        [
            ("records", self.records),
            ("bytes", self.bytes),
            ("records read", self.read),
            ("allocations", self.allocations),
            ("bytes allocated", self.allocated),
        ]
    }
}

/// Prints each figure with its exponent, and fails where one grows more than it may.
pub(crate) fn assert_growth<const N: usize>(
    what: &str,
    growth: Growth,
    nodes: &[u32; N],
    costs: &[Cost; N],
) {
    let mut steep = Vec::new();
    for (at, (figure, _)) in Cost::default().figures().into_iter().enumerate() {
        let counts = costs.map(|cost| cost.figures()[at].1);
        let exponent = exponent(nodes, &counts);
        let line =
            format!("{what}: {figure} {counts:?} at {nodes:?} nodes, exponent {exponent:.3}");
        println!("{line}");
        if exponent > growth.exponent_max() {
            steep.push(line);
        }
    }
    assert!(steep.is_empty(), "more than {}:\n{}", growth.exponent_max(), steep.join("\n"));
}

/// The slope of the line that fits the logarithms best. A count of none is one.
fn exponent(nodes: &[u32], counts: &[u64]) -> f64 {
    let points = nodes.iter().zip(counts);
    let points: Vec<(f64, f64)> = points
        .map(|(x, y)| (f64::from(*x).ln(), (*y).max(1) as f64))
        .map(|(x, y)| (x, y.ln()))
        .collect();
    let of = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / of;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / of;
    let rise: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let run: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    rise / run
}

#[test]
fn a_power_has_its_exponent() {
    let nodes = [10, 100, 1_000];
    let of = |power: u32| exponent(&nodes, &nodes.map(|n| 3 * u64::from(n).pow(power)));
    for power in 0..3 {
        assert!((of(power) - f64::from(power)).abs() < 1e-9, "{}", of(power));
    }
    assert!(exponent(&nodes, &[0, 0, 0]).abs() < 1e-9);
}

#[test]
#[should_panic(expected = "more than 1.1")]
fn a_cost_of_nodes_times_objects_is_seen_beside_one_of_the_fleet() {
    let nodes = [10, 100, 1_000];
    // Four for each pair of a node and an object, beside a thousand for each node.
    let costs = nodes.map(|n| Cost {
        allocations: u64::from(n) * 1_000 + u64::from(n).pow(2) * 4,
        ..Cost::default()
    });
    assert_growth("a pass", Growth::Fleet, &nodes, &costs);
}

#[test]
#[should_panic(expected = "more than 0.1")]
fn a_cost_of_the_fleet_is_seen_beside_one_that_stays() {
    let nodes = [10, 100, 1_000];
    let costs = nodes.map(|n| Cost { allocated: 2_000 + 4 * u64::from(n), ..Cost::default() });
    assert_growth("a change", Growth::None, &nodes, &costs);
}
