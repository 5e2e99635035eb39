//! Typed tables: the keys of one prefix, with the types of its keys and values.
//!
//! A table is a constant, not a handle. A read takes the engine or the snapshot that it reads, and
//! writes go through a [`Batch`](crate::Batch).

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;

use crate::codec::{Value, finish};
use crate::encoding_error::DecodeError;
use crate::engine::{EngineError, KeyValue, Range, Read};
use crate::key::{Key, PrefixOf};
use crate::registry::TableId;

/// The rows that an iteration reads at once: enough to share the cost of a seek, and few enough
/// that a chunk of 2 MiB objects fits on a small edge.
pub const SCAN_CHUNK_ROWS: usize = 64;

/// Marks tables that are folded from a log: their rows change only together with their position.
#[derive(Debug)]
pub enum Folded {}

/// Marks tables that need no position.
#[derive(Debug)]
pub enum Free {}

/// The rows under one [`TableId`]: keys of type `K`, values of type `V`.
///
/// `R` is [`Folded`] if the rows are folded from a log, else [`Free`].
pub struct Table<K, V, R = Free> {
    id: TableId,
    key: PhantomData<fn() -> K>,
    value: PhantomData<fn() -> V>,
    rows: PhantomData<fn() -> R>,
}

impl<K, V, R> Table<K, V, R> {
    /// Declares the table with this `id`. In each kind of database a table id has one pair of
    /// types; the schema version covers it.
    pub const fn new(id: TableId) -> Self {
        Self { id, key: PhantomData, value: PhantomData, rows: PhantomData }
    }

    /// Returns the id of the table.
    pub const fn id(&self) -> TableId {
        self.id
    }

    /// Returns the range of all keys of the table in the engine.
    pub fn key_range(&self) -> Range {
        Range::prefix(vec![self.id.prefix()])
    }
}

impl<K: Key, V: Value, R> Table<K, V, R> {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// As [`Read::get`]; bytes that do not decode are [`EngineError::Corrupt`].
    pub fn get(&self, from: &(impl Read + ?Sized), key: &K) -> Result<Option<V>, EngineError> {
        from.get(&self.encode_key(key))?.map(|bytes| self.decode_value(bytes)).transpose()
    }

