//! The checkers of `loadtest/check` over the evidence of a data directory or a fleet, look after look.
//!
//! It keeps the evidence of the previous look, so that it finds what was lost, applied twice or taken
//! back between two looks, whatever killed a process there.

mod reports;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use headwater_check::deletion::RemovedUids;
use headwater_check::once::Once;
use headwater_check::removed::Removals;
use headwater_check::state::State;
use headwater_check::{convergence, deletion, durable, fencing, gap, isolation, prefix};
use headwater_event::{
    Assignment, Checkpoint, EntryKey, Envelope, Event, NodeName, NodeStreamProgress, Seq, StreamId,
};

use self::reports::Reports;
use crate::containers::containers;
use crate::evidence::{Evidence, NodeEvidence, Replica};
use crate::fleet::Fleet;

/// What does not hold, in the words of its checker.
pub type Broken = Box<dyn Error>;

/// What is known from the looks so far.
#[derive(Debug, Default)]
pub struct Invariants {
    log: BTreeMap<StreamId, Past>,
    nodes: BTreeMap<NodeName, Node>,
    reports: Reports,
    /// A text that only this node's private stream holds.
    markers: BTreeMap<NodeName, String>,
    /// What begins so is never removed by its source.
    anchors: String,
}

/// What was read of a stream of the log.
#[derive(Debug, Default)]
struct Past {
    events: Vec<Envelope>,
    state: State,
    removals: Removals,
}

/// What was read of a node.
#[derive(Debug, Default)]
struct Node {
    once: Once,
    removals: Removals,
    replicas: BTreeMap<StreamId, (Checkpoint, State)>,
}

impl Invariants {
    /// Nothing was looked at yet. The source never removes objects whose names begin with
    /// `anchors`.
    pub fn new(anchors: &str) -> Self {
        Self { anchors: anchors.to_owned(), ..Self::default() }
    }

    /// Only the private stream of `node` holds `marker`.
    pub fn mark(&mut self, node: NodeName, marker: &str) {
        self.markers.insert(node, marker.to_owned());
    }

    /// The state database of `node` was lost: its replica begins anew, from wherever.
    pub fn lost_state(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }

    /// The outbox database of `node` was lost: what waited in it is.
    pub fn lost_outbox(&mut self, node: &NodeName) {
        self.reports.lost_outbox(node);
    }

    /// The database of the controller of this name was lost: its picture begins anew.
    pub fn lost_picture(&mut self, controller: &str) {
        self.reports.lost_picture(controller);
    }

    /// Checks the invariants of `data` that hold at any time. No process uses it.
    ///
    /// # Errors
    /// Names what does not hold.
    pub fn look(&mut self, data: &Path) -> Result<Evidence, Broken> {
        let evidence = Evidence::of(data)?;
        self.check(&evidence)?;
        self.look_at_processes(data, &evidence)?;
        Ok(evidence)
    }

    /// Checks the invariants of `fleet` that hold at any time. Its broker runs; its parts may run.
    ///
    /// # Errors
    /// Names what does not hold.
    pub fn look_at_fleet(&mut self, fleet: &Fleet) -> Result<Evidence, Broken> {
        let evidence = Evidence::of_fleet(fleet)?;
        self.check(&evidence)?;
        for (_, part) in fleet.parts() {
            self.look_at_processes(part.data(), &evidence)?;
        }
        Ok(evidence)
    }

    fn check(&mut self, evidence: &Evidence) -> Result<(), Broken> {
        if let Some(flaw) = evidence.flaws.first() {
            return Err(format!("I7 a reader of the log stumbles: {flaw}").into());
        }
        for (partition, readings) in &evidence.readings {
            fencing::check(*partition, readings.iter().copied())?;
        }
        for (stream, events) in &evidence.streams {
            self.log.entry(stream.clone()).or_default().read(stream, events, evidence)?;
        }
        for (stream, past) in &self.log {
            if evidence.events(stream).len() < past.events.len() {
                return Err(format!("the log lost events of {stream}").into());
            }
        }
        for (node, found) in &evidence.nodes {
            self.look_at(node, found, evidence)?;
            self.reports.look(node, found, evidence)?;
        }
        Ok(())
    }

