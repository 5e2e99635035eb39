//! The in-memory engine: the twin of a disk that can lose what was not synced.
//!
//! ```text
//!   durable            + unsynced batches, oldest first   = what reads see
//!   survives all         a crash keeps a prefix of them
//! ```
//!
//! A test requests each crash and failure; the engine draws none at random, so that one seed gives
//! one run.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::engine::{Durability, Engine, EngineError, KeyValue, Range, Read, WriteBatch, WriteOp};

type Map = BTreeMap<Bytes, Bytes>;

/// An engine in memory; see the module.
pub struct MemoryEngine {
    inner: Mutex<Inner>,
    /// Notifies stalled syncs of a crash.
    crashed: Condvar,
}

/// The unsynced batches that survive a crash: always a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All: the process died, the machine did not.
    Everything,
    /// None: the power failed before anything more reached the disk.
    Synced,
    /// A number of the oldest, drawn by the seed: the power failed at some moment.
    Some {
        /// Draws the number.
        seed: u64,
    },
}

/// The failure of a write or sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether the cause is a full disk.
    pub disk_full: bool,
    /// Whether the batch took effect nevertheless: the error leaves that unknown until the engine
    /// is opened again. A sync ignores it.
    pub took_effect: bool,
}

/// Counts the work of an engine since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches written.
    pub writes: u64,
    /// Synced writes, and syncs.
    pub syncs: u64,
    /// Bytes of keys and values in the batches written.
    pub bytes: u64,
}

#[derive(Default)]
struct Inner {
    /// The state that reads see. Snapshots share it; a write copies it only while one exists.
    live: Arc<Map>,
    /// The state that survives every crash.
    durable: Map,
    /// The batches in `live` that are not in `durable`, oldest first.
    unsynced: VecDeque<WriteBatch>,
    /// A batch that failed and took effect nevertheless: visible only after the next open.
    unseen: Option<WriteBatch>,
    poisoned: Option<String>,
    /// Whether syncs wait for the crash.
    stalled: bool,
    /// Writes until the failure, the failing one included.
    write_failure: Option<(u64, Failure)>,
    /// Syncs until the failure, the failing one included.
    sync_failure: Option<(u64, Failure)>,
    counts: Counts,
}

impl MemoryEngine {
    /// Creates an empty engine.
    pub fn new() -> Self {
        Self::with(Map::new(), VecDeque::new())
    }

    /// Makes the `nth` write from now fail; 1 is the next one.
    pub fn fail_write(&self, nth: u64, failure: Failure) {
        self.lock().write_failure = Some((nth.max(1), failure));
    }

    /// Makes the `nth` sync from now fail; 1 is the next one. A synced write counts as a sync.
    pub fn fail_sync(&self, nth: u64, failure: Failure) {
        self.lock().sync_failure = Some((nth.max(1), failure));
    }

    /// Stalls syncs: from now on a sync does not return until the crash, as on a disk that does not
    /// respond. Later writes are not durable. A synced write does not stall.
    pub fn stall_syncs(&self) {
        self.lock().stalled = true;
    }

    /// Crashes the engine, and returns it as it opens again, with the batches of `survival`. This
    /// instance refuses further writes, because its process has ended.
    #[must_use]
    pub fn crash(&self, survival: Survival) -> Self {
        let mut inner = self.lock();
        let mut unsynced = inner.unsynced.clone();
        unsynced.extend(inner.unseen.clone());
        let kept = match survival {
            Survival::Everything => unsynced.len(),
            Survival::Synced => 0,
            Survival::Some { seed } => draw(seed, unsynced.len()),
        };
        unsynced.truncate(kept);
        let mut durable = inner.durable.clone();
        inner.poisoned.get_or_insert_with(|| "its process crashed".to_owned());
        drop(inner);
        self.crashed.notify_all();
        if survival != Survival::Everything {
            for batch in unsynced.drain(..) {
                apply(&mut durable, batch);
            }
        }
        Self::with(durable, unsynced)
    }

    /// Closes this instance and opens it again, as after a failed write. No batch that reached the
    /// disk is lost, and the new instance takes writes.
    #[must_use]
    pub fn reopen(&self) -> Self {
        self.crash(Survival::Everything)
    }

    /// Returns the counts since this instance was opened.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Returns the number of batches that a power cut can lose.
    pub fn unsynced(&self) -> usize {
        self.lock().unsynced.len()
    }

