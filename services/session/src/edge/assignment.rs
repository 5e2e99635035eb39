//! The node's streams, as its private stream assigns them.

use headwater_event::{Assignment, Change, EntryKey, Seq, StreamId};

use super::{EdgeOutput, EdgeSession, divergence};
use crate::message::Push;

/// A stream that was dropped within this connection. The hub still counts it as held by the edge.
#[derive(Debug, Default)]
pub(super) struct DroppedStream {
    /// The node has the stream again, and the hub was asked for a snapshot.
    is_requested: bool,
}

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

    /// Drops the streams that the private stream no longer names, each once the shell has applied
    /// its pushes, so that no `Applied` concerns a dropped stream. A stream of which nothing is
    /// applied may have been assigned by a push that is not applied either.
    pub(super) fn drop_unassigned(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Some(assignment) = &self.assignment else { return };
        self.receivers.retain(|stream, receiver| {
            let is_assigned = assignment.contains(stream);
            receiver.was_assigned |= is_assigned || receiver.applied.is_some();
            receiver.is_leaving |= receiver.was_assigned && !is_assigned;
            if receiver.is_leaving && receiver.unstage() {
                outputs.push(EdgeOutput::Unstage(stream.clone()));
            }
            let is_dropped = receiver.is_leaving && receiver.unapplied() == 0;
            if is_dropped {
                outputs.push(EdgeOutput::Drop(stream.clone()));
                self.dropped.insert(stream.clone(), DroppedStream::default());
            }
            !is_dropped
        });
        self.request_regained(outputs);
    }

    /// Requests a snapshot, once, of each stream that the node lost and regained within the session:
    /// the edge has dropped events that the hub has already sent.
    fn request_regained(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Some(assignment) = self.assignment.as_ref().filter(|_| self.is_open()) else { return };
        let mut regained = Vec::new();
        for (stream, dropped) in &mut self.dropped {
            if assignment.contains(stream) && !dropped.is_requested {
                dropped.is_requested = true;
                regained.push(stream.clone());
            }
        }
        for stream in regained {
            self.acknowledge(outputs);
            outputs.push(divergence(&stream, Seq::ZERO));
        }
    }

    /// Whether a push is of a dropped stream, and does not begin it anew. The hub sent it before it
    /// knew of the drop.
    pub(super) fn is_of_dropped(&mut self, push: &Push) -> bool {
        if push.is_beginning() {
            self.dropped.remove(&push.stream);
        }
        self.dropped.contains_key(&push.stream)
    }
}
