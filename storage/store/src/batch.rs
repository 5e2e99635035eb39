//! Batches of typed writes. A batch commits folded state only together with its position.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use bytes::Bytes;

use crate::codec::Value;
use crate::engine::{Durability, Engine, EngineError, Range, Read, WriteBatch, WriteOp};
use crate::key::{Key, PrefixOf};
use crate::table::{Folded, Free, Table};

/// The most bytes of keys and values in a batch. An engine has several copies of a batch in memory
/// while it writes, and an edge has 64 MiB for everything. The bound has room for several objects
/// of the largest size that the log takes (2 MiB).
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// Writes that become visible together.
///
/// A `Batch<Folded>` may write every table and is committed with a position. A `Batch<Free>` may
/// write only tables that need no position. The compiler infers which one it is. Writes to the same
/// key coalesce: the last one counts.
#[derive(Debug)]
pub struct Batch<R = Free> {
    /// The removed ranges. They apply before all writes in `latest`.
    removed: Vec<Range>,
    /// The latest write of each key; `None` removes it.
    latest: BTreeMap<Bytes, Option<Bytes>>,
    bytes: usize,
    /// The first write without an encoding. It makes the commit refuse the whole batch.
    refused: Option<String>,
    kind: PhantomData<fn() -> R>,
}

/// Permits a `Batch<Self>` to write a `Table<_, _, R>`.
pub trait MayWrite<R> {}

impl MayWrite<Free> for Free {}
impl MayWrite<Free> for Folded {}
impl MayWrite<Folded> for Folded {}

/// A position that [`Batch::commit`] stores with the state.
pub trait CommitPosition {
    /// Adds the position to the batch that moves the state there.
    fn put(&self, batch: &mut Batch<Folded>);
}

impl<B> Batch<B> {
    /// Creates a batch without writes.
    pub fn new() -> Self {
        Self {
            removed: Vec::new(),
            latest: BTreeMap::new(),
            bytes: 0,
            refused: None,
            kind: PhantomData,
        }
    }

    /// Sets the value of `key`. A value without an encoding makes the commit fail.
    pub fn put<K: Key, V: Value, R>(&mut self, table: &Table<K, V, R>, key: &K, value: &V)
    where
        B: MayWrite<R>,
    {
        match value.encode() {
            Ok(value) => self.set(table.encode_key(key), Some(value)),
            Err(error) => {
                self.refused.get_or_insert(format!("table {:?}: {error}", table.id()));
            }
        }
    }

    /// Removes `key`.
    pub fn delete<K: Key, V: Value, R>(&mut self, table: &Table<K, V, R>, key: &K)
    where
        B: MayWrite<R>,
    {
        self.set(table.encode_key(key), None);
    }

    /// Removes every row whose key begins with `prefix`.
    pub fn delete_of<K: Key, V: Value, R>(
        &mut self,
        table: &Table<K, V, R>,
        prefix: &impl PrefixOf<K>,
    ) where
        B: MayWrite<R>,
    {
        self.remove(table.prefix_range(prefix));
    }

    /// Removes the rows from `first`, inclusive, to `end`, exclusive.
    pub fn delete_between<K: Key, V: Value, R>(
        &mut self,
        table: &Table<K, V, R>,
        first: &K,
        end: &K,
    ) where
        B: MayWrite<R>,
    {
        self.remove(table.between_range(first, end));
    }

    /// Removes every row of the table.
    pub fn clear<K: Key, V: Value, R>(&mut self, table: &Table<K, V, R>)
    where
        B: MayWrite<R>,
    {
        self.remove(table.key_range());
    }

    /// Returns the value that `key` will have after the commit of this batch over the state
    /// `under`.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get<K: Key, V: Value, R>(
        &self,
        under: &(impl Read + ?Sized),
        table: &Table<K, V, R>,
        key: &K,
    ) -> Result<Option<V>, EngineError> {
        let bytes = table.encode_key(key);
        match self.latest.get(&bytes) {
            Some(Some(value)) => table.decode_value(value.clone()).map(Some),
            Some(None) => Ok(None),
            None if self.removed.iter().any(|range| range.contains(&bytes)) => Ok(None),
            None => table.get(under, key),
        }
    }

    /// Returns the bytes of its keys and values. A commit takes at most [`BATCH_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the batch has no writes.
    pub fn is_empty(&self) -> bool {
        self.latest.is_empty() && self.removed.is_empty() && self.refused.is_none()
    }

    fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        let length = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
        self.bytes += key.len() + length(&value);
        let key_length = key.len();
        if let Some(before) = self.latest.insert(key, value) {
            self.bytes -= key_length + length(&before);
        }
    }

    fn remove(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        let bytes = &mut self.bytes;
        self.latest.retain(|key, value| {
            let stays = !range.contains(key);
            if !stays {
                *bytes -= key.len() + value.as_ref().map_or(0, Bytes::len);
            }
            stays
        });
        self.bytes += range.from.len() + range.to.as_ref().map_or(0, Bytes::len);
        self.removed.push(range);
    }

    fn write_to(
        self,
        engine: &(impl Engine + ?Sized),
        durability: Durability,
    ) -> Result<(), EngineError> {
        if let Some(reason) = self.refused {
            return Err(EngineError::Refused { reason });
        }
        if self.bytes > BATCH_BYTES_MAX {
            let bytes = self.bytes;
            let reason = format!("the batch has {bytes} bytes; the maximum is {BATCH_BYTES_MAX}");
            return Err(EngineError::Refused { reason });
        }
        let mut ops = Vec::with_capacity(self.removed.len() + self.latest.len());
        for Range { from, to } in self.removed {
            // No table is at the end of the key space (see the registry), so every range has an
            // end.
            let to = to.unwrap_or_else(|| Bytes::from_static(&[u8::MAX]));
            ops.push(WriteOp::DeleteRange(from, to));
        }
        ops.extend(self.latest.into_iter().map(|(key, value)| match value {
            Some(value) => WriteOp::Put(key, value),
            None => WriteOp::Delete(key),
        }));
        engine.write(WriteBatch { ops }, durability)
    }
}

impl Batch<Free> {
    /// Writes the batch: all of it or nothing.
    ///
    /// # Errors
    /// As [`Engine::write`]; [`EngineError::Refused`] when the batch is too large or a value has no
    /// encoding.
    pub fn write(
        self,
        engine: &(impl Engine + ?Sized),
        durability: Durability,
    ) -> Result<(), EngineError> {
        self.write_to(engine, durability)
    }
}

impl Batch<Folded> {
    /// Commits the writes together with the positions of the state after them, at least one: all
    /// of it or nothing.
    ///
    /// # Errors
    /// As [`Batch::write`]; also [`EngineError::Refused`] when no position is given.
    pub fn commit<P: CommitPosition>(
        mut self,
        engine: &(impl Engine + ?Sized),
        positions: &[P],
        durability: Durability,
    ) -> Result<(), EngineError> {
        if positions.is_empty() {
            let reason = "a folded state moves only with its position".to_owned();
            return Err(EngineError::Refused { reason });
        }
        for position in positions {
            position.put(&mut self);
        }
        self.write_to(engine, durability)
    }
}

impl<B> Default for Batch<B> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