    fn with(durable: Map, unsynced: VecDeque<WriteBatch>) -> Self {
        let mut live = durable.clone();
        for batch in &unsynced {
            apply(&mut live, batch.clone());
        }
        let inner = Inner { live: Arc::new(live), durable, unsynced, ..Inner::default() };
        Self { inner: Mutex::new(inner), crashed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A thread that panicked left no change half done: every change is made in one piece.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> Arc<Map> {
        Arc::clone(&self.lock().live)
    }
}

impl Inner {
    fn refuse_if_poisoned(&self) -> Result<(), EngineError> {
        match &self.poisoned {
            Some(reason) => Err(EngineError::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn fail(&mut self, what: &str, failure: Failure) -> EngineError {
        let cause =
            if failure.disk_full { "no space left on device" } else { "input/output error" };
        let reason = format!("{what}: {cause} (injected)");
        self.poisoned = Some(reason.clone());
        EngineError::Write { reason, disk_full: failure.disk_full }
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        if let Some(failure) = count_down(&mut self.sync_failure) {
            return Err(self.fail("sync", failure));
        }
        self.counts.syncs += 1;
        for batch in self.unsynced.drain(..) {
            apply(&mut self.durable, batch);
        }
        Ok(())
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("MemoryEngine")
            .field("rows", &inner.live.len())
            .field("unsynced", &inner.unsynced.len())
            .field("poisoned", &inner.poisoned)
            .finish()
    }
}

impl Read for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.live().get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.live().scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.live().last(range)
    }
}

impl Engine for MemoryEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        let mut inner = self.lock();
        inner.refuse_if_poisoned()?;
        if let Some(failure) = count_down(&mut inner.write_failure) {
            if failure.took_effect {
                inner.unseen = Some(batch);
            }
            return Err(inner.fail("write", failure));
        }
        let bytes = batch.bytes() as u64;
        inner.unsynced.push_back(batch.clone());
        if durability == Durability::Synced
            && let Err(error) = inner.sync()
        {
            // Perhaps written, but not acknowledged: invisible before the next open.
            inner.unseen = inner.unsynced.pop_back();
            return Err(error);
        }
        apply(Arc::make_mut(&mut inner.live), batch);
        inner.counts.writes += 1;
        inner.counts.bytes += bytes;
        Ok(())
    }

    fn sync(&self) -> Result<(), EngineError> {
        let waits = |inner: &mut Inner| inner.stalled && inner.poisoned.is_none();
        let waited = self.crashed.wait_while(self.lock(), waits);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner);
        inner.refuse_if_poisoned()?;
        inner.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        Box::new(self.live())
    }
}

impl Read for Map {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Ok(self.get(key).cloned())
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        Ok(rows(self, range).take(limit).collect())
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        Ok(rows(self, range).next_back())
    }
}

fn rows(map: &Map, range: &Range) -> impl DoubleEndedIterator<Item = KeyValue> {
    // A map panics on a range that ends before it begins; for an engine that range is empty.
    let to = match &range.to {
        Some(to) if *to <= range.from => Bound::Excluded(&range.from),
        Some(to) => Bound::Excluded(to),
        None => Bound::Unbounded,
    };
    map.range::<Bytes, _>((Bound::Included(&range.from), to))
        .map(|(key, value)| (key.clone(), value.clone()))
}

fn apply(map: &mut Map, batch: WriteBatch) {
    for op in batch.ops {
        match op {
            WriteOp::Put(key, value) => {
                map.insert(key, value);
            }
            WriteOp::Delete(key) => {
                map.remove(&key);
            }
            WriteOp::DeleteRange(from, to) => {
                let range = Range { from, to: Some(to) };
                let gone: Vec<_> = rows(map, &range).map(|(key, _)| key).collect();
                for key in gone {
                    map.remove(&key);
                }
            }
        }
    }
}

/// Takes the failure if it is due now.
fn count_down(pending: &mut Option<(u64, Failure)>) -> Option<Failure> {
    let (left, failure) = pending.as_mut()?;
    *left -= 1;
    let due = (*left == 0).then_some(*failure);
    if due.is_some() {
        *pending = None;
    }
    due
}

/// A number from 0 to `max`, inclusive, by the seed: one round of SplitMix64.
fn draw(seed: u64, max: usize) -> usize {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let choices = max as u64 + 1;
    usize::try_from((z ^ (z >> 31)) % choices).unwrap_or(max)
}

#[cfg(test)]
mod tests;
