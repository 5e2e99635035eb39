//! Terminations that the upstream log has.
//!
//! A node reports once that all containers of a pod under deletion have stopped, and no later report
//! takes the place of this one. The log keeps the last record of each key, so the termination would
//! stay for ever. Once the stream of the node has no such pod any longer, a tombstone is appended.
//! An older record that is read behind the termination of a later pod of the same name is what
//! compaction would keep: the later termination is appended once more. Only the controller that
//! writes the downstream log appends. The others remember the terminations, because they may take
//! over.
//!
//! ```text
//!           the pod leaves its stream                    the tombstone is read
//!  logged ───────────────────────────► tombstone appended ───────────────────► forgotten
//!   │  ▲
//!   │  └── the termination is read ───────────────┐
//!   └── an older record is read ──► covered ──► appended once more
//! ```

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::upstream::{ReportRecord, encode_report, encode_termination_removed};
use headwater_event::{KeyError, NodeName, Partition, Report, ReportBody, ReportId, ResourceKey};
use headwater_store::{Batch, EngineError, Folded, Json, Read, Table, TableId};
use serde::{Deserialize, Serialize};

/// Terminations remembered at most, about 300 bytes each. A log of an earlier version has one for
/// each pod name there ever was; those beyond the bound wait until the log is folded anew.
const TERMINATIONS_MAX: usize = 16_384;

/// Terminations remembered of one node at most: twice the pods that a node may have under deletion
/// at once, so that no node takes the room of the others.
const NODE_TERMINATIONS_MAX: usize = 1_024;

/// The terminations, by node and pod.
const LOGGED: Table<(NodeName, ResourceKey), Json<LoggedTermination>, Folded> =
    Table::new(TableId::LoggedTerminations);

/// The newest termination of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoggedTermination {
    pub(super) partition: Partition,
    pub(super) id: ReportId,
    pub(super) uid: String,
    /// Whether an older record of the key was read behind it.
    #[serde(default)]
    pub(super) is_covered: bool,
}

/// A node, and a pod that ended there.
pub(super) type EndedPod = (NodeName, ResourceKey);

/// The terminations of the log.
#[derive(Debug, Default)]
pub(super) struct Terminations {
    logged: BTreeMap<EndedPod, LoggedTermination>,
    /// The number of those of each node.
    counts: BTreeMap<NodeName, usize>,
    /// Those with a record on its way: it was appended and not read back yet.
    appended: BTreeSet<EndedPod>,
}

/// The order of a termination among those of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminationOrder {
    /// It is the newest of its key.
    Newest,
    /// A later one of its key was read before.
    Stale,
    /// It is the newest, and there is no room to remember it.
    NoRoom,
}

impl Terminations {
    /// The terminations that an earlier run left.
    pub(super) fn open(from: &dyn Read) -> Result<Self, EngineError> {
        let mut terminations = Self::default();
        for row in LOGGED.rows(from) {
            let (ended, Json(termination)) = row?;
            terminations.insert(ended, termination);
        }
        Ok(terminations)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.logged.is_empty()
    }

    /// Notes that the log has a termination.
    pub(super) fn note(
        &mut self,
        ended: EndedPod,
        read: LoggedTermination,
        batch: &mut Batch<Folded>,
    ) -> TerminationOrder {
        self.appended.remove(&ended);
        match self.logged.get(&ended) {
            Some(known) if known.id > read.id => {
                self.cover(ended, batch);
                return TerminationOrder::Stale;
            }
            None if !self.has_room(&ended.0) => return TerminationOrder::NoRoom,
            _ => {}
        }
        batch.put(&LOGGED, &ended, &Json(read.clone()));
        self.insert(ended, read);
        TerminationOrder::Newest
    }

