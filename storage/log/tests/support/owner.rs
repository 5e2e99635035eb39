//! The owner of a writer: claims, appends what the sources want, repairs what zombies touched.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use headwater_event::record::LogMetadata;
use headwater_event::{Applied, EntryKey, Event, ObjectHash, Removed, StreamId};
use headwater_log::acceptance::RepairKey;
use headwater_log::{
    ClaimError, Claimant, Draft, Log, MemoryLog, Writer, WriterError, claim, repair,
};
use uuid::Uuid;

use super::replica::{Replica, shared};

/// What the sources want to be in the streams.
pub(crate) type Wanted = BTreeMap<(StreamId, EntryKey), Bytes>;

/// How often an owner claims and reconciles anew before a test calls it stuck.
const ATTEMPTS_MAX: usize = 50;

pub(crate) struct Owner {
    pub(crate) log: MemoryLog,
    pub(crate) replica: Replica,
    pub(crate) writer: Option<Writer>,
    /// Counts the claims of all owners: each has a UUID of its own.
    pub(crate) claims: u128,
}

impl Owner {
    pub(crate) async fn new(log: &MemoryLog, metadata: LogMetadata, claims: u128) -> Self {
        let log = log.handle();
        let replica = Replica::fold(&log, metadata).await.expect("the log can be read");
        Self { log, replica, writer: None, claims }
    }

    /// Reads what came.
    pub(crate) async fn read_to_end(&mut self) {
        let outcomes = self.replica.read_to_end().await.expect("the log can be read");
        if let Some(writer) = &mut self.writer {
            outcomes.iter().for_each(|outcome| writer.observe(outcome));
        }
    }

    /// Becomes the writer.
    pub(crate) async fn claim(&mut self) -> Result<(), ClaimError> {
        self.writer = None;
        self.read_to_end().await;
        let log: Arc<dyn Log> = shared(&self.log);
        let now_ms = self.log.now_ms();
        let Replica { reader, acceptance, folded, .. } = &mut self.replica;
        let mut each = |batch: &_, outcomes: Vec<_>| folded.take(batch, &outcomes, true);
        let clock = move || now_ms;
        self.claims += 1;
        let claimant = Claimant::new(Uuid::from_u128(self.claims));
        let won = claim(&log, reader.as_mut(), acceptance, &claimant, &clock, &mut each).await?;
        // Where a partition took no claim, another attempt follows.
        self.writer = Some(won).filter(|won| won.suspended().is_empty());
        Ok(())
    }

    /// Appends drafts as the living writer. One that cannot append to a partition leaves.
    pub(crate) async fn append(&mut self, drafts: Vec<Draft>) -> Result<(), WriterError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let result = writer.append(drafts).await;
        if !writer.is_alive() || !writer.suspended().is_empty() {
            self.writer = None;
        }
        result.map(|_| ())
    }

    /// Retires the bodies to which nothing refers. What the writer appended must have been read.
    pub(crate) async fn retire(&mut self) -> Result<(), WriterError> {
        self.read_to_end().await;
        let unreferenced = self.replica.unreferenced();
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let mut result = writer.begin_retiring(unreferenced).map(drop);
        while result.is_ok() && writer.pending() > 0 {
            result = writer.finished().await.map(drop);
        }
        if !writer.is_alive() || !writer.suspended().is_empty() {
            self.writer = None;
        }
        self.read_to_end().await;
        result
    }

    /// Makes the log hold what is wanted, and says so.
    pub(crate) async fn reconcile(&mut self, wanted: &Wanted) {
        for _ in 0..ATTEMPTS_MAX {
            if self.writer.is_none() && self.claim().await.is_err() {
                continue;
            }
            self.read_to_end().await;
            let Some(writer) = &mut self.writer else { continue };
            let repairs = writer.repairs(&self.replica.acceptance);
            let drafts = self.drafts(wanted, repairs);
            if !drafts.is_empty() {
                let _ = self.append(drafts).await;
                continue;
            }
            let Some(writer) = &mut self.writer else { continue };
            if writer.reconciled().await.is_ok() {
                self.read_to_end().await;
                return;
            }
            self.writer = None;
        }
        panic!("the owner did not reconcile in {ATTEMPTS_MAX} attempts");
    }

    /// The draft that changes an entry.
    pub(crate) fn change(
        &self,
        stream: &StreamId,
        key: &EntryKey,
        object: Option<&Bytes>,
    ) -> Draft {
        let held = self.present(stream, key);
        let event = match object {
            Some(object) => Event::Applied(Applied {
                key: key.clone(),
                uid: "u".to_owned(),
                resource_version: "1".to_owned(),
                object: object.clone(),
            }),
            None => Event::Removed(Removed { key: key.clone(), uid: "u".to_owned() }),
        };
        let replaces = held.map(|held| ObjectHash::of(&held.object));
        Draft { stream: stream.clone(), event, replaces, traceparent: None, is_shared: true }
    }

    fn present(&self, stream: &StreamId, key: &EntryKey) -> Option<&Applied> {
        self.replica.folded.streams.get(stream)?.entries.get(key)
    }

    /// Differences first; a key that differs needs no repair besides.
    fn drafts(&self, wanted: &Wanted, repairs: Vec<(StreamId, RepairKey)>) -> Vec<Draft> {
        let present = self.replica.entries();
        let mut drafts = BTreeMap::new();
        for ((stream, key), object) in wanted {
            if present.get(&(stream.clone(), key.clone())) != Some(object) {
                let at = (stream.clone(), RepairKey::Entry(key.clone()));
                drafts.insert(at, self.change(stream, key, Some(object)));
            }
        }
        for (stream, key) in present.keys().filter(|at| !wanted.contains_key(at)) {
            let at = (stream.clone(), RepairKey::Entry(key.clone()));
            drafts.insert(at, self.change(stream, key, None));
        }
        for (stream, touched) in repairs {
            let held = match &touched {
                RepairKey::Entry(key) => self.present(&stream, key).cloned(),
                RepairKey::Head => None,
            };
            drafts
                .entry((stream.clone(), touched.clone()))
                .or_insert_with(|| repair(stream, touched, held));
        }
        drafts.into_values().collect()
    }
}
