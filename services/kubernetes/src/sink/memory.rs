//! What the sink remembers of an object that it writes, beside what the API shows.

use headwater_event::ReportId;

use super::answer::AnswerPart;
use super::plan::{NodeInputs, Step};
use crate::digest::Digest;
use crate::failure::REFUSALS_MAX;
use crate::pod_status::OwnedStatus;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    /// Create a Node.
    CreateNode,
    /// Labels and annotations of a Node.
    NodeMetadata,
    /// The status of a Node.
    NodeStatus,
    /// The drivers of a CSINode.
    CsiNode,
    /// Create a CSINode.
    CreateCsiNode,
    /// Take every driver from a CSINode.
    ClearCsiNode,
    /// The status of a pod.
    PodStatus,
    /// The end of a pod.
    DeletePod,
    /// The tolerations of a pod.
    Tolerations,
    /// Create the mirror of a static pod.
    CreateMirror,
    /// The end of the mirror of a static pod.
    DeleteMirror,
    /// The Lease of a node.
    Lease,
    /// An Event that the API does not have.
    CreateEvent,
    /// An Event that happened again.
    PatchEvent,
}

/// The pauses after failures of an object, doubled from the first to the last. The last is short: 5 s
/// after the server is back, everything is to be right.
const PAUSE_MIN_MS: u64 = 200;
const PAUSE_MAX_MS: u64 = 4_000;

/// The pause after a refusal that lasts until a person acts. With the usual pauses, [`REFUSALS_MAX`] of them span half a
/// minute.
pub(crate) const FORBIDDEN_PAUSE_MS: u64 = 60_000;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectMemory {
    /// The UID of the object; empty before it is there.
    uid: Box<str>,
    /// Of a pod: the report of its status that was compared last.
    pub(crate) report: Option<KnownReport>,
    /// Of a Node: what was compared last, and the step that followed.
    compared: Option<(NodeInputs, Step)>,
    written: Vec<(Purpose, Written)>,
    refusals: Vec<(Purpose, Refusal)>,
    failures: u32,
    /// How often in a row the API server did not know the object.
    absences: u32,
    /// How often in a row it refused a request for want of a right.
    forbidden: u32,
    /// When it was first compared.
    pub(crate) since_ms: u64,
    /// No request before this time.
    pub(crate) not_before_ms: u64,
}

/// A report of the status of a pod, and what of it decides. A node never reports anything else under the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownReport {
    pub(crate) id: ReportId,
    pub(crate) status: OwnedStatus,
}

/// A write that the API took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// What was to be shown.
    pub(crate) desired: Digest,
    /// What the API shows since: it may leave out or add fields.
    pub(crate) shown: Digest,
    /// When.
    pub(crate) at_ms: u64,
}

/// A write that the API never takes: of this content, to this version of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    content: Digest,
    order: Option<u64>,
}

impl Purpose {
    /// Whether it is about the CSINode of a node.
    pub(crate) fn is_of_csi_node(self) -> bool {
        matches!(self, Self::CsiNode | Self::CreateCsiNode | Self::ClearCsiNode)
    }

    /// Whether it is about the mirror of a static pod.
    pub(crate) fn is_of_mirror(self) -> bool {
        matches!(self, Self::CreateMirror | Self::DeleteMirror)
    }

    /// Whether it ends an object.
    pub(crate) fn is_delete(self) -> bool {
        matches!(self, Self::DeletePod | Self::DeleteMirror)
    }

    /// What of the answer is needed. The view has neither CSINodes nor what ends, nor what has a lane of its own. It gets
    /// tolerations from the watch: until then no others are written, see `plan_pod`.
    pub(crate) fn answer_part(self) -> AnswerPart {
        match self {
            Self::CreateNode
            | Self::NodeMetadata
            | Self::NodeStatus
            | Self::PodStatus
            | Self::CreateMirror => AnswerPart::Object,
            Self::CsiNode
            | Self::CreateCsiNode
            | Self::ClearCsiNode
            | Self::DeletePod
            | Self::DeleteMirror
            | Self::Tolerations
            | Self::Lease
            | Self::CreateEvent
            | Self::PatchEvent => AnswerPart::Outcome,
        }
    }