    /// Notes that the log has a tombstone of the termination `id`. Returns the termination that it
    /// removes; `None` where a later one is known, which it covers, or none.
    pub(super) fn note_removed(
        &mut self,
        ended: EndedPod,
        id: ReportId,
        batch: &mut Batch<Folded>,
    ) -> Option<LoggedTermination> {
        self.appended.remove(&ended);
        if self.logged.get(&ended)?.id > id {
            self.cover(ended, batch);
            return None;
        }
        batch.delete(&LOGGED, &ended);
        if let Some(count) = self.counts.get_mut(&ended.0) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&ended.0);
            }
        }
        self.logged.remove(&ended)
    }

    /// The records to append now, at most `count`: for each termination whose pod is no longer
    /// there a tombstone, for each that is covered the termination. They count as appended from here
    /// on.
    pub(super) fn next_due(
        &mut self,
        count: usize,
        is_there: impl Fn(&EndedPod, &LoggedTermination) -> Result<bool, EngineError>,
    ) -> Result<Vec<(Partition, ReportRecord)>, EngineError> {
        let mut due = Vec::new();
        for (ended, logged) in &self.logged {
            if due.len() == count {
                break;
            }
            if self.appended.contains(ended) {
                continue;
            }
            let record = match (is_there(ended, logged)?, logged.is_covered) {
                (true, false) => continue,
                (true, true) => termination(ended, logged),
                (false, _) => tombstone(ended, logged),
            };
            // What was read under a key can be written under it.
            let Ok(record) = record else { continue };
            due.push((logged.partition, record));
            self.appended.insert(ended.clone());
        }
        Ok(due)
    }

    /// Notes that the outcome of the last append is unknown: everything appended is due again.
    pub(super) fn failed(&mut self) {
        self.appended.clear();
    }

    fn has_room(&self, node: &NodeName) -> bool {
        let of_node = self.counts.get(node).copied().unwrap_or_default();
        self.logged.len() < TERMINATIONS_MAX && of_node < NODE_TERMINATIONS_MAX
    }

    fn insert(&mut self, ended: EndedPod, termination: LoggedTermination) {
        let node = ended.0.clone();
        if self.logged.insert(ended, termination).is_none() {
            *self.counts.entry(node).or_default() += 1;
        }
    }

    fn cover(&mut self, ended: EndedPod, batch: &mut Batch<Folded>) {
        if let Some(known) = self.logged.get_mut(&ended) {
            known.is_covered = true;
            batch.put(&LOGGED, &ended, &Json(known.clone()));
        }
    }
}

fn termination(
    (node, pod): &EndedPod,
    logged: &LoggedTermination,
) -> Result<ReportRecord, KeyError> {
    let body = ReportBody::PodTerminated { pod: pod.clone(), uid: logged.uid.clone() };
    encode_report(node, &Report { id: logged.id, body, traceparent: None })
}

fn tombstone((node, pod): &EndedPod, logged: &LoggedTermination) -> Result<ReportRecord, KeyError> {
    encode_termination_removed(node, pod.clone(), logged.uid.clone(), logged.id)
}

#[cfg(test)]
mod tests {
    use headwater_event::upstream::{decode_report, decode_termination_removed};
    use headwater_event::{Cursor, Incarnation, LeaderEpoch, Offset, TopicId};
    use headwater_store::{Durability, MemoryEngine};

    use super::*;

    fn ended(pod: &str) -> EndedPod {
        ("a".parse().expect("a name"), format!("d/pod/{pod}").parse().expect("a key"))
    }

    fn id(seq: u64) -> ReportId {
        ReportId { incarnation: Incarnation(1), boot: 1, seq }
    }

    fn logged(seq: u64) -> LoggedTermination {
        let uid = format!("u{seq}");
        LoggedTermination { partition: Partition(1), id: id(seq), uid, is_covered: false }
    }

    /// What is due, in words, where `there` are the UIDs of the pods that are there.
    fn due(terminations: &mut Terminations, there: &[&str]) -> Vec<String> {
        let is_there = |_: &EndedPod, logged: &LoggedTermination| Ok(there.contains(&&*logged.uid));
        let records = terminations.next_due(usize::MAX, is_there).expect("nothing to read");
        let text = |(partition, record): (Partition, ReportRecord)| {
            assert_eq!(partition, Partition(1));
            match decode_report(&record, None).expect("a record") {
                Some((_, report)) => format!("+{}", report.id.seq),
                None => {
                    let removed = decode_termination_removed(&record).expect("a tombstone");
                    format!("-{}", removed.id.seq)
                }
            }
        };
        records.into_iter().map(text).collect()
    }

