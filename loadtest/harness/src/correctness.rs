//! The correctness box: whether a run may speak of latency at all.
//!
//! It is made from what lies on disk once everything has stopped: every replica is compared with
//! the fold of its stream at the same seq, hash against hash, the replica's recomputed from the
//! objects it stores; every status of the cloud's picture with the last report of its node.

use std::collections::{BTreeMap, HashMap};

use headwater_edge::read_outbox;
use headwater_event::{
    Change, EntryKey, Envelope, HashKey, NodeName, ObjectHash, Seq, StateHash, StreamId,
};
use headwater_log::{CatchUpTarget, Log, Outcome, ReadError, begin_fold, read_metadata};
use headwater_store::EngineError;
use headwater_view::StreamReader;
use serde::{Deserialize, Serialize};

use crate::generator::Answers;
use crate::sightings::{Account, Findings};
use crate::target::{NodeDisks, Picture, StoppedError};

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

/// What cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CorrectnessError {
    /// A database or the log cannot be opened.
    #[error(transparent)]
    StoppedTarget(#[from] StoppedError),
    /// A database cannot be read.
    #[error("a database cannot be read")]
    Engine(#[from] EngineError),
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Read(#[from] ReadError),
    /// The log has no beginning that can be read.
    #[error("the log cannot be folded: {reason}")]
    Log {
        /// Why.
        reason: String,
    },
}

/// Collects what is found.
#[derive(Debug, Default)]
pub struct Check {
    found: Correctness,
    /// What replicas say: by stream, and where they stand.
    stand: BTreeMap<StreamId, BTreeMap<Seq, Vec<Stand>>>,
}

/// A replica that waits until the fold reaches its position.
#[derive(Debug)]
struct Stand {
    node: NodeName,
    /// Recomputed from the objects that are stored.
    hash: StateHash,
}

/// A stream as the log folds.
#[derive(Debug, Default)]
struct Fold {
    seq: Seq,
    hash: StateHash,
    objects: HashMap<EntryKey, ObjectHash>,
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
    pub fn node(&mut self, disks: &NodeDisks, picture: &Picture) -> Result<(), CorrectnessError> {
        self.found.edges += 1;
        let snapshot = disks.state.snapshot();
        let reader = StreamReader::new(&*snapshot);
        for position in reader.streams()? {
            let stream = position.stream;
            let node = &disks.node;
            if !stream.readable_by(node) {
                self.note(|| format!("{node} holds {stream}, which is not its own"));
            }
            let Some(verified) = reader.verify(&stream)? else { continue };
            if !verified.agrees() {
                let seq = verified.checkpoint.seq;
                self.note(|| {
                    let (kept, made) = (verified.kept, verified.recomputed);
                    format!("{node} {stream} {seq}: kept {kept}, its objects make {made}")
                });
            }
            self.found.replicas += 1;
            let stand = Stand { node: node.clone(), hash: verified.recomputed };
            let at = self.stand.entry(stream).or_default().entry(verified.checkpoint.seq);
            at.or_default().push(stand);
        }
        self.statuses(disks, picture)
    }

    fn statuses(&mut self, disks: &NodeDisks, picture: &Picture) -> Result<(), CorrectnessError> {
        let node = &disks.node;
        let contents = read_outbox(&*disks.outbox, node)?;
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
    pub async fn log(&mut self, log: &dyn Log) -> Result<(), CorrectnessError> {
        let log_metadata = read_metadata(log)
            .await
            .map_err(|error| CorrectnessError::Log { reason: error.to_string() })?;
        let mut folds: BTreeMap<StreamId, Fold> = BTreeMap::new();
        if let Some(log_metadata) = log_metadata {
            let hash_key = HashKey::new(&log_metadata.log_id);
            let mut acceptance = begin_fold(log, log_metadata, 0).await?;
            let mut ends = CatchUpTarget::ahead_of(log, &acceptance.cursors()).await?;
            let mut reader = log.read(acceptance.cursors()).await?;
            while !ends.is_reached() {
                let batch = reader.next().await?;
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
        let standing = self.stand.get_mut(stream).and_then(|stand| stand.remove(&seq));
        for stand in standing.into_iter().flatten() {
            if stand.hash != hash {
                let (node, found) = (&stand.node, stand.hash);
                self.note(|| format!("{node} {stream} {seq}: {found}, the log makes {hash}"));
            }
        }
    }

    /// Replicas at a position that the log does not have, and replicas before its end.
    fn rest(&mut self, folds: &BTreeMap<StreamId, Fold>) {
        let left = std::mem::take(&mut self.stand);
        for (stream, stands) in left {
            for (seq, mut stand) in stands {
                // Before the first event of a stream there is nothing.
                stand.retain(|stand| seq != Seq::ZERO || stand.hash != StateHash::EMPTY);
                if stand.is_empty() {
                    continue;
                }
                let nodes = stand.len();
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
        let key = change.key().clone();
        let before = match change {
            Change::Applied(applied) => {
                let object = ObjectHash::of(&applied.object);
                self.hash.add(hash_key, &key, &object);
                self.objects.insert(key.clone(), object)
            }
            Change::Removed(_) => self.objects.remove(&key),
        };
        if let Some(before) = before {
            self.hash.subtract(hash_key, &key, &before);
        }
    }
}

#[cfg(test)]
mod tests;
