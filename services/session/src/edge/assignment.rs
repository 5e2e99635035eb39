//! The node's streams, as its private stream assigns them.

use std::collections::BTreeSet;

use headwater_event::{Assignment, Change, EntryKey, Seq, StreamId};

use super::{EdgeOutput, EdgeSession, divergence};
use crate::message::{Push, PushMode};

impl EdgeSession {
    /// The assignment in a part of a push to the private stream; `None`: the part does not change
    /// it, or its entry cannot be decoded.
    pub(super) fn assignment_in(&self, push: &Push) -> Option<Assignment> {
        let node = &self.identity.node;
        if push.stream != StreamId::node(node) {
            return None;
        }
        let mut assignment = None;
        if push.is_beginning() {
            assignment = Some(Assignment::new(node, []));
        }
        for pushed in &push.changes {
            match &pushed.change {
                Change::Applied(applied) if applied.key == EntryKey::Streams => {
                    assignment = Assignment::decode(node, &applied.object).ok();
                }
                Change::Removed(removed) if removed.key == EntryKey::Streams => {
                    assignment = Some(Assignment::new(node, []));
                }
                Change::Applied(_) | Change::Removed(_) => {}
            }
        }
        assignment
    }

    /// Whether the private stream names `stream`: as it is applied, or in a push that has arrived. An
    /// edge without an assignment may have any stream.
    fn is_assigned(&self, stream: &StreamId) -> bool {
        let names = |assignment: &Assignment| assignment.contains(stream);
        self.assignment.as_ref().is_none_or(names) || self.arrived_assignment().is_some_and(names)
    }

    fn arrived_assignment(&self) -> Option<&Assignment> {
        let private = self.receivers.get(&StreamId::node(&self.identity.node))?;
        private.arrived_assignment()
    }

    /// Drops the streams that the private stream no longer names, each once the shell has applied
    /// its pushes, so that no `Applied` concerns a dropped stream.
    pub(super) fn drop_unassigned(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let streams = self.receivers.keys();
        let unassigned: BTreeSet<_> =
            streams.filter(|stream| !self.is_assigned(stream)).cloned().collect();
        self.receivers.retain(|stream, receiver| {
            receiver.is_leaving |= unassigned.contains(stream);
            if receiver.is_leaving && receiver.unstage() {
                outputs.push(EdgeOutput::Unstage(stream.clone()));
            }
            let is_dropped = receiver.is_leaving && receiver.unapplied() == 0;
            if is_dropped {
                outputs.push(EdgeOutput::Drop(stream.clone()));
                self.dropped.insert(stream.clone(), false);
            }
            !is_dropped
        });
        self.request_regained(outputs);
    }

    /// Whether a push is discarded before its stream receives it: the hub sent it before it knew that
    /// the edge has dropped the stream, or the hub has not read that the node lost it.
    pub(super) fn discards(&mut self, push: &Push) -> bool {
        let stream = &push.stream;
        if !self.receivers.contains_key(stream) && !self.is_assigned(stream) {
            self.dropped.entry(stream.clone()).or_insert(false);
        } else if push.mode == PushMode::Snapshot && push.part == 0 {
            self.dropped.remove(stream);
        }
        self.dropped.contains_key(stream)
    }

    /// Requests a snapshot, once, of each stream that the node lost and regained within the session:
    /// the edge has dropped events that the hub has already sent.
    pub(super) fn request_regained(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Some(assignment) = self.assignment.as_ref().filter(|_| self.is_open()) else { return };
        let mut regained = Vec::new();
        for (stream, is_requested) in &mut self.dropped {
            if assignment.contains(stream) && !*is_requested {
                *is_requested = true;
                regained.push(stream.clone());
            }
        }
        for stream in regained {
            self.acknowledge(outputs);
            outputs.push(divergence(&stream, Seq::ZERO));
        }
    }
}
