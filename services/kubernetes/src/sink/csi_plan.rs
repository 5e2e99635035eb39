//! The decisions about the CSINode of a node.
//!
//! It is not watched: the node alone writes it. A controller writes it once when it becomes the writer, and
//! when the drivers of the node change.
//!
//! | known | request |
//! |---|---|
//! | nothing, or other drivers were written | patch |
//! | it is not there | create |
//! | these drivers are refused | take every driver from it, and patch once more |

use super::answer::Answer;
use super::memory::{ObjectMemory, Purpose, Written};
use super::plan::{Facts, NO_CONTENT, Step};
use crate::csi_node::OwnedDrivers;
use crate::digest::Digest;

/// The next request for the CSINode of a present node.
pub(super) fn plan_csi_node(drivers: &OwnedDrivers, facts: &Facts<'_>) -> Step {
    let (content, memory) = (drivers.digest(), facts.memory);
    let is_written = |purpose| memory.written(purpose).is_some_and(|it| it.desired == content);
    if !facts.presence.is_present || is_written(Purpose::CsiNode) {
        return Step::Rest;
    }
    if memory.is_settled(Purpose::CsiNode, *NO_CONTENT, None) {
        return Step::Call(Purpose::CreateCsiNode);
    }
    if !memory.is_settled(Purpose::CsiNode, content, None) {
        return Step::Call(Purpose::CsiNode);
    }
    // What is refused once more waits for another report.
    let was_cleared = is_written(Purpose::ClearCsiNode);
    if was_cleared { Step::Rest } else { Step::Call(Purpose::ClearCsiNode) }
}

/// Notes what a request for a CSINode came to, unless its outcome is unknown.
pub(super) fn note_answer(
    memory: &mut ObjectMemory,
    purpose: Purpose,
    content: Digest,
    answer: &Answer,
    now_ms: u64,
) {
    let written = Written { desired: content, shown: content, at_ms: now_ms };
    match (answer, purpose) {
        (Answer::Done(_) | Answer::Absent, Purpose::ClearCsiNode) => {
            memory.note_written(Purpose::ClearCsiNode, written);
            memory.forget_settled(Purpose::CsiNode);
        }
        (Answer::Done(_), _) => memory.note_written(Purpose::CsiNode, written),
        (Answer::Absent, _) => memory.note_settled(Purpose::CsiNode, *NO_CONTENT, None),
        // It was there already, or has changed meanwhile.
        (Answer::Conflict(_), _) => {
            memory.forget_settled(Purpose::CsiNode);
            memory.note_failure(now_ms);
        }
        (Answer::Refused(_), _) => memory.note_settled(Purpose::CsiNode, content, None),
        (Answer::Forbidden(_) | Answer::Throttled(_) | Answer::Failed(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use headwater_controller::NodePresence;

    use super::*;

    fn drivers(text: &str) -> OwnedDrivers {
        OwnedDrivers::parse(text).expect("drivers")
    }

    fn plan(drivers: &OwnedDrivers, memory: &ObjectMemory) -> Step {
        let presence = NodePresence { is_present: true, has_drained: false };
        plan_csi_node(drivers, &Facts { presence, memory, now_ms: 0 })
    }

    /// The answer to the request that is planned.
    fn answered(drivers: &OwnedDrivers, memory: &mut ObjectMemory, answer: &Answer) -> Purpose {
        let Step::Call(purpose) = plan(drivers, memory) else { panic!("nothing is planned") };
        note_answer(memory, purpose, drivers.digest(), answer, 0);
        purpose
    }

    #[test]
    fn drivers_are_written_once_and_when_they_change() {
        let (none, one) = (drivers("[]"), drivers(r#"[{"name": "d", "nodeID": "n"}]"#));
        let (mut memory, done) = (ObjectMemory::default(), Answer::Done(None));
        assert_eq!(answered(&none, &mut memory, &Answer::Absent), Purpose::CsiNode);
        let conflict = Answer::Conflict(String::new());
        assert_eq!(answered(&none, &mut memory, &conflict), Purpose::CreateCsiNode);
        assert_eq!(answered(&none, &mut memory, &Answer::Absent), Purpose::CsiNode);
        assert_eq!(answered(&none, &mut memory, &done), Purpose::CreateCsiNode);
        assert_eq!(plan(&none, &memory), Step::Rest);
        assert_eq!(answered(&one, &mut memory, &done), Purpose::CsiNode);
        assert_eq!(plan(&one, &memory), Step::Rest);
        let away = NodePresence { is_present: false, has_drained: false };
        let facts = Facts { presence: away, memory: &memory, now_ms: 0 };
        assert_eq!(plan_csi_node(&none, &facts), Step::Rest);
    }

    #[test]
    fn what_is_refused_is_written_once_more_into_an_empty_one() {
        let one = drivers(r#"[{"name": "d", "nodeID": "n"}]"#);
        let refused = Answer::Refused(String::new());
        for (cleared, last) in
            [(Answer::Done(None), Answer::Done(None)), (Answer::Absent, refused.clone())]
        {
            let mut memory = ObjectMemory::default();
            assert_eq!(answered(&one, &mut memory, &refused), Purpose::CsiNode);
            assert_eq!(answered(&one, &mut memory, &cleared), Purpose::ClearCsiNode);
            assert_eq!(answered(&one, &mut memory, &last), Purpose::CsiNode);
            assert_eq!(plan(&one, &memory), Step::Rest);
        }
    }
}
