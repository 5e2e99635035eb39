//! I14: an empty, half-written or re-created log never makes an edge delete.

use std::collections::BTreeSet;

use headwater_event::{EntryKey, StreamId};

use crate::state::State;

/// What its source really removed, ever: key and UID.
#[derive(Clone, Debug, Default)]
pub struct RemovedUids {
    removed: BTreeSet<(EntryKey, String)>,
}

/// An object that left an edge although its source still has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I14 {stream}: {key} with UID {uid:?} left the edge, its source never removed it")]
pub struct UnexpectedDeletion {
    /// The stream.
    pub stream: StreamId,
    /// The key.
    pub key: EntryKey,
    /// The UID.
    pub uid: String,
}

impl RemovedUids {
    /// The source removed this, or put another object in its place.
    pub fn remove(&mut self, key: EntryKey, uid: String) {
        self.removed.insert((key, uid));
    }

    /// Whether its source removed this, or put another object in its place.
    pub fn contains(&self, key: &EntryKey, uid: &str) -> bool {
        self.removed.contains(&(key.clone(), uid.to_owned()))
    }

    /// An edge showed `before` and shows `after` now.
    ///
    /// # Errors
    /// Names an object that left without having been removed.
    pub fn check(
        &self,
        stream: &StreamId,
        before: &State,
        after: &State,
    ) -> Result<(), UnexpectedDeletion> {
        for (key, entry) in &before.entries {
            let is_there = after.entries.get(key).is_some_and(|after| after.uid == entry.uid);
            if !is_there && !self.contains(key, &entry.uid) {
                let (stream, key, uid) = (stream.clone(), key.clone(), entry.uid.clone());
                return Err(UnexpectedDeletion { stream, key, uid });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::Seq;

    use super::*;
    use crate::state::tests::log;

    #[test]
    fn an_empty_log_is_no_reason_to_delete() {
        let before = State::fold(&log(&[(1, Some(1)), (2, Some(2))]), Seq(2));
        let mut removed = RemovedUids::default();
        assert!(removed.check(&StreamId::Cluster, &before, &State::default()).is_err());
        for (key, entry) in &before.entries {
            removed.remove(key.clone(), entry.uid.clone());
        }
        assert!(removed.check(&StreamId::Cluster, &before, &State::default()).is_ok());
    }
}
