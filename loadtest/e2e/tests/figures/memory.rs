//! What an edge with a full node of pods takes in memory.
//!
//! Edges share a process with the cloud here, so one of them is the difference of two processes
//! with a different number of nodes; it holds the node's share of the cloud parts too. Memory is
//! the proportional set size, so that the program's text counts once.

use std::fs;

use crate::pods::{PODS_PER_NODE, hollow};
use crate::table::{Row, Samples, print};

const FEW: usize = 1;
const MANY: usize = 9;
const ROUNDS: usize = 3;

/// What the design allows an edge, in MB.
const TARGET_MB: f64 = 30.0;

#[test]
#[ignore = "a measurement: starts a thousand pods, several times"]
fn memory() {
    let (mut few, mut many, mut each) = <(Samples, Samples, Samples)>::default();
    for _ in 0..ROUNDS {
        let [one, nine] = [FEW, MANY].map(|nodes| {
            let folder = tempfile::tempdir().expect("a folder");
            let running = hollow(folder.path(), nodes);
            resident_mb(running.process_id().expect("it runs"))
        });
        few.push(one);
        many.push(nine);
        each.push((nine - one) / (MANY - FEW) as f64);
    }
    let row = |figure, value: &Samples, ratio| Row {
        figure,
        limit: format!("<= {TARGET_MB:.0} (target)"),
        value: format!("{value:.1}"),
        ratio,
        count: value.count(),
    };
    print(
        &format!("memory, MB, hollow pods, {PODS_PER_NODE} a node"),
        &[
            row("each further edge", &each, format!("{:.2}", each.median() / TARGET_MB)),
            row("whole process, 1 node", &few, "-".to_owned()),
            row("whole process, 9 nodes", &many, "-".to_owned()),
        ],
    );
}

fn resident_mb(process: u32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).expect("it runs");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).expect("Linux 4.14");
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib * 1024.0 / 1e6
}
