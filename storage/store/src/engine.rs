//! The contract of an ordered key-value engine.
//!
//! One flat key space in byte order; tables are prefixes of it (see the key registry), so that
//! one write batch covers all of them and no engine needs column families.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// When a write is safe from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Survives a crash of this process when the write returns; survives power loss only once
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

    /// Whether nothing would change.
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
    /// The first key behind the range.
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

    /// The rest of this range behind `key`, exclusive: where the next chunk of a scan begins.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let mut from = Vec::with_capacity(key.len() + 1);
        from.extend_from_slice(key);
        from.push(0);
        Self { from: from.into(), to: self.to.clone() }
    }
}

/// Why an engine failed, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    /// A write failed; whether it took effect is unknown until the engine is opened again.
    /// The instance takes no further write (RocksDB does not heal every such failure, and a
    /// failed fsync must not be retried).
    #[error("the storage engine failed to write: {reason}")]
    Write {
        /// What happened.
        reason: String,
        /// Whether the disk is full: opening again needs room first.
        disk_full: bool,
    },
    /// A read failed; the state is unchanged.
    #[error("the storage engine failed to read: {reason}")]
    Read {
        /// What happened.
        reason: String,
    },
    /// Stored bytes are damaged: the database is to be moved aside and rebuilt.
    #[error("the database is damaged: {reason}")]
    Corrupt {
        /// What is damaged.
        reason: String,
    },
    /// An earlier write failed: this instance is closed to writes.
    #[error("the storage engine is closed to writes since: {reason}")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The database was written by something this build does not know.
    #[error("the database cannot be used by this build: {reason}")]
    Unsupported {
        /// What is unknown.
        reason: String,
    },
    /// Another process holds the database.
    #[error("the database is in use: {reason}")]
    Locked {
        /// Which database.
        reason: String,
    },
}

/// An ordered key-value engine. Shared by reference; writers serialize inside.
///
/// Calls block on disk: async callers go through a thread of their own.
pub trait Engine: Send + Sync + fmt::Debug {
    /// The value of `key`.
    ///
    /// # Errors
    /// [`EngineError::Read`] or [`EngineError::Corrupt`].
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// The first `limit` pairs of `range`, in key order; fewer means the range is at its end.
    /// Long scans go in chunks, so that no iterator pins old files for long.
    ///
    /// # Errors
    /// [`EngineError::Read`] or [`EngineError::Corrupt`]; never a silently short result.
    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError>;

    /// The last pair of `range`.
    ///
    /// # Errors
    /// [`EngineError::Read`] or [`EngineError::Corrupt`].
    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError>;

    /// Applies `batch`: all of it or nothing, visible at once when this returns.
    ///
    /// # Errors
    /// [`EngineError::Write`]: unknown until reopened; every later write is refused.
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError>;

    /// Makes every write so far survive power loss. When this returns, they do.
    ///
    /// # Errors
    /// [`EngineError::Write`]: unknown until reopened; never retried on this instance.
    fn sync(&self) -> Result<(), EngineError>;

    /// A consistent view of the present state, unchanged by later writes. Held briefly.
    fn snapshot(&self) -> Box<dyn Snapshot + '_>;
}

/// A consistent view of an engine's state.
pub trait Snapshot {
    /// The value of `key` when the snapshot was taken.
    ///
    /// # Errors
    /// As [`Engine::get`].
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// As [`Engine::scan`], of the state when the snapshot was taken.
    ///
    /// # Errors
    /// As [`Engine::scan`].
    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError>;
}

impl<E: Engine + ?Sized> Engine for Arc<E> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        (**self).get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        (**self).scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        (**self).last(range)
    }

    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        (**self).write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        (**self).sync()
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        (**self).snapshot()
    }
}
