//! From the start after a `kill -9` to right answers.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::running::{Running, WAIT};
use headwater_rocks::{Budget, RocksEngine, Role, Shared};
use headwater_store::schema;

use crate::pods::{PODS_PER_NODE, hollow};
use crate::table::{Row, Samples, print};

const ROUNDS: usize = 7;

/// Between two questions: each starts a program, which takes as long.
const PAUSE: Duration = Duration::from_millis(2);

#[test]
#[ignore = "a measurement: kills and starts a program, several times"]
fn restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut running = hollow(folder.path(), 1);
    let (mut read, mut verified, mut bare, mut asking) =
        <(Samples, Samples, Samples, Samples)>::default();
    for _ in 0..ROUNDS {
        running.kill();
        bare.push(bare_open(&running.data().join("nodes/node-1/state")));
        let began = Instant::now();
        running.start_again();
        let is_whole = |running: &Running| {
            running.items(&["get", "pods", "--node", "node-1"]).len() == PODS_PER_NODE
        };
        read.push(until(&running, began, is_whole));
        verified.push(until(&running, began, |running| running.ask(&["verify"]).status.success()));
        let asked = Instant::now();
        assert!(is_whole(&running), "a right answer stays right");
        asking.push(asked.elapsed().as_secs_f64() * 1e3);
        running.wait_until_in_step();
    }
    let row = |figure, value: &Samples| Row {
        figure,
        limit: format!("{bare:.0} + {asking:.0}"),
        value: format!("{value:.0}"),
        ratio: format!("{:.2}", value.median() / (bare.median() + asking.median())),
        count: value.count(),
    };
    print(
        &format!(
            "restart after kill -9, ms, {PODS_PER_NODE} pods (limit: open the database + ask once)"
        ),
        &[row("first right `get --node`", &read), row("`verify` agrees", &verified)],
    );
}

/// How long it takes from `began` until it is so, in milliseconds.
fn until(running: &Running, began: Instant, is_so: impl Fn(&Running) -> bool) -> f64 {
    while !is_so(running) {
        assert!(began.elapsed() < WAIT, "not within {WAIT:?}\n{}", running.said());
        thread::sleep(PAUSE);
    }
    began.elapsed().as_secs_f64() * 1e3
}

/// How long RocksDB alone takes to open a copy of the database, in milliseconds.
fn bare_open(state: &Path) -> f64 {
    let copy = tempfile::tempdir().expect("a folder");
    for file in fs::read_dir(state).expect("a database").flatten() {
        fs::copy(file.path(), copy.path().join(file.file_name())).expect("copied");
    }
    let began = Instant::now();
    let shared = Shared::new(Budget::EDGE);
    let opened = RocksEngine::open(copy.path(), Role::State, &shared, schema::NODE_STATE);
    let taken = began.elapsed();
    opened.expect("opens");
    taken.as_secs_f64() * 1e3
}