    /// The verb and the resource, as a role names them.
    pub(crate) fn right(self) -> &'static str {
        match self {
            Self::CreateNode => "create nodes",
            Self::NodeMetadata => "patch nodes",
            Self::NodeStatus => "patch nodes/status",
            Self::CsiNode | Self::ClearCsiNode => "patch csinodes",
            Self::CreateCsiNode => "create csinodes",
            Self::PodStatus => "patch pods/status",
            Self::DeletePod | Self::DeleteMirror => "delete pods",
            Self::CreateMirror => "create pods",
            Self::Tolerations => "patch pods",
            Self::Lease => "patch leases",
            Self::CreateEvent => "create events",
            Self::PatchEvent => "patch events",
        }
    }
}

impl ObjectMemory {
    /// Forgets everything if the object is not the one of this UID: another one has its name by now.
    pub(crate) fn set_uid(&mut self, uid: &str, now_ms: u64) {
        if *self.uid != *uid {
            *self = Self { uid: uid.into(), since_ms: now_ms, ..Self::default() };
        }
    }

    /// The step that followed from these inputs the last time, if it still holds: nothing is to be compared then.
    pub(crate) fn known_step(&self, inputs: NodeInputs, now_ms: u64) -> Option<Step> {
        let (_, step) = self.compared.filter(|(of, _)| *of == inputs)?;
        let holds = match step {
            Step::Rest => true,
            Step::Wait { until_ms } => now_ms < until_ms,
            Step::Call(_) => false,
        };
        holds.then_some(step)
    }

    /// This step followed from these inputs.
    pub(crate) fn note_step(&mut self, inputs: NodeInputs, step: Step) {
        self.compared = Some((inputs, step));
    }

    /// Another step may follow from the same inputs: a request has an answer.
    pub(crate) fn forget_step(&mut self) {
        self.compared = None;
    }

    /// The last write for a purpose.
    pub(crate) fn written(&self, purpose: Purpose) -> Option<Written> {
        self.written.iter().find(|(of, _)| *of == purpose).map(|(_, written)| *written)
    }

    /// Whether the API refused this content for this version of the object.
    pub(crate) fn is_settled(&self, purpose: Purpose, content: Digest, order: Option<u64>) -> bool {
        self.refusals.contains(&(purpose, Refusal { content, order }))
    }

    /// The API took a write.
    pub(crate) fn note_written(&mut self, purpose: Purpose, written: Written) {
        self.note_progress();
        self.written.retain(|(of, _)| *of != purpose);
        self.written.push((purpose, written));
        self.refusals.retain(|(of, _)| *of != purpose);
    }

    /// The API never takes a write of this content, while the object has this version.
    pub(crate) fn note_settled(&mut self, purpose: Purpose, content: Digest, order: Option<u64>) {
        self.note_progress();
        self.refusals.retain(|(of, _)| *of != purpose);
        self.refusals.push((purpose, Refusal { content, order }));
    }

    /// The API may take again what it refused for this purpose.
    pub(crate) fn forget_settled(&mut self, purpose: Purpose) {
        self.refusals.retain(|(of, _)| *of != purpose);
    }

    /// The API server has done with a request.
    fn note_progress(&mut self) {
        (self.failures, self.absences, self.forbidden, self.not_before_ms) = (0, 0, 0, 0);
    }

    /// A request failed.
    pub(crate) fn note_failure(&mut self, now_ms: u64) {
        let pause_ms = PAUSE_MIN_MS << self.failures.min(16);
        self.failures += 1;
        self.not_before_ms = now_ms + pause_ms.min(PAUSE_MAX_MS);
    }

