//! The node's streams, as its private stream assigns them.

use headwater_event::{Assignment, Change, EntryKey, Seq, StreamId};

use super::{EdgeOutput, EdgeSession, divergence};
use crate::message::Push;

impl EdgeSession {
    /// The assignment in a part of a push to the private stream; `None`: the part does not change
    /// it, or its entry cannot be decoded.
    pub(super) fn assignment_in(&self, push: &Push) -> Option<Assignment> {
        let node = &self.identity.node;
        if push.stream != StreamId::node(node) {
            return None;
        }
        let mut assignment = None;
        if push.mode.begins_anew() && push.part == 0 {
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
    /// its pushes, so that no `Applied` concerns a dropped stream.
    pub(super) fn drop_unassigned(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Some(assignment) = &self.assignment else { return };
        self.receivers.retain(|stream, receiver| {
            receiver.is_leaving |= !assignment.contains(stream);
            if receiver.is_leaving && receiver.unstage() {
                outputs.push(EdgeOutput::Unstage(stream.clone()));
            }
            let is_dropped = receiver.is_leaving && receiver.unapplied() == 0;
            if is_dropped {
                outputs.push(EdgeOutput::Drop(stream.clone()));
                self.dropped.insert(stream.clone());
            }
            !is_dropped
        });
        self.request_regained(outputs);
    }

    /// Requests a snapshot of each stream that the node lost and regained within the session: the
    /// edge has dropped events that the hub has already sent.
    fn request_regained(&mut self, outputs: &mut Vec<EdgeOutput>) {
        let Some(assignment) = self.assignment.as_ref().filter(|_| self.is_open()) else { return };
        let regained: Vec<_> = self
            .dropped
            .iter()
            .filter(|stream| assignment.contains(stream) && !self.receivers.contains_key(*stream))
            .cloned()
            .collect();
        for stream in regained {
            self.acknowledge(outputs);
            outputs.push(divergence(&stream, Seq::ZERO));
            self.dropped.remove(&stream);
        }
    }
}
