//! Keys whose last record in the log is older than the report that counts for them.
//!
//! A report whose append had an unknown outcome may come to lie behind a later one of its key.
//! Whoever has read the later one passes it over; but compaction keeps the last record of a key,
//! and who folds the log anew then finds the old one alone. So the newest is appended once more,
//! exactly as its node said it; of a pod that is long gone, or that a full snapshot did not name,
//! that its status is taken back. Only the controller that writes the downstream log does so. The
//! others remember the keys, for they may take over.
//!
//! ```text
//!          an older one is read              it is appended once more
//!  right ───────────────────────► stale, due ────────────────────────► stale, on its way
//!    ▲                                ▲  └─────────────────┐                  │
//!    └── the newest is read ◄─────────┼────────────────────┴──────────────────┤
//!                                     └── an older one is read, or it failed ◄┘
//! ```

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{NodeName, Partition, ReportBody, ReportId, ReportKey};
use headwater_store::{Batch, EngineError, Folded, Json, Read, Table, TableId};
use serde::{Deserialize, Serialize};

/// Keys remembered at most, about 200 bytes each: more appends go astray at once only where
/// something is wrong that a person must see to.
const KEYS_MAX: usize = 16_384;

/// The keys, by node and by what is behind it in the record's key.
const STALE: Table<(NodeName, String), Json<Stale>, Folded> = Table::new(TableId::StaleReports);

/// The old record that lies last under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stale {
    pub(super) partition: Partition,
    pub(super) id: ReportId,
    pub(super) uid: String,
}

/// A key of the upstream log.
pub(super) type Key = (NodeName, ReportKey);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StaleKeys {
    keys: BTreeMap<Key, Stale>,
    /// Keys whose newest report was appended and has not been read back.
    on_their_way: BTreeSet<Key>,
}

impl StaleKeys {
    /// The keys that an earlier run left.
    pub(super) fn open(from: &dyn Read) -> Result<Self, EngineError> {
        let mut keys = BTreeMap::new();
        for row in STALE.rows(from) {
            let ((node, key), Json(stale)) = row?;
            // A key that no build writes any more says nothing.
            let Ok(key) = key.parse() else { continue };
            keys.insert((node, key), stale);
        }
        Ok(Self { keys, on_their_way: BTreeSet::new() })
    }

    /// A record was read under `key`: `stale` says that it is older than what counts. Gives
    /// `false` where there is no room to remember it.
    pub(super) fn meet(
        &mut self,
        key: Key,
        stale: Option<Stale>,
        batch: &mut Batch<Folded>,
    ) -> bool {
        let row = |key: &Key| (key.0.clone(), key.1.to_string());
        self.on_their_way.remove(&key);
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

    /// Whether the newest report of some key is to be appended.
    pub(super) fn is_due(&self) -> bool {
        self.keys.len() > self.on_their_way.len()
    }

    /// The next key whose newest report is to be appended; it is on its way from here on.
    pub(super) fn next_due(&mut self) -> Option<(Key, Stale)> {
        let mut due = self.keys.iter().filter(|(key, _)| !self.on_their_way.contains(key));
        let (key, stale) = due.next()?;
        let due = (key.clone(), stale.clone());
        self.on_their_way.insert(due.0.clone());
        Some(due)
    }

    /// Nobody knows what became of the last append: what was on its way is due again.
    pub(super) fn failed(&mut self) {
        self.on_their_way.clear();
    }
}

/// The UID that a report names.
pub(super) fn uid(body: &ReportBody) -> &str {
    match body {
        ReportBody::PodStatus { uid, .. }
        | ReportBody::PodStatusRemoved { uid, .. }
        | ReportBody::PodTerminated { uid, .. } => uid,
        ReportBody::SnapshotClosed(_) | ReportBody::Node { .. } | ReportBody::Message { .. } => "",
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
        assert!(keys.meet(pod.clone(), None, &mut batch) && !keys.is_due());
        assert!(keys.meet(pod.clone(), stale(1), &mut batch) && keys.is_due());
        assert_eq!(keys.next_due(), stale(1).map(|stale| (pod.clone(), stale)));
        assert!(!keys.is_due());
        assert_eq!(keys.next_due(), None, "it is on its way");
        keys.failed();
        assert!(keys.is_due(), "or is it");
        assert!(keys.next_due().is_some());
        keys.meet(pod.clone(), stale(2), &mut batch);
        assert!(keys.is_due(), "another one came behind it");
        assert!(keys.next_due().is_some());
        keys.meet(pod, None, &mut batch);
        keys.failed();
        assert!(!keys.is_due(), "it has come back");
    }

    #[test]
    fn who_takes_over_knows_the_keys() {
        let engine = MemoryEngine::new();
        let (topic, partition) = (TopicId(uuid::Uuid::nil()), Partition(0));
        let cursor = Cursor { topic, partition, next: Offset(1), leader_epoch: LeaderEpoch(0) };
        let mut keys = StaleKeys::default();
        let mut batch = Batch::new();
        for (text, stale) in [("d/podstatus/p", stale(1)), ("!snapshot", stale(2))] {
            keys.meet(key(text), stale, &mut batch);
        }
        keys.meet(key("d/podstatus/p"), None, &mut batch);
        batch.commit(&engine, &[cursor], Durability::Buffered).expect("commits");
        let mut keys = StaleKeys::open(&engine).expect("opens");
        assert_eq!(keys.next_due(), stale(2).map(|stale| (key("!snapshot"), stale)));
        assert_eq!(keys.next_due(), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut keys = StaleKeys::default();
        let mut batch = Batch::new();
        for n in 0..KEYS_MAX {
            assert!(keys.meet(key(&format!("d/podstatus/p{n}")), stale(1), &mut batch));
        }
        assert!(!keys.meet(key("!snapshot"), stale(1), &mut batch));
        assert!(keys.meet(key("d/podstatus/p0"), stale(2), &mut batch), "it is known");
        keys.meet(key("d/podstatus/p0"), None, &mut batch);
        assert!(keys.meet(key("!snapshot"), stale(1), &mut batch));
    }
}