    #[test]
    fn a_termination_is_removed_once_when_its_pod_is_gone() {
        let (mut terminations, mut batch) = (Terminations::default(), Batch::new());
        assert_eq!(terminations.note(ended("p"), logged(1), &mut batch), TerminationOrder::Newest);
        assert_eq!(due(&mut terminations, &["u1"]), [""; 0]);
        assert_eq!(due(&mut terminations, &["u2"]), ["-1"], "another pod of the name is there");
        assert_eq!(due(&mut terminations, &[]), [""; 0], "it was appended");
        terminations.failed();
        assert_eq!(due(&mut terminations, &[]), ["-1"], "the outcome is unknown");
        let removed = terminations.note_removed(ended("p"), id(1), &mut batch);
        assert_eq!(removed, Some(logged(1)));
        assert!(terminations.is_empty());
        assert_eq!(terminations.note_removed(ended("p"), id(1), &mut batch), None);
        // A duplicate that comes late is as good as new.
        terminations.note(ended("p"), logged(1), &mut batch);
        assert_eq!(due(&mut terminations, &[]), ["-1"]);
    }

    #[test]
    fn a_termination_that_an_older_record_follows_is_appended_once_more() {
        let (mut terminations, mut batch) = (Terminations::default(), Batch::new());
        terminations.note(ended("p"), logged(5), &mut batch);
        assert_eq!(terminations.note_removed(ended("p"), id(4), &mut batch), None);
        assert_eq!(due(&mut terminations, &["u5"]), ["+5"]);
        assert_eq!(terminations.note(ended("p"), logged(4), &mut batch), TerminationOrder::Stale);
        assert_eq!(due(&mut terminations, &["u5"]), ["+5"], "another older one came");
        assert_eq!(terminations.note(ended("p"), logged(5), &mut batch), TerminationOrder::Newest);
        assert_eq!(due(&mut terminations, &["u5"]), [""; 0], "it has come back");
        terminations.note(ended("p"), logged(4), &mut batch);
        assert_eq!(due(&mut terminations, &[]), ["-5"], "the pod has gone meanwhile");
    }

    #[test]
    fn the_next_writer_knows_the_terminations() {
        let engine = MemoryEngine::new();
        let (topic, partition) = (TopicId(uuid::Uuid::nil()), Partition(0));
        let cursor = Cursor { topic, partition, next: Offset(1), leader_epoch: LeaderEpoch(0) };
        let (mut terminations, mut batch) = (Terminations::default(), Batch::new());
        for (pod, seq) in [("p", 1), ("q", 2), ("r", 3)] {
            terminations.note(ended(pod), logged(seq), &mut batch);
        }
        terminations.note_removed(ended("p"), id(1), &mut batch);
        terminations.note_removed(ended("q"), id(1), &mut batch);
        batch.commit(&engine, &[cursor], Durability::Buffered).expect("commits");
        let mut terminations = Terminations::open(&engine).expect("opens");
        assert_eq!(due(&mut terminations, &["u2"]), ["+2", "-3"]);
    }

    #[test]
    fn the_number_of_terminations_is_bounded() {
        let (mut terminations, mut batch) = (Terminations::default(), Batch::new());
        let of = |node: usize, pod: usize| {
            (format!("n{node}").parse().expect("a name"), ended(&format!("p{pod}")).1)
        };
        for pod in 0..NODE_TERMINATIONS_MAX {
            terminations.note(ended(&format!("p{pod}")), logged(1), &mut batch);
        }
        let beyond = terminations.note(ended("q"), logged(1), &mut batch);
        assert_eq!(beyond, TerminationOrder::NoRoom, "the others have room");
        for (node, pod) in (1..TERMINATIONS_MAX / NODE_TERMINATIONS_MAX)
            .flat_map(|node| (0..NODE_TERMINATIONS_MAX).map(move |pod| (node, pod)))
        {
            let order = terminations.note(of(node, pod), logged(1), &mut batch);
            assert_eq!(order, TerminationOrder::Newest);
        }
        let last = terminations.note(of(99, 1), logged(1), &mut batch);
        assert_eq!(last, TerminationOrder::NoRoom);
        let known = terminations.note(ended("p0"), logged(2), &mut batch);
        assert_eq!(known, TerminationOrder::Newest);
        terminations.note_removed(ended("p0"), id(2), &mut batch);
        let last = terminations.note(ended("q"), logged(1), &mut batch);
        assert_eq!(last, TerminationOrder::Newest);
    }
}
