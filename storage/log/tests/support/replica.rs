//! The plainest view there can be: entries by key, a hash of its own, and every rule checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{
    Applied, BodyAddress, EntryKey, Envelope, Event, HashKey, ObjectHash, StateHash, StreamId,
};
use headwater_log::acceptance::Mode;
use headwater_log::{Acceptance, Batch, Log, MemoryLog, Outcome, ReadError, Reader, begin_fold};

/// What a stream holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) entries: BTreeMap<EntryKey, Applied>,
    pub(crate) hash: StateHash,
    /// The bodies to which entries refer.
    pub(crate) references: BTreeMap<EntryKey, BodyAddress>,
}

/// A reader with what it folded.
pub(crate) struct Replica {
    pub(crate) log: MemoryLog,
    pub(crate) reader: Box<dyn Reader>,
    pub(crate) acceptance: Acceptance,
    pub(crate) folded: FoldedState,
}

/// What a reader folded, without its position.
pub(crate) struct FoldedState {
    hash_key: HashKey,
    pub(crate) streams: BTreeMap<StreamId, State>,
    /// Every event accepted while following, by what was seen.
    pub(crate) history: Vec<Envelope>,
}

impl Replica {
    /// A replica that has folded the log to where it ends now.
    pub(crate) async fn fold(log: &MemoryLog, metadata: LogMetadata) -> Result<Self, ReadError> {
        let acceptance = begin_fold(log, metadata, log.now_ms()).await?;
        let reader = log.read(acceptance.cursors()).await?;
        let folded = FoldedState {
            hash_key: HashKey::new(&metadata.log_id),
            streams: BTreeMap::new(),
            history: Vec::new(),
        };
        let mut replica = Self { log: log.clone(), reader, acceptance, folded };
        replica.drain().await?;
        Ok(replica)
    }

    /// Reads on to where the log ends now; folds anew if it was away for too long.
    pub(crate) async fn read_to_end(&mut self) -> Result<Vec<Outcome>, ReadError> {
        let window_ms = self.log.describe().await?.replay_window_ms;
        let now_ms = self.log.now_ms();
        let inside = |state: &headwater_log::acceptance::PartitionState| {
            state.inside_window(now_ms, window_ms)
        };
        if !self.acceptance.partitions().values().all(inside) {
            let history = std::mem::take(&mut self.folded.history);
            *self = Box::pin(Self::fold(&self.log, *self.acceptance.metadata())).await?;
            self.folded.history = history;
        }
        self.drain().await
    }

    async fn drain(&mut self) -> Result<Vec<Outcome>, ReadError> {
        let mut seen = Vec::new();
        loop {
            let mut behind = false;
            for cursor in self.acceptance.cursors() {
                behind |= cursor.next < self.log.bounds(cursor.partition).await?.high;
            }
            if !behind {
                for partition in self.acceptance.partitions().values() {
                    assert_eq!(partition.mode, Mode::Follow, "a fold ends where the log ended");
                }
                return Ok(seen);
            }
            let batch = self.reader.next().await?;
            let following = self.acceptance.is_folded();
            let outcomes = self.acceptance.accept_batch(&batch, self.log.now_ms());
            self.folded.take(&batch, &outcomes, following);
            seen.extend(outcomes);
        }
    }

    /// That the state is the one that the writer had at this position.
    pub(crate) fn check_hashes(&self) {
        for (stream, position) in self.acceptance.streams() {
            let state = self.folded.streams.get(stream).cloned().unwrap_or_default();
            assert_eq!(state.hash, position.hash, "{stream} at {position:?}: {state:?}");
        }
    }

    /// The bodies to which no entry refers.
    pub(crate) fn unreferenced(&self) -> Vec<BodyAddress> {
        let referenced = self.referenced();
        let bodies = self.acceptance.bodies().addresses();
        bodies.filter(|body| !referenced.contains(body)).copied().collect()
    }

    /// That it has the bodies to which entries refer, and no others.
    pub(crate) fn check_bodies(&self) {
        let bodies: BTreeSet<_> = self.acceptance.bodies().addresses().copied().collect();
        assert_eq!(bodies, self.referenced());
    }

    fn referenced(&self) -> BTreeSet<BodyAddress> {
        let streams = self.folded.streams.values();
        streams.flat_map(|state| state.references.values().copied()).collect()
    }

    /// The entries of every stream that has any.
    pub(crate) fn entries(&self) -> BTreeMap<(StreamId, EntryKey), Bytes> {
        let streams = self.folded.streams.iter();
        let entries = streams.flat_map(|(stream, state)| {
            let of = |(key, applied): (&EntryKey, &Applied)| {
                ((stream.clone(), key.clone()), applied.object.clone())
            };
            state.entries.iter().map(of)
        });
        entries.collect()
    }
}

impl FoldedState {
    /// Folds a batch.
    pub(crate) fn take(&mut self, _batch: &Batch, outcomes: &[Outcome], following: bool) {
        for outcome in outcomes {
            let Outcome::Accepted(envelope) = outcome else { continue };
            let state = self.streams.entry(envelope.stream.clone()).or_default();
            state.apply(&self.hash_key, envelope);
            if following {
                assert_eq!(state.hash, envelope.hash, "after {envelope:?}");
                self.history.push(envelope.clone());
            }
        }
    }
}

impl State {
    fn apply(&mut self, hash_key: &HashKey, envelope: &Envelope) {
        let Some(key) = envelope.event.key() else { return };
        if let Some(before) = self.entries.remove(key) {
            self.hash.subtract(hash_key, key, &ObjectHash::of(&before.object));
        }
        if let Event::Applied(applied) = &envelope.event {
            self.hash.add(hash_key, key, &ObjectHash::of(&applied.object));
            self.entries.insert(key.clone(), applied.clone());
        }
        self.references.remove(key);
        if let Some(shared) = envelope.shared {
            self.references.insert(key.clone(), shared.body);
        }
    }
}

/// A log as its users share it.
pub(crate) fn shared(log: &MemoryLog) -> Arc<dyn Log> {
    Arc::new(log.clone())
}
