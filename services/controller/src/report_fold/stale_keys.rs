//! Keys whose last record in the log is older than the report that counts for them.
//!
//! A report whose append had an unknown outcome may appear in the log behind a later report of its
//! key. A fold that has read the later one ignores it. Compaction, however, keeps the last record of
//! a key, and a new fold then finds the stale one alone. The newest report is therefore appended
//! once more, exactly as its node sent it. For a pod that is long gone, or that a full snapshot did
//! not name, the removal of its status is appended. Only the controller that writes the downstream
//! log does so. The others remember the keys, because they may take over.
//!
//! ```text
//!            an older report is read             the newest is appended once more
//!  current ────────────────────────► stale, due ────────────────────────► stale, appended
//!    ▲                                  ▲  └────────────┐                       │
//!    └── the newest is read ◄───────────┼───────────────┴───────────────────────┤
//!                                       └── an older one is read, or the append failed ◄┘
//! ```

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{NodeName, Partition, ReportBody, ReportId, ReportKey};
use headwater_store::{Batch, EngineError, Folded, Json, Read, Table, TableId};
use serde::{Deserialize, Serialize};

/// Keys remembered at most, about 200 bytes each. More stale keys at once mean a fault that needs a
/// person.
const KEYS_MAX: usize = 16_384;

/// The keys, by node and by the rest of the record's key.
const STALE: Table<(NodeName, String), Json<Stale>, Folded> = Table::new(TableId::StaleReports);

/// The stale record that is the last one of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stale {
    pub(super) partition: Partition,
    pub(super) id: ReportId,
    pub(super) uid: String,
}

/// A key of the upstream log.
pub(super) type Key = (NodeName, ReportKey);

/// The stale keys of the log.
#[derive(Debug, Default)]
pub(super) struct StaleKeys {
    keys: BTreeMap<Key, Stale>,
    /// Keys whose newest report was appended and was not read back yet.
    appended: BTreeSet<Key>,
}

impl StaleKeys {
    /// The keys that an earlier run left.
    pub(super) fn open(from: &dyn Read) -> Result<Self, EngineError> {
        let mut keys = BTreeMap::new();
        for row in STALE.rows(from) {
            let ((node, key), Json(stale)) = row?;
            // A key that no version writes any more is ignored.
            let Ok(key) = key.parse() else { continue };
            keys.insert((node, key), stale);
        }
        Ok(Self { keys, appended: BTreeSet::new() })
    }

    /// Notes that a record was read under `key`; `stale` if it is older than the report that
    /// counts. Returns `false` where no more keys can be remembered.
    pub(super) fn note(
        &mut self,
        key: Key,
        stale: Option<Stale>,
        batch: &mut Batch<Folded>,
    ) -> bool {
        let row = |key: &Key| (key.0.clone(), key.1.to_string());
        self.appended.remove(&key);
        match stale {
            Some(_) if self.keys.len() >= KEYS_MAX && !self.keys.contains_key(&key) => {
                return false;
            }
            Some(stale) => {
                batch.put(&STALE, &row(&key), &Json(stale.clone()));
                self.keys.insert(key, stale);
            }
            None if self.keys.remove(&key).is_some() => batch.delete(&STALE, &row(&key)),
            None => {}
        }
        true
    }

    /// Whether the newest report of some key must be appended.
    pub(super) fn is_due(&self) -> bool {
        self.keys.len() > self.appended.len()
    }

    /// The next key whose newest report must be appended. It counts as appended from here on.
    pub(super) fn next_due(&mut self) -> Option<(Key, Stale)> {
        let mut due = self.keys.iter().filter(|(key, _)| !self.appended.contains(key));
        let (key, stale) = due.next()?;
        let due = (key.clone(), stale.clone());
        self.appended.insert(due.0.clone());
        Some(due)
    }

    /// Notes that the outcome of the last append is unknown: all appended keys are due again.
    pub(super) fn failed(&mut self) {
        self.appended.clear();
    }
}

/// The UID that a report names.
pub(super) fn uid(body: &ReportBody) -> &str {
    match body {
        ReportBody::PodStatus { uid, .. }
        | ReportBody::PodStatusRemoved { uid, .. }
        | ReportBody::PodTerminated { uid, .. } => uid,
        ReportBody::SnapshotClosed(_)
        | ReportBody::Node { .. }
        | ReportBody::Message { .. }
        | ReportBody::Event { .. } => "",
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::report::Incarnation;
    use headwater_event::{Cursor, LeaderEpoch, Offset, TopicId};
    use headwater_store::{Durability, MemoryEngine};

    use super::*;

    fn key(text: &str) -> Key {
        ("a".parse().expect("a name"), text.parse().expect("a key"))
    }

    fn stale(seq: u64) -> Option<Stale> {
        let id = ReportId { incarnation: Incarnation(1), boot: 1, seq };
        Some(Stale { partition: Partition(0), id, uid: "u".to_owned() })
    }

    #[test]
    fn a_key_is_repaired_once_until_it_is_read_again() {
        let mut keys = StaleKeys::default();
        let mut batch = Batch::new();
        let pod = key("d/podstatus/p");
        assert!(keys.note(pod.clone(), None, &mut batch) && !keys.is_due());
        assert!(keys.note(pod.clone(), stale(1), &mut batch) && keys.is_due());
        assert_eq!(keys.next_due(), stale(1).map(|stale| (pod.clone(), stale)));
        assert!(!keys.is_due());
        assert_eq!(keys.next_due(), None, "it was appended");
        keys.failed();
        assert!(keys.is_due(), "the outcome is unknown");
        assert!(keys.next_due().is_some());
        keys.note(pod.clone(), stale(2), &mut batch);
        assert!(keys.is_due(), "another stale record came");
        assert!(keys.next_due().is_some());
        keys.note(pod, None, &mut batch);
        keys.failed();
        assert!(!keys.is_due(), "it has come back");
    }

    #[test]
    fn the_next_writer_knows_the_keys() {
        let engine = MemoryEngine::new();
        let (topic, partition) = (TopicId(uuid::Uuid::nil()), Partition(0));
        let cursor = Cursor { topic, partition, next: Offset(1), leader_epoch: LeaderEpoch(0) };
        let mut keys = StaleKeys::default();
        let mut batch = Batch::new();
        for (text, stale) in [("d/podstatus/p", stale(1)), ("!snapshot", stale(2))] {
            keys.note(key(text), stale, &mut batch);
        }
        keys.note(key("d/podstatus/p"), None, &mut batch);
        batch.commit(&engine, &[cursor], Durability::Buffered).expect("commits");
        let mut keys = StaleKeys::open(&engine).expect("opens");
        assert_eq!(keys.next_due(), stale(2).map(|stale| (key("!snapshot"), stale)));
        assert_eq!(keys.next_due(), None);
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let mut keys = StaleKeys::default();
        let mut batch = Batch::new();
        for n in 0..KEYS_MAX {
            assert!(keys.note(key(&format!("d/podstatus/p{n}")), stale(1), &mut batch));
        }
        assert!(!keys.note(key("!snapshot"), stale(1), &mut batch));
        assert!(keys.note(key("d/podstatus/p0"), stale(2), &mut batch), "it is known");
        keys.note(key("d/podstatus/p0"), None, &mut batch);
        assert!(keys.note(key("!snapshot"), stale(1), &mut batch));
    }
}
