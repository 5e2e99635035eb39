//! I5: an object that was removed never comes back under the same UID.

use std::collections::{BTreeMap, BTreeSet};

use headwater_event::{EntryKey, StreamId};

use crate::state::State;

/// What was there and what has left, per stream of one replica.
#[derive(Clone, Debug, Default)]
pub struct Removals {
    streams: BTreeMap<StreamId, StreamUids>,
}

#[derive(Clone, Debug, Default)]
struct StreamUids {
    present: BTreeSet<(EntryKey, String)>,
    gone: BTreeSet<(EntryKey, String)>,
}

/// An object that came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I5 {stream}: {key} is back with UID {uid}, which had been removed")]
pub struct CameBack {
    /// The stream.
    pub stream: StreamId,
    /// Its key.
    pub key: EntryKey,
    /// Its UID.
    pub uid: String,
}

impl Removals {
    /// The replica shows this state of the stream now. Objects without a UID are left aside.
    ///
    /// # Errors
    /// Names an object that had left.
    pub fn observe(&mut self, stream: &StreamId, state: &State) -> Result<(), CameBack> {
        let seen = self.streams.entry(stream.clone()).or_default();
        let present: BTreeSet<_> = state
            .entries
            .iter()
            .filter(|(_, entry)| !entry.uid.is_empty())
            .map(|(key, entry)| (key.clone(), entry.uid.clone()))
            .collect();
        if let Some((key, uid)) = present.intersection(&seen.gone).next() {
            let (stream, key, uid) = (stream.clone(), key.clone(), uid.clone());
            return Err(CameBack { stream, key, uid });
        }
        seen.gone.extend(seen.present.difference(&present).cloned());
        seen.present = present;
        Ok(())
    }

    /// What left may be there again: a crash took the replica back, or the history that removed
    /// it was lost with its log.
    pub fn forget(&mut self, stream: &StreamId) {
        self.streams.remove(stream);
    }
}

#[cfg(test)]
mod tests {
    use headwater_event::Seq;

    use super::*;
    use crate::state::tests::log;

    #[test]
    fn what_left_stays_away() {
        let log = log(&[(1, Some(1)), (1, None), (1, Some(1))]);
        let mut removals = Removals::default();
        for (seq, is_fine) in [(1, true), (2, true), (3, false)] {
            let state = State::fold(&log, Seq(seq));
            assert_eq!(removals.observe(&StreamId::Cluster, &state).is_ok(), is_fine, "{seq}");
        }
    }
}