    /// Checks that every replica has come to the end of its streams, and every picture to that of
    /// the reports. Nothing was to be done any more; edges that were ended are not looked at.
    ///
    /// # Errors
    /// Names a replica at another position, or a report that still waits.
    pub fn converged(&self, evidence: &Evidence) -> Result<(), Broken> {
        let Some(log_metadata) = evidence.log_metadata else {
            return Err("the log is empty".into());
        };
        if let Some((stream, touched)) = evidence.unrepaired.first() {
            return Err(
                format!("I11 what counts nowhere touched {touched:?} of {stream} last").into()
            );
        }
        for (node, found) in evidence.nodes.iter().filter(|(_, found)| !found.is_away) {
            reports::converged(node, found, evidence)?;
            for stream in assignment(node, evidence).streams() {
                let Some(last) = evidence.events(stream).last() else { continue };
                let end = convergence::End { seq: last.seq, hash: last.hash };
                let replica = found.replicas.get(stream);
                let at = replica.map(|replica| convergence::End {
                    seq: replica.checkpoint.seq,
                    hash: replica.state.hash(&log_metadata.log_id),
                });
                convergence::check(node, stream, end, at)?;
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        node: &NodeName,
        found: &NodeEvidence,
        evidence: &Evidence,
    ) -> Result<(), Broken> {
        let known = self.nodes.entry(node.clone()).or_default();
        for (stream, replica) in &found.replicas {
            isolation::check_stream(node, stream)?;
            let markers = self.markers.iter().map(|(node, marker)| (node, marker.as_str()));
            for bytes in replica.objects.values() {
                isolation::check_bytes(node, bytes, markers.clone())?;
            }
            let Checkpoint { log_id, seq, .. } = replica.checkpoint;
            let hash = replica.state.hash(&log_id);
            if hash != replica.kept {
                let kept = replica.kept;
                let what = format!("I1 {node} {stream} {seq}: kept {kept}, objects make {hash}");
                return Err(what.into());
            }
            prefix::check(evidence.events(stream), stream, seq, &replica.state)?;
            known.move_to(stream, replica, &self.anchors)?;
        }
        let lost = known.replicas.keys().find(|stream| !found.replicas.contains_key(stream));
        if let Some(stream) = lost {
            return Err(format!("I3 node {node} has nothing of {stream} any more").into());
        }
        let progress = evidence.progress.iter().filter(|(of, _)| of == node);
        for stream in progress.flat_map(|(_, progress)| &progress.streams) {
            let Some(replica) = found.replicas.get(&stream.stream) else { continue };
            let NodeStreamProgress { acked, durable, applied, sent, tail, .. } = stream;
            // Elsewhere they are of two histories: a snapshot is due, or on its way.
            let is_of_one = [acked, durable, applied, sent, tail].is_sorted()
                && stream.log_id == replica.checkpoint.log_id.to_string();
            if is_of_one {
                let durable = replica.checkpoint.seq;
                durable::check(node, &stream.stream, "acknowledged", *acked, durable)?;
            }
        }
        Ok(())
    }

    /// No container has two process trees, and none was started from above the durable seq.
    fn look_at_processes(&self, data: &Path, evidence: &Evidence) -> Result<(), Broken> {
        for (container, trees) in containers(data) {
            if trees.len() > 1 {
                return Err(format!("{container:?} runs {} times: {trees:?}", trees.len()).into());
            }
            let node: NodeName = container.node.parse()?;
            let stream = StreamId::node(&node);
            let is_of_pod = |event: &&Envelope| match &event.event {
                Event::Applied(applied) => applied.uid == container.uid,
                Event::Removed(_) | Event::Head => false,
            };
            let Some(applied) = evidence.events(&stream).iter().find(is_of_pod) else {
                return Err(format!("I8 {container:?} runs and is in no event").into());
            };
            let replica = evidence.nodes.get(&node).and_then(|node| node.replicas.get(&stream));
            let durable = replica.map_or(Seq::ZERO, |replica| replica.checkpoint.seq);
            durable::check(&node, &stream, "started a pod from", applied.seq, durable)?;
        }
        Ok(())
    }
}

impl Past {
    /// Reads on: what was there must be there as it was, and what is new continue it.
    fn read(
        &mut self,
        stream: &StreamId,
        events: &[Envelope],
        evidence: &Evidence,
    ) -> Result<(), Broken> {
        gap::check_dense(stream, Seq::ZERO, events.iter().map(|event| event.seq))?;
        let known = self.events.len();
        if let Some((before, now)) =
            self.events.iter().zip(events).find(|(before, now)| before != now)
        {
            return Err(format!("{stream} {}: {before:?} became {now:?}", before.seq).into());
        }
        for event in events.iter().skip(known) {
            let before = self.state.clone();
            if let Some(change) = event.event.change() {
                self.state.apply(&change);
                let is_repair = evidence.repairs.contains(&(stream.clone(), event.seq));
                if self.state == before && !is_repair {
                    let (seq, kind) = (event.seq, event.event.kind());
                    return Err(format!("I3 {stream} {seq}: {kind} was appended before").into());
                }
            }
            self.removals.observe(stream, &pods(&self.state))?;
        }
        self.events = events.to_vec();
        Ok(())
    }
}

impl Node {
    fn move_to(
        &mut self,
        stream: &StreamId,
        replica: &Replica,
        anchors: &str,
    ) -> Result<(), Broken> {
        self.removals.observe(stream, &pods(&replica.state))?;
        let now = (replica.checkpoint, replica.state.clone());
        let Some(before) = self.replicas.insert(stream.clone(), now) else {
            self.once.replaced(stream, replica.checkpoint)?;
            return Ok(());
        };
        let (checkpoint, state) = before;
        if checkpoint != replica.checkpoint {
            self.once.events(stream, checkpoint.seq, replica.checkpoint)?;
        }
        // The source removes what it likes, anchors aside.
        let mut removed = RemovedUids::default();
        let is_anchor = |key: &str| key.rsplit('/').next().is_some_and(|n| n.starts_with(anchors));
        for (key, entry) in state.entries.iter().filter(|(key, _)| !is_anchor(key.as_str())) {
            removed.remove(key.clone(), entry.uid.clone());
        }
        let checked: Result<(), deletion::UnexpectedDeletion> =
            removed.check(stream, &state, &replica.state);
        Ok(checked?)
    }
}

/// The streams of a node, as the log assigns them last.
fn assignment(node: &NodeName, evidence: &Evidence) -> Assignment {
    let last = evidence.events(&StreamId::node(node)).iter().rev().find_map(|envelope| {
        match &envelope.event {
            Event::Applied(applied) if applied.key == EntryKey::Streams => Some(&applied.object),
            _ => None,
        }
    });
    last.and_then(|object| Assignment::decode(node, object).ok())
        .unwrap_or_else(|| Assignment::new(node, []))
}

/// The pods of a state. What a pod names leaves a node with its last user there and comes back with
/// the next one, the same object; a pod that left is gone.
fn pods(state: &State) -> State {
    let is_pod = |key: &EntryKey| key.resource().is_some_and(|key| key.kind() == "pod");
    let pods = state.entries.iter().filter(|(key, _)| is_pod(key));
    State { entries: pods.map(|(key, entry)| (key.clone(), entry.clone())).collect() }
}
