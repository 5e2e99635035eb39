//! What follows from the answer to a request for a Node, a pod or a mirror.
//!
//! | answer | the next request for the object |
//! |---|---|
//! | done, refused | none, until a report or the object changes |
//! | absent, conflict | soon again where the API server may not know yet what it has; then none |
//! | forbidden | after a pause that doubles, for half a minute; then every minute |
//! | throttled | after the pause that the server asks for |
//! | failed | after a pause that doubles |
//!
//! The API server checks a node's request against caches of Nodes and pods that it fills by watches of
//! its own (the admission plugin NodeRestriction). A Node or a pod that was created just now may therefore
//! be absent to it.

use super::answer::Answer;
use super::csi_plan;
use super::memory::{FORBIDDEN_PAUSE_MS, ObjectMemory, Purpose, Written};
use crate::digest::Digest;

/// Conflicts in a row after which a Node that is there without the label of edges is named.
const CONFLICTS_NAMED: u32 = 3;

/// Deletions in a row that are answered with 404, after which the object is taken for gone. They span some seconds; a
/// watch of the API server lags by less, or the watch here shows the end.
const ABSENCES_MAX: u32 = 5;

/// A request that has an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRequest {
    pub(super) purpose: Purpose,
    /// What it writes.
    pub(super) content: Digest,
    /// The version of the object that it was planned for.
    pub(super) order: Option<u64>,
    /// What the API shows since, if it was done.
    pub(super) shown: Digest,
}

/// What follows for others than the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    /// Nothing.
    None,
    /// The API server has what is to be shown of the object.
    Written,
    /// The object is not written, for this reason.
    Refused(String),
    /// The purpose lacks a right.
    Forbidden(String),
    /// All requests pause.
    Throttled {
        /// For how long.
        after_ms: u64,
    },
    /// The API server did not answer.
    Unanswered(String),
}

impl Consequence {
    /// Whether the answer shows that the right for its purpose is there.
    pub(super) fn shows_the_right(&self) -> bool {
        matches!(self, Self::Written | Self::Refused(_))
    }
}

/// Notes an answer in the memory of the object, and returns what else follows.
pub(super) fn note_answer(
    memory: &mut ObjectMemory,
    sent: SentRequest,
    answer: &Answer,
    now_ms: u64,
) -> Consequence {
    let SentRequest { purpose, content, order, shown } = sent;
    memory.forget_step();
    match answer {
        Answer::Throttled(after) => {
            let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            memory.pause(now_ms, after_ms);
            Consequence::Throttled { after_ms }
        }
        Answer::Failed(reason) => {
            memory.note_failure(now_ms);
            Consequence::Unanswered(reason.clone())
        }
        Answer::Forbidden(message) => match memory.note_forbidden(now_ms) {
            1 => Consequence::None,
            // Of a mirror: a policy of the cluster forbids this very pod.
            _ if purpose.is_of_mirror() => Consequence::Refused(message.clone()),
            _ => Consequence::Forbidden(message.clone()),
        },
        _ if purpose.is_of_csi_node() => {
            csi_plan::note_answer(memory, purpose, content, answer, now_ms);
            match answer {
                Answer::Refused(reason) => Consequence::Refused(reason.clone()),
                _ => Consequence::Written,
            }
        }
        Answer::Done(_) => {
            memory.note_written(purpose, Written { desired: content, shown, at_ms: now_ms });
            if purpose.is_delete() {
                // Until the watch shows what became of it.
                memory.note_settled(purpose, content, order);
            }
            Consequence::Written
        }
        Answer::Conflict(_) if purpose == Purpose::CreateNode => {
            // Created by an earlier request whose answer was lost, or it is no edge node.
            memory.note_failure(now_ms);
            if memory.failures() <= CONFLICTS_NAMED {
                return Consequence::None;
            }
            memory.pause(now_ms, FORBIDDEN_PAUSE_MS);
            let reason = "a Node of this name is there without the label of edge nodes; set the \
                          label, or delete the Node";
            Consequence::Refused(reason.to_owned())
        }
        // The watch may not show yet what became of a mirror, or another pod has its name.
        Answer::Conflict(message) if purpose.is_of_mirror() => {
            try_again(memory, now_ms).unwrap_or_else(|| Consequence::Refused(message.clone()))
        }
        Answer::Absent if purpose == Purpose::CreateMirror => {
            let reason = "its namespace or its Node is not there, or the namespace ends";
            try_again(memory, now_ms).unwrap_or_else(|| Consequence::Refused(reason.to_owned()))
        }
        Answer::Absent if purpose.is_delete() => {
            if memory.note_absence(now_ms) >= ABSENCES_MAX {
                memory.note_settled(purpose, content, order);
            }
            Consequence::None
        }
        Answer::Refused(reason) if purpose != Purpose::Tolerations => {
            memory.note_settled(purpose, content, order);
            Consequence::Refused(reason.clone())
        }
        // Nothing to do any more, until the watch shows another version.
        Answer::Absent | Answer::Conflict(_) | Answer::Refused(_) => {
            memory.note_settled(purpose, content, order);
            Consequence::None
        }
    }
}

