//! A batch of typed writes, and the one way to commit folded state: with its position.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use bytes::Bytes;

use crate::codec::Value;
use crate::engine::{Durability, Engine, EngineError, Range, Read, WriteBatch, WriteOp};
use crate::key::{Key, PrefixOf};
use crate::table::{Folded, Free, Table};

/// The most a batch may weigh, in bytes of keys and values: an engine holds a batch in memory
/// more than once while it writes it, and an edge has 64 MiB for everything. Room for several
/// objects of the largest size the log takes (2 MiB).
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// Writes that become visible together.
///
/// A `Batch<Folded>` may write every table and is committed with a position; a `Batch<Free>` may
/// write only tables that stand by themselves. Which of them it is follows from its use. Writes to the same key
/// coalesce: the last one counts.
#[derive(Debug)]
pub struct Batch<R = Free> {
    /// Ranges removed, each before every write in `latest` that lies in it.
    removed: Vec<Range>,
    /// The latest write of each key; `None` removes it.
    latest: BTreeMap<Bytes, Option<Bytes>>,
    bytes: usize,
    /// The first write that could not be made. The batch is then refused as a whole.
    refused: Option<String>,
    kind: PhantomData<fn() -> R>,
}

/// Which tables a batch may write: a `Batch<Self>` a `Table<_, _, R>`.
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
    /// A batch without writes.
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

    /// The value that `key` will have once this batch is committed over the state of `under`.
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

    /// What the batch weighs: the bytes of its keys and values. At most [`BATCH_BYTES_MAX`]
    /// are committed.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing would change.
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
            let reason = format!("a batch has at most {BATCH_BYTES_MAX} bytes, this one {bytes}");
            return Err(EngineError::Refused { reason });
        }
        let mut ops = Vec::with_capacity(self.removed.len() + self.latest.len());
        for Range { from, to } in self.removed {
            // No table is at the end of the key space (see the registry), so every range ends.
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
    /// Makes the writes: all of them or none.
    ///
    /// # Errors
    /// As [`Engine::write`]; [`EngineError::Refused`] when the batch cannot be written at all.
    pub fn write(
        self,
        engine: &(impl Engine + ?Sized),
        durability: Durability,
    ) -> Result<(), EngineError> {
        self.write_to(engine, durability)
    }
}

impl Batch<Folded> {
    /// Commits the writes together with the positions that the state has after them, at least
    /// one: all of it or nothing.
    ///
    /// # Errors
    /// As [`Engine::write`]; [`EngineError::Refused`] when the batch cannot be written at all,
    /// or no position is given.
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
