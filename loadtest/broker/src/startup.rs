//! The start of a broker, as its output shows it.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::BrokerError;
use crate::process::{self, Process};

/// How long a start may take. It takes one second on an idle machine; this is for a busy one.
const START_WITHIN: Duration = Duration::from_secs(90);

/// How often a starting broker is looked at.
const POLL: Duration = Duration::from_millis(20);

/// The line of Kafka's by which a start is over.
const STARTED: &str = "Kafka Server started";

/// Returns when `process` says in `log` that it runs.
pub(crate) fn wait_for_start(node: u32, process: &Process, log: &Path) -> Result<(), BrokerError> {
    let deadline = Instant::now() + START_WITHIN;
    while Instant::now() < deadline {
        if std::fs::read_to_string(log).is_ok_and(|text| text.contains(STARTED)) {
            return Ok(());
        }
        if let Some(status) = process.ended_within(Duration::ZERO) {
            let what = format!("broker {node}");
            return Err(BrokerError::Failed { what, status, output: process::tail(log) });
        }
        thread::sleep(POLL);
    }
    let seconds = START_WITHIN.as_secs();
    Err(BrokerError::Late { node, seconds, output: process::tail(log) })
}