/// Allows one more request soon; `None` after that, with a pause until a person may have acted.
fn try_again(memory: &mut ObjectMemory, now_ms: u64) -> Option<Consequence> {
    if memory.failures() == 0 {
        memory.note_failure(now_ms);
        return Some(Consequence::None);
    }
    memory.pause(now_ms, FORBIDDEN_PAUSE_MS);
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::plan::NO_CONTENT;
    use super::*;
    use crate::failure::REFUSALS_MAX;

    fn sent(purpose: Purpose, order: Option<u64>) -> SentRequest {
        SentRequest { purpose, content: *NO_CONTENT, order, shown: *NO_CONTENT }
    }

    /// What follows from each answer to a request for version 7, and from the same one once more.
    fn twice(purpose: Purpose, answer: &Answer) -> (ObjectMemory, [Consequence; 2]) {
        let mut memory = ObjectMemory::default();
        let sent = sent(purpose, Some(7));
        let mut next = || note_answer(&mut memory, sent, answer, 1_000);
        let consequences = [next(), next()];
        (memory, consequences)
    }

    #[test]
    fn a_deletion_of_what_the_server_may_not_know_yet_is_sent_for_some_seconds() {
        for purpose in [Purpose::DeletePod, Purpose::DeleteMirror] {
            let mut memory = ObjectMemory::default();
            // Answers that were lost before count for nothing.
            for _ in 0..10 {
                memory.note_failure(0);
            }
            memory.end_pause();
            let sent = sent(purpose, Some(7));
            let mut now_ms = 0;
            for _ in 1..ABSENCES_MAX {
                assert_eq!(
                    note_answer(&mut memory, sent, &Answer::Absent, now_ms),
                    Consequence::None
                );
                assert!(!memory.is_settled(purpose, *NO_CONTENT, Some(7)));
                now_ms = memory.not_before_ms;
            }
            assert!(now_ms >= 3_000, "{now_ms} ms");
            note_answer(&mut memory, sent, &Answer::Absent, now_ms);
            assert!(memory.is_settled(purpose, *NO_CONTENT, Some(7)), "of this version");
            assert!(!memory.is_settled(purpose, *NO_CONTENT, Some(8)), "of no other");
        }
    }

    #[test]
    fn a_status_of_what_the_server_does_not_know_waits_for_another_version() {
        for purpose in [Purpose::PodStatus, Purpose::NodeStatus, Purpose::Tolerations] {
            let (memory, consequences) = twice(purpose, &Answer::Absent);
            assert_eq!(consequences, [Consequence::None, Consequence::None]);
            assert!(memory.is_settled(purpose, *NO_CONTENT, Some(7)), "{purpose:?}");
            assert!(!memory.is_settled(purpose, *NO_CONTENT, Some(8)), "{purpose:?}");
            assert_eq!((memory.failures(), memory.not_before_ms), (0, 0), "{purpose:?}");
        }
    }

    #[test]
    fn a_mirror_of_a_node_that_the_server_may_not_know_yet_is_created_soon() {
        let (memory, consequences) = twice(Purpose::CreateMirror, &Answer::Absent);
        let [first, Consequence::Refused(reason)] = consequences else {
            panic!("{consequences:?}")
        };
        assert_eq!(first, Consequence::None);
        assert!(reason.contains("namespace") && reason.contains("Node"), "{reason}");
        assert_eq!(memory.not_before_ms, 1_000 + FORBIDDEN_PAUSE_MS);
    }

    #[test]
    fn a_missing_right_and_a_forbidden_mirror_are_named_at_the_second_time() {
        let message = || "no".to_owned();
        let of = |purpose| twice(purpose, &Answer::Forbidden(message())).1;
        assert_eq!(of(Purpose::PodStatus), [Consequence::None, Consequence::Forbidden(message())]);
        assert_eq!(of(Purpose::CreateMirror), [Consequence::None, Consequence::Refused(message())]);
    }

    #[test]
    fn a_right_that_lacks_for_some_seconds_delays_the_object_by_some_seconds() {
        let mut memory = ObjectMemory::default();
        let sent = sent(Purpose::PodStatus, Some(7));
        // The server was away before.
        for _ in 0..20 {
            memory.note_failure(0);
        }
        let mut now_ms = 0;
        let mut pauses = Vec::new();
        for _ in 0..=REFUSALS_MAX {
            note_answer(&mut memory, sent, &Answer::Forbidden(String::new()), now_ms);
            pauses.push(memory.not_before_ms - now_ms);
            now_ms = memory.not_before_ms;
        }
        assert!(pauses[..pauses.len() - 1].iter().all(|pause| *pause <= 4_000), "{pauses:?}");
        assert_eq!(pauses.last(), Some(&FORBIDDEN_PAUSE_MS));
    }

    #[test]
    fn a_node_that_is_there_without_our_label_is_named_after_some_conflicts() {
        let mut memory = ObjectMemory::default();
        let sent = sent(Purpose::CreateNode, None);
        let answer = Answer::Conflict(String::new());
        for _ in 0..CONFLICTS_NAMED {
            assert_eq!(note_answer(&mut memory, sent, &answer, 0), Consequence::None);
        }
        let last = note_answer(&mut memory, sent, &answer, 0);
        assert!(matches!(last, Consequence::Refused(reason) if reason.contains("label")));
    }

    #[test]
    fn what_is_done_or_refused_needs_no_other_request_and_shows_the_right() {
        let (memory, [done, _]) = twice(Purpose::DeletePod, &Answer::Done(None));
        assert_eq!(done, Consequence::Written);
        assert!(memory.is_settled(Purpose::DeletePod, *NO_CONTENT, Some(7)));
        let (memory, [refused, _]) = twice(Purpose::PodStatus, &Answer::Refused("no".to_owned()));
        assert!(done.shows_the_right() && refused.shows_the_right());
        assert!(memory.is_settled(Purpose::PodStatus, *NO_CONTENT, Some(7)));
        let of_tolerations = Answer::Refused("the pod changed".to_owned());
        let (_, consequences) = twice(Purpose::Tolerations, &of_tolerations);
        assert_eq!(consequences, [Consequence::None, Consequence::None]);
    }

    #[test]
    fn an_answer_that_is_late_or_lost_delays_the_object() {
        let throttled = Answer::Throttled(Duration::from_secs(3));
        let (memory, [first, _]) = twice(Purpose::NodeStatus, &throttled);
        assert_eq!(first, Consequence::Throttled { after_ms: 3_000 });
        assert_eq!(memory.not_before_ms, 4_000);
        let (memory, [first, _]) = twice(Purpose::NodeStatus, &Answer::Failed("away".to_owned()));
        assert_eq!(first, Consequence::Unanswered("away".to_owned()));
        assert_eq!((memory.failures(), first.shows_the_right()), (2, false));
    }
}
