//! Waits until a fleet has recovered from its faults.

use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::evidence::{Evidence, Unreadable};
use crate::fleet::{Fleet, POLL};
use crate::invariants::Invariants;
use crate::running::WAIT;
use crate::source;

impl Fleet {
    /// Waits until every part that was not ended is in step, every node has the objects of manifests
    /// and socket, and every picture has the reports of the nodes. Each look at the disks checks the
    /// invariants that hold at any time; the last one also checks the memory budgets.
    ///
    /// # Panics
    /// At once when something does not hold that must, and when it is not in step in [`WAIT`].
    pub fn settle_and_check(&self, invariants: &mut Invariants) -> Evidence {
        let deadline = Instant::now() + WAIT;
        loop {
            let missing = match self.not_in_step() {
                Some(missing) => missing,
                None => {
                    let evidence = self.check(invariants);
                    match self.not_converged(invariants, &evidence) {
                        Some(missing) => missing,
                        None => {
                            self.check_memory();
                            return evidence;
                        }
                    }
                }
            };
            assert!(
                Instant::now() < deadline,
                "not in step within {WAIT:?}: {missing}\n{}",
                self.outputs()
            );
            thread::sleep(POLL);
        }
    }

    /// Checks the invariants that hold at any time. The brokers run; the parts may run. A log that is
    /// away is read again for [`WAIT`].
    ///
    /// # Panics
    /// When something does not hold, and when the log stays away.
    pub fn check(&self, invariants: &mut Invariants) -> Evidence {
        let deadline = Instant::now() + WAIT;
        loop {
            let broken = match invariants.look_at_fleet(self) {
                Ok(evidence) => return evidence,
                Err(broken) => broken,
            };
            let is_temporary =
                broken.downcast_ref().is_some_and(|found: &Unreadable| found.is_temporary);
            assert!(is_temporary && Instant::now() < deadline, "{broken}\n{}", self.outputs());
            println!("a look is repeated: {broken}");
            // A look halts the edges, so it is not what waits for the log.
            self.wait_for("the log again", |fleet| (!Evidence::is_log_away(fleet)).then_some(()));
        }
    }

    /// What is not in step by the parts' own status, if anything.
    pub fn not_in_step(&self) -> Option<String> {
        let (mut controllers, mut writers) = (0, 0);
        for (name, part) in self.parts().filter(|(_, part)| part.process_id().is_some()) {
            let Some(status) = part.status() else {
                return Some(format!("{name} does not answer"));
            };
            let is = |what: &str, value: bool| status[what] == value;
            let missing = match status["part"].as_str() {
                Some("controller") => {
                    controllers += 1;
                    writers += u32::from(is("stands_by", false));
                    let is_behind = is("stands_by", false) && !is("reconciled", true);
                    is_behind.then(|| "has not reconciled".to_owned())
                }
                Some("hub") => (!is("reconciled", true)).then(|| "has not read the log".to_owned()),
                Some("edge") => behind(&status),
                _ => None,
            };
            if let Some(missing) = missing {
                return Some(format!("{name} {missing}"));
            }
        }
        (controllers > 0 && writers != 1).then(|| format!("{writers} controllers write"))
    }

    fn not_converged(&self, invariants: &Invariants, evidence: &Evidence) -> Option<String> {
        let converged = invariants.converged(evidence).map_err(|missing| missing.to_string());
        let mut objects = source::objects(&self.manifests());
        objects.extend_from_slice(&self.socket_objects);
        converged.and_then(|()| source::check(&objects, evidence)).err()
    }
}

/// What an edge is behind with.
fn behind(status: &Value) -> Option<String> {
    let node = &status["nodes"][0];
    if node["connected"] != true {
        return Some("is not connected".to_owned());
    }
    if node["outbox_depth"] != 0 {
        return Some(format!("has {} reports to make", node["outbox_depth"]));
    }
    let mut streams = node["streams"].as_array().into_iter().flatten();
    let behind = streams.find(|stream| stream["lag_events"] != 0)?;
    Some(format!("is behind: {behind}"))
}