    /// The API server does not know the object. Returns how often in a row.
    pub(crate) fn note_absence(&mut self, now_ms: u64) -> u32 {
        self.note_failure(now_ms);
        self.absences += 1;
        self.absences
    }

    /// A right lacks. Returns how often in a row.
    pub(crate) fn note_forbidden(&mut self, now_ms: u64) -> u32 {
        self.note_failure(now_ms);
        self.forbidden += 1;
        if self.forbidden > REFUSALS_MAX {
            self.pause(now_ms, FORBIDDEN_PAUSE_MS);
        }
        self.forbidden
    }

    /// The API may take what it refused until now.
    pub(crate) fn end_pause(&mut self) {
        self.not_before_ms = 0;
    }

    /// How many requests in a row failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// The API wants to be left alone for a time.
    pub(crate) fn pause(&mut self, now_ms: u64, pause_ms: u64) {
        self.not_before_ms = now_ms + pause_ms;
    }
}

#[cfg(test)]
mod tests {
    use headwater_controller::NodePresence;
    use headwater_event::EdgeStart;
    use serde_json::json;

    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_end_with_a_success() {
        let mut memory = ObjectMemory::default();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            memory.note_failure(1_000);
            pauses.push(memory.not_before_ms - 1_000);
        }
        assert_eq!(pauses[..6], [200, 400, 800, 1_600, 3_200, 4_000]);
        assert_eq!(pauses[39], PAUSE_MAX_MS);
        let content = crate::digest::digest(&json!(1));
        let written = Written { desired: content, shown: content, at_ms: 5 };
        memory.note_written(Purpose::PodStatus, written);
        assert_eq!((memory.not_before_ms, memory.failures), (0, 0));
    }

    #[test]
    fn a_node_of_which_nothing_changed_is_compared_when_its_step_is_over_or_a_request_has_an_answer()
     {
        let mut memory = ObjectMemory::default();
        let inputs = NodeInputs {
            report: ReportId::default(),
            start: EdgeStart::default(),
            order: 7,
            history: 0,
            presence: NodePresence { is_present: true, has_drained: false },
        };
        assert_eq!(memory.known_step(inputs, 0), None, "not compared yet");
        memory.note_step(inputs, Step::Rest);
        assert_eq!(memory.known_step(inputs, u64::MAX), Some(Step::Rest));
        let report = ReportId { seq: 1, ..inputs.report };
        let start = EdgeStart { boot: 1, ..inputs.start };
        let presence = NodePresence { has_drained: true, ..inputs.presence };
        for other in [
            NodeInputs { report, ..inputs },
            NodeInputs { start, ..inputs },
            NodeInputs { order: 8, ..inputs },
            NodeInputs { history: 1, ..inputs },
            NodeInputs { presence, ..inputs },
        ] {
            assert_eq!(memory.known_step(other, 0), None, "{other:?}");
        }
        let wait = Step::Wait { until_ms: 500 };
        memory.note_step(inputs, wait);
        assert_eq!(memory.known_step(inputs, 499), Some(wait));
        assert_eq!(memory.known_step(inputs, 500), None);
        memory.note_step(inputs, Step::Call(Purpose::NodeStatus));
        assert_eq!(memory.known_step(inputs, 0), None, "the request may not have been sent");
        memory.note_step(inputs, Step::Rest);
        memory.forget_step();
        assert_eq!(memory.known_step(inputs, 0), None);
    }

    #[test]
    fn nothing_is_remembered_of_another_object_of_the_same_name() {
        let mut memory = ObjectMemory::default();
        memory.set_uid("first", 1);
        let content = crate::digest::digest(&json!(1));
        let written = Written { desired: content, shown: content, at_ms: 5 };
        memory.note_written(Purpose::PodStatus, written);
        memory.set_uid("first", 2);
        assert_eq!((memory.written(Purpose::PodStatus), memory.since_ms), (Some(written), 1));
        memory.set_uid("second", 3);
        assert_eq!(memory.written(Purpose::PodStatus), None);
    }
}
