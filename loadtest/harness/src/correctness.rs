//! The correctness box: whether a run may speak of latency at all.
//!
//! It is made from what lies on disk once everything has stopped: every replica is compared with
//! the fold of its stream at the same seq, entry by entry, as its stored objects are; every status of
//! the cloud's picture with the last report of its node.

use std::collections::BTreeMap;

use headwater_check::{State, isolation, prefix};
use headwater_e2e::evidence::replicas;
use headwater_edge::read_outbox;
use headwater_event::{Change, Envelope, HashKey, NodeName, ObjectHash, Seq, StateHash, StreamId};
use headwater_log::{CatchUpTarget, Log, Outcome, begin_fold, read_metadata};
use serde::{Deserialize, Serialize};

use crate::disks::NodeDisks;
use crate::failure::{Attempt, Failure};
use crate::generator::Answers;
use crate::sightings::{Account, Findings};
use crate::stopped::Picture;

/// A database or the log cannot be read.
const UNREADABLE: &str = "what was left cannot be read";

/// What was compared, and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Correctness {
    /// Whether nothing was found.
    pub right: bool,
    /// Edges whose databases were read.
    pub edges: u64,
    /// Replicas that were compared with the fold of their stream.
    pub replicas: u64,
    /// Events of the log that were folded for it.
    pub events: u64,
    /// Statuses that were compared with the cloud's picture.
    pub statuses: u64,
    /// How intended changes and sightings add up.
    pub account: Account,
    /// Lines that the controller refused.
    pub refused: u64,
    /// What does not hold.
    pub findings: Findings,
}

/// Collects what is found.
#[derive(Debug, Default)]
pub struct Check {
    found: Correctness,
    /// Replicas that wait until the fold reaches their position, by stream and position.
    waiting: BTreeMap<StreamId, BTreeMap<Seq, Vec<(NodeName, State)>>>,
}

/// A stream as the log folds.
#[derive(Debug, Default)]
struct Fold {
    seq: Seq,
    hash: StateHash,
    state: State,
}

impl Check {
    /// Takes what was found while the run went on.
    pub fn run(&mut self, account: Account, answers: &Answers, seen: Findings) {
        if account.missing > 0 {
            let missing = account.missing;
            self.note(|| format!("{missing} changes were never seen, and nothing explains it"));
        }
        if answers.refused > 0 {
            let first = answers.refusals.first().cloned().unwrap_or_default();
            let refused = answers.refused;
            self.note(|| format!("the controller refused {refused} lines: {first}"));
        }
        self.found.refused = answers.refused;
        self.found.account = account;
        self.found.findings.extend(seen);
    }