    /// Returns every row, in key order.
    pub fn rows<'r, E: Read + ?Sized>(&self, from: &'r E) -> Rows<'r, K, V, R, E> {
        self.rows_in(from, self.key_range())
    }

    /// Returns the rows whose keys begin with `prefix`, in key order.
    pub fn rows_of<'r, E: Read + ?Sized>(
        &self,
        from: &'r E,
        prefix: &impl PrefixOf<K>,
    ) -> Rows<'r, K, V, R, E> {
        self.rows_in(from, self.prefix_range(prefix))
    }

    /// Returns the rows from `first`, inclusive, to `end`, exclusive, in key order.
    pub fn rows_between<'r, E: Read + ?Sized>(
        &self,
        from: &'r E,
        first: &K,
        end: &K,
    ) -> Rows<'r, K, V, R, E> {
        self.rows_in(from, self.between_range(first, end))
    }

    /// Returns the rows from `first`, inclusive, whose keys begin with `prefix`, in key order.
    pub fn rows_of_from<'r, E: Read + ?Sized>(
        &self,
        from: &'r E,
        prefix: &impl PrefixOf<K>,
        first: &K,
    ) -> Rows<'r, K, V, R, E> {
        let mut range = self.prefix_range(prefix);
        range.from = range.from.max(self.encode_key(first));
        self.rows_in(from, range)
    }

    /// Returns the first `limit` rows after the key `after`, or from the start without it: one
    /// chunk of a scan that the caller continues later. Fewer rows mean that the table ends.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn chunk(
        &self,
        from: &(impl Read + ?Sized),
        after: Option<&K>,
        limit: usize,
    ) -> Result<Vec<(K, V)>, EngineError> {
        let range = match after {
            Some(key) => self.key_range().after(&self.encode_key(key)),
            None => self.key_range(),
        };
        from.scan(&range, limit)?.into_iter().map(|row| self.decode_row(row)).collect()
    }

    /// Returns the last row of the table.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last(&self, from: &(impl Read + ?Sized)) -> Result<Option<(K, V)>, EngineError> {
        self.last_in(from, &self.key_range())
    }

    /// Returns the last row whose key begins with `prefix`.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last_of(
        &self,
        from: &(impl Read + ?Sized),
        prefix: &impl PrefixOf<K>,
    ) -> Result<Option<(K, V)>, EngineError> {
        self.last_in(from, &self.prefix_range(prefix))
    }

    /// Returns the last row before `end`, exclusive, of those whose keys begin with `prefix`.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn last_of_before(
        &self,
        from: &(impl Read + ?Sized),
        prefix: &impl PrefixOf<K>,
        end: &K,
    ) -> Result<Option<(K, V)>, EngineError> {
        let mut range = self.prefix_range(prefix);
        let end = self.encode_key(end);
        range.to = Some(range.to.map_or(end.clone(), |to| to.min(end)));
        self.last_in(from, &range)
    }

    pub(crate) fn encode_key(&self, key: &K) -> Bytes {
        let mut bytes = Vec::with_capacity(1 + key.encoded_bytes());
        bytes.push(self.id.prefix());
        key.encode_key(&mut bytes);
        bytes.into()
    }

    pub(crate) fn prefix_range(&self, prefix: &impl PrefixOf<K>) -> Range {
        let mut bytes = vec![self.id.prefix()];
        prefix.encode_prefix(&mut bytes);
        Range::prefix(bytes)
    }

    pub(crate) fn between_range(&self, first: &K, end: &K) -> Range {
        Range { from: self.encode_key(first), to: Some(self.encode_key(end)) }
    }

    pub(crate) fn decode_value(&self, bytes: Bytes) -> Result<V, EngineError> {
        V::decode(bytes).map_err(|error| self.corrupt("value", &error))
    }

    fn rows_in<'r, E: Read + ?Sized>(&self, from: &'r E, range: Range) -> Rows<'r, K, V, R, E> {
        Rows { table: *self, from, rest: Some(range), chunk: Vec::new().into_iter() }
    }

    fn last_in(
        &self,
        from: &(impl Read + ?Sized),
        range: &Range,
    ) -> Result<Option<(K, V)>, EngineError> {
        from.last(range)?.map(|row| self.decode_row(row)).transpose()
    }

    fn decode_row(&self, (key, value): KeyValue) -> Result<(K, V), EngineError> {
        let key = decode_key(&key[1..]).map_err(|error| self.corrupt("key", &error))?;
        Ok((key, self.decode_value(value)?))
    }

    fn corrupt(&self, what: &str, error: &DecodeError) -> EngineError {
        EngineError::Corrupt {
            reason: format!("table {:?}: a {what} is damaged: {error}", self.id),
        }
    }
}

fn decode_key<K: Key>(mut bytes: &[u8]) -> Result<K, DecodeError> {
    let key = K::decode_key(&mut bytes)?;
    finish(key, bytes)
}

impl<K, V, R> Clone for Table<K, V, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, R> Copy for Table<K, V, R> {}

impl<K, V, R> fmt::Debug for Table<K, V, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Table").field(&self.id).finish()
    }
}

/// An iteration over rows, in chunks of [`SCAN_CHUNK_ROWS`].
///
/// It pins nothing between chunks. Over an engine, each chunk has the state of its own moment; over
/// a snapshot, all chunks have the same state. It ends after the first error.
pub struct Rows<'r, K, V, R, E: ?Sized> {
    table: Table<K, V, R>,
    from: &'r E,
    rest: Option<Range>,
    chunk: std::vec::IntoIter<KeyValue>,
}

impl<K: Key, V: Value, R, E: Read + ?Sized> Iterator for Rows<'_, K, V, R, E> {
    type Item = Result<(K, V), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.chunk.len() == 0 {
            let range = self.rest.take()?;
            match self.from.scan(&range, SCAN_CHUNK_ROWS) {
                Ok(chunk) => {
                    if chunk.len() == SCAN_CHUNK_ROWS {
                        self.rest = chunk.last().map(|(key, _)| range.after(key));
                    }
                    self.chunk = chunk.into_iter();
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let row = self.table.decode_row(self.chunk.next()?);
        if row.is_err() {
            self.rest = None;
            self.chunk = Vec::new().into_iter();
        }
        Some(row)
    }
}

impl<K, V, R, E: ?Sized> fmt::Debug for Rows<'_, K, V, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("table", &self.table).field("rest", &self.rest).finish()
    }
}

#[cfg(test)]
mod tests;
