//! From nothing to the demo's pods running.

use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::running::{Running, WAIT, root};

use crate::table::{Row, Samples, print};

const ROUNDS: usize = 5;

/// Between two questions: each starts a program, which takes longer.
const PAUSE: Duration = Duration::from_millis(2);

/// Its pods on two nodes: a job, two greeters, a letter, a pulse on each node.
const PODS: usize = 6;

#[test]
#[ignore = "a measurement: starts the demo, several times"]
fn cold_start() {
    let demo = root().join("ops/demo").display().to_string();
    let (mut answers, mut runs) = <(Samples, Samples)>::default();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut running = Running::start(&[&demo]);
        let mut answered = None;
        loop {
            let table = running.text(&["get", "pods", "-A", "--no-headers"]);
            if table.is_some() {
                answered.get_or_insert_with(|| began.elapsed());
            }
            let statuses = table.iter().flat_map(|table| table.lines());
            let started = statuses.filter(|line| {
                let status = line.split_whitespace().nth(3);
                matches!(status, Some("Running" | "Completed"))
            });
            if started.count() == PODS {
                break;
            }
            assert!(began.elapsed() < WAIT, "not within {WAIT:?}\n{}", running.said());
            thread::sleep(PAUSE);
        }
        runs.push(began.elapsed().as_secs_f64() * 1e3);
        answers.push(answered.unwrap_or_default().as_secs_f64() * 1e3);
        running.interrupt();
    }
    print(
        "cold start of the demo, ms (limit: its first answer)",
        &[Row {
            figure: "every pod Running",
            limit: format!("{answers:.0}"),
            value: format!("{runs:.0}"),
            ratio: format!("{:.2}", runs.median() / answers.median()),
            count: runs.count(),
        }],
    );
}
