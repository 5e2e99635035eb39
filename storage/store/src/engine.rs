//! The contract of an ordered key-value engine.
//!
//! An engine has one flat key space in byte order. Tables are prefixes of it (see the key
//! registry), so that one write batch covers all tables and no engine needs column families.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// The failures that a write survives once it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Survives a crash of this process when the write returns, or, during a
    /// [bulk load](Engine::begin_bulk_load), once that has ended; survives power loss only once
    /// [`Engine::sync`] has returned. Unsynced writes are lost from the end, never with a hole.
    Buffered,
    /// Survives power loss when the write returns, with every write before it.
    Synced,
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOp {
    /// The key now has this value.
    Put(Bytes, Bytes),
    /// The key is gone.
    Delete(Bytes),
    /// Every key of the range is gone: from the first, inclusive, to the second, exclusive.
    DeleteRange(Bytes, Bytes),
}

/// Changes that become visible together, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteBatch {
    /// The changes.
    pub ops: Vec<WriteOp>,
}

impl WriteBatch {
    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push(WriteOp::Put(key.into(), value.into()));
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.ops.push(WriteOp::Delete(key.into()));
    }

    /// Removes every key from `from`, inclusive, to `to`, exclusive.
    pub fn delete_range(&mut self, from: impl Into<Bytes>, to: impl Into<Bytes>) {
        self.ops.push(WriteOp::DeleteRange(from.into(), to.into()));
    }

    /// Whether the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The bytes of all keys and values: what a bound on a batch counts.
    pub fn bytes(&self) -> usize {
        self.ops
            .iter()
            .map(|op| match op {
                WriteOp::Put(key, value) => key.len() + value.len(),
                WriteOp::Delete(key) => key.len(),
                WriteOp::DeleteRange(from, to) => from.len() + to.len(),
            })
            .sum()
    }
}

/// A key and its value.
pub type KeyValue = (Bytes, Bytes);

/// A range of keys: from the first, inclusive, to the second, exclusive (`None`: to the end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key of the range.
    pub from: Bytes,
    /// The first key after the range.
    pub to: Option<Bytes>,
}

impl Range {
    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let from: Bytes = prefix.into();
        let mut to = from.to_vec();
        while let Some(last) = to.pop() {
            if last < u8::MAX {
                to.push(last + 1);
                return Self { from, to: Some(to.into()) };
            }
        }
        Self { from, to: None }
    }

    /// Every key.
    pub fn all() -> Self {
        Self { from: Bytes::new(), to: None }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from.as_ref() && self.to.as_ref().is_none_or(|to| key < to.as_ref())
    }

    /// Whether no key can lie in the range.
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Returns the rest of this range after `key`: the next chunk of a scan.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let mut from = Vec::with_capacity(key.len() + 1);
        from.extend_from_slice(key);
        from.push(0);
        Self { from: from.into(), to: self.to.clone() }
    }
}

/// The failures of an engine, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// A write failed. Whether it took effect is unknown until the engine is opened again. The
    /// instance refuses further writes: RocksDB does not recover from every such failure, and a
    /// failed fsync must not be retried.
    #[error("the storage engine failed to write: {reason}")]
    Write {
        /// The cause.
        reason: String,
        /// Whether the disk is full: the next open needs free space.
        disk_full: bool,
    },
    /// A read failed; the state is unchanged.
    #[error("the storage engine failed to read: {reason}")]
    Read {
        /// The cause.
        reason: String,
    },
    /// Stored bytes are damaged. The caller moves the database aside and rebuilds it.
    #[error("the database is damaged: {reason}")]
    Corrupt {
        /// The damaged data and the damage.
        reason: String,
    },
    /// An earlier write failed: this instance refuses writes.
    #[error("the storage engine refuses writes after an earlier failure: {reason}")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// This build does not know the schema of the database.
    #[error("the database cannot be used by this build: {reason}")]
    Unsupported {
        /// The unknown schema.
        reason: String,
    },
    /// The batch can never be written: a value has no encoding, a folded state has no position, or
    /// the batch is above the bound. Nothing was written; the engine takes further writes.
    #[error("the batch was refused, nothing was written: {reason}")]
    Refused {
        /// The cause.
        reason: String,
    },
    /// Another process has the database open.
    #[error("the database is in use: {reason}")]
    Locked {
        /// The database.
        reason: String,
    },
}

/// Reads a state: the present one of an [`Engine`], or that of a snapshot.
pub trait Read {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`EngineError::Read`] or [`EngineError::Corrupt`].
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Returns the first `limit` pairs of `range`, in key order; fewer means that the range ends.
    /// A long scan goes in chunks, so that no iterator pins old files for long.
    ///
    /// # Errors
    /// [`EngineError::Read`] or [`EngineError::Corrupt`]; never a silently short result.
    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError>;

    /// Returns the last pair of `range`.
    ///
    /// # Errors
    /// [`EngineError::Read`] or [`EngineError::Corrupt`].
    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError>;
}

/// An ordered key-value engine. Threads share it by reference; it serializes their writes.
///
/// Calls block on disk: an async caller calls from a thread of its own.
pub trait Engine: Read + Send + Sync + fmt::Debug {
    /// Applies `batch`: all of it or nothing. It is visible when this returns.
    ///
    /// # Errors
    /// [`EngineError::Write`]: the outcome is unknown until the engine is opened again. Every later
    /// write fails with [`EngineError::Poisoned`]; reads return the state before the failed write.
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError>;

    /// Makes every write so far durable: when this returns, they survive power loss.
    ///
    /// # Errors
    /// [`EngineError::Write`]: the outcome is unknown until the engine is opened again, and the
    /// caller never retries on this instance.
    fn sync(&self) -> Result<(), EngineError>;

    /// Returns a consistent view of the present state, unchanged by later writes. The caller drops
    /// it soon, because the engine cannot reclaim the data in it.
    fn snapshot(&self) -> Box<dyn Read + '_>;

    /// Many writes in a row begin. The engine may defer work on what is stored, at the cost of reads. Until
    /// the load ends, a crash of this process is to buffered writes, of any table, what power loss is: they
    /// are lost from the end, never with a hole. A synced write survives as ever, and may cost more. Another
    /// open ends the load, too.
    fn begin_bulk_load(&self) {}

    /// The many writes in a row have ended: those that were buffered survive a crash from now on. An engine
    /// that cannot make it so refuses later writes; one without a load does nothing.
    fn end_bulk_load(&self) {}
}

impl<E: Read + ?Sized> Read for Arc<E> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        (**self).get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        (**self).scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        (**self).last(range)
    }
}

impl<E: Engine + ?Sized> Engine for Arc<E> {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        (**self).write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        (**self).sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        (**self).snapshot()
    }

    fn begin_bulk_load(&self) {
        (**self).begin_bulk_load();
    }

    fn end_bulk_load(&self) {
        (**self).end_bulk_load();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_what_begins_with_it_and_nothing_else() {
        let range = Range::prefix(&b"a\xff"[..]);
        assert!(range.contains(b"a\xff") && range.contains(b"a\xff\xff\xff"));
        assert!(!range.contains(b"a\xfe") && !range.contains(b"b"));
        assert_eq!(Range::prefix(&b"\xff\xff"[..]).to, None, "nothing lies behind it");
        assert!(Range::prefix(&b""[..]).contains(b""));
    }

    #[test]
    fn the_rest_of_a_range_begins_behind_the_key() {
        let rest = Range::prefix(&b"a"[..]).after(b"ab");
        assert!(!rest.contains(b"ab") && rest.contains(b"ab\0") && !rest.contains(b"b"));
    }
}
