//! Runs that differ, that do not, and that must not be compared.

use super::*;
use crate::correctness::Correctness;
use crate::latency::Quantiles;
use crate::machine::{Machine, Versions};
use crate::processes::Costs;
use crate::record::{Driven, FORMAT, Throughput};
use crate::scenario::{EdgeKind, Scenario, TargetKind};

/// A run of which every second has one of these medians.
pub(crate) fn run(medians: &[f64]) -> Run {
    let quantiles = |p50| Quantiles { count: 10, p50_ms: Some(p50), ..Quantiles::default() };
    let at = |(second, p50): (usize, &f64)| LatencyAt {
        at_s: second as f64,
        quantiles: quantiles(*p50),
    };
    Run {
        format: FORMAT,
        started: String::new(),
        scenario: Scenario::load("propagation", &[]).expect("there"),
        target: TargetKind::Embedded,
        edges: EdgeKind::Real,
        edges_are: String::new(),
        seed: 1,
        machine: Machine::default(),
        versions: Versions::default(),
        void: None,
        saturated: None,
        correctness: Correctness { right: true, ..Correctness::default() },
        generator: Driven::default(),
        propagation: Some(Latencies {
            quantiles: quantiles(medians[medians.len() / 2]),
            percentiles: Vec::new(),
            over_time: medians.iter().enumerate().map(at).collect(),
        }),
        round_trip: None,
        throughput: Throughput::default(),
        faults: Vec::new(),
        costs: Costs::default(),
        wire: None,
    }
}

fn conclusion(before: &Run, after: &Run) -> Conclusion {
    let compared = compare(before, after);
    let row = compared.rows.iter().find(|row| row.figure == "visible p50, ms");
    row.expect("both have one").conclusion
}

#[test]
fn a_difference_beyond_the_spread_is_concluded_from() {
    let (slow, fast) = (run(&[5.0, 5.5, 6.0]), run(&[2.0, 2.5, 3.0]));
    assert_eq!(conclusion(&slow, &fast), Conclusion::Less);
    assert_eq!(conclusion(&fast, &slow), Conclusion::More);
    let ratio = compare(&slow, &fast).rows[0].ratio.expect("something to divide by");
    assert!((ratio - 2.5 / 5.5).abs() < 1e-9);
}

#[test]
fn a_difference_within_the_spread_is_not() {
    let (one, two) = (run(&[5.0, 5.5, 9.0]), run(&[2.0, 2.5, 5.5]));
    assert_eq!(conclusion(&one, &two), Conclusion::WithinSpread);
    assert_eq!(conclusion(&run(&[5.0]), &run(&[2.0])), Conclusion::Single);
}

#[test]
fn runs_that_are_wrong_void_or_other_are_refused() {
    let good = run(&[5.0, 5.5, 6.0]);
    let mut wrong = good.clone();
    wrong.correctness.right = false;
    let mut void = good.clone();
    void.void = Some("late".to_owned());
    let mut other = good.clone();
    other.scenario.load.rate += 1.0;
    let mut elsewhere = good.clone();
    elsewhere.machine.cores = 64;
    for (second, said) in
        [(wrong, "wrong"), (void, "void"), (other, "differ"), (elsewhere, "machines")]
    {
        let compared = compare(&good, &second);
        assert!(compared.refusals.iter().any(|why| why.contains(said)), "{compared:?}");
        assert!(compared.rows.iter().all(|row| row.conclusion == Conclusion::Refused));
    }
    assert!(compare(&good, &good).refusals.is_empty());
}