    /// Reads the databases of a node: its replicas, and its reports for the comparison with the cloud's
    /// picture.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn node(&mut self, disks: &NodeDisks, picture: &Picture) -> Result<(), Failure> {
        self.found.edges += 1;
        let node = &disks.node;
        for (stream, replica) in replicas(&*disks.state.snapshot()).tried(UNREADABLE)? {
            if let Err(leak) = isolation::check_stream(node, &stream) {
                self.note(|| leak.to_string());
            }
            let seq = replica.checkpoint.seq;
            let (kept, made) = (replica.kept, replica.state.hash(&replica.checkpoint.log_id));
            if kept != made {
                self.note(|| {
                    format!("{node} {stream} {seq}: kept {kept}, its objects make {made}")
                });
            }
            self.found.replicas += 1;
            let at = self.waiting.entry(stream).or_default().entry(seq);
            at.or_default().push((node.clone(), replica.state));
        }
        self.statuses(disks, picture)
    }

    fn statuses(&mut self, disks: &NodeDisks, picture: &Picture) -> Result<(), Failure> {
        let node = &disks.node;
        let contents = read_outbox(&*disks.outbox, node).tried(UNREADABLE)?;
        if !contents.reports.is_empty() {
            let waiting = contents.reports.len();
            self.note(|| format!("{node}: {waiting} reports never reached the cloud"));
        }
        let in_cloud = picture.statuses(node)?;
        let Some(told) = contents.reported else {
            if !in_cloud.is_empty() {
                self.note(|| format!("{node}: it is not known what it told the cloud"));
            }
            return Ok(());
        };
        for (pod, digest) in told.pods() {
            self.found.statuses += 1;
            if in_cloud.get(pod) != Some(digest) {
                self.note(|| format!("{node}: the cloud does not have the newest status of {pod}"));
            }
        }
        for pod in in_cloud.keys().filter(|pod| told.get(pod).is_none()) {
            self.note(|| format!("{node}: the cloud has a status of {pod}, which is not there"));
        }
        Ok(())
    }

    /// Folds the log and compares every replica with it, at the replica's position.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn log(&mut self, log: &dyn Log) -> Result<(), Failure> {
        let log_metadata = read_metadata(log).await.tried("the log cannot be folded")?;
        let mut folds: BTreeMap<StreamId, Fold> = BTreeMap::new();
        if let Some(log_metadata) = log_metadata {
            let hash_key = HashKey::new(&log_metadata.log_id);
            let mut acceptance = begin_fold(log, log_metadata, 0).await.tried(UNREADABLE)?;
            let ends = CatchUpTarget::ahead_of(log, &acceptance.cursors()).await;
            let mut ends = ends.tried(UNREADABLE)?;
            let mut reader = log.read(acceptance.cursors()).await.tried(UNREADABLE)?;
            while !ends.is_reached() {
                let batch = reader.next().await.tried(UNREADABLE)?;
                for outcome in acceptance.accept_batch(&batch, 0) {
                    match outcome {
                        Outcome::Accepted(event) => self.event(&event, &hash_key, &mut folds),
                        Outcome::Hole(hole) => {
                            self.note(|| format!("the log has a hole: {hole:?}"))
                        }
                        Outcome::Malformed(malformed) => self.note(|| malformed.to_string()),
                        _ => {}
                    }
                }
                ends.pass(&batch.cursor);
            }
        }
        self.rest(&folds);
        Ok(())
    }

    fn event(
        &mut self,
        event: &Envelope,
        hash_key: &HashKey,
        folds: &mut BTreeMap<StreamId, Fold>,
    ) {
        self.found.events += 1;
        let stream = &event.stream;
        let fold = folds.entry(stream.clone()).or_default();
        fold.take(event, hash_key);
        let (seq, hash, claimed) = (event.seq, fold.hash, event.hash);
        if hash != claimed {
            self.note(|| format!("{stream} {seq}: the log says {claimed}, its events make {hash}"));
        }
        let waiting = self.waiting.get_mut(stream).and_then(|waiting| waiting.remove(&seq));
        for (node, replica) in waiting.into_iter().flatten() {
            if let Err(error) = prefix::check_state(&fold.state, stream, seq, &replica) {
                self.note(|| format!("{node}: {error}"));
            }
        }
    }

    /// Replicas at a position that the log does not have, and replicas before its end.
    fn rest(&mut self, folds: &BTreeMap<StreamId, Fold>) {
        for (stream, waiting) in std::mem::take(&mut self.waiting) {
            for (seq, mut replicas) in waiting {
                // Before the first event of a stream there is nothing.
                replicas.retain(|(_, replica)| seq != Seq::ZERO || *replica != State::default());
                if replicas.is_empty() {
                    continue;
                }
                let nodes = replicas.len();
                let end = folds.get(&stream).map_or(Seq::ZERO, |fold| fold.seq);
                self.note(|| {
                    format!("{nodes} replicas of {stream} stand at {seq}, the log ends at {end}")
                });
            }
        }
    }

    /// Whether the box is right.
    pub fn done(mut self) -> Correctness {
        if self.found.edges > 0 && self.found.replicas == 0 {
            self.note(|| "no replica was there to be compared".to_owned());
        }
        self.found.right = self.found.findings.count == 0;
        self.found
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        self.found.findings.note(what);
    }
}

impl Fold {
    fn take(&mut self, event: &Envelope, hash_key: &HashKey) {
        self.seq = event.seq;
        let Some(change) = event.event.change() else { return };
        if let Some(before) = self.state.entries.get(change.key()) {
            self.hash.subtract(hash_key, change.key(), &before.object);
        }
        if let Change::Applied(applied) = &change {
            self.hash.add(hash_key, &applied.key, &ObjectHash::of(&applied.object));
        }
        self.state.apply(&change);
    }
}

#[cfg(test)]
mod tests;
