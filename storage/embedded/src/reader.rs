//! A reader: from the tail in memory, or from the engine for older records.

use std::sync::Arc;

use async_trait::async_trait;
use headwater_event::{Cursor, Offset, Partition};
use headwater_log::{Batch, ReadError, Reader, StoredRecord};
use headwater_store::{Engine, EngineError};
use tokio::sync::watch;

use crate::layout::{decode_record, offset_of, records};
use crate::log_state::LogState;

/// The most records of one batch.
const BATCH_RECORDS_MAX: usize = 512;

/// A batch ends with the record that reaches this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// How many records are read from the engine before their size is known.
const FIRST_CHUNK_RECORDS: usize = 4;

pub(crate) struct EmbeddedReader {
    engine: Arc<dyn Engine>,
    state: Arc<LogState>,
    cursors: Vec<Cursor>,
    /// The partition that is looked at first: round-robin.
    turn: usize,
    changes: watch::Receiver<()>,
}

impl EmbeddedReader {
    pub(crate) fn new(engine: Arc<dyn Engine>, state: Arc<LogState>, cursors: Vec<Cursor>) -> Self {
        let changes = state.changes.subscribe();
        Self { engine, state, cursors, turn: 0, changes }
    }

    /// The next partition with unread records, and its end.
    fn unread(&self) -> Result<Option<(usize, Offset)>, ReadError> {
        for step in 0..self.cursors.len() {
            let index = (self.turn + step) % self.cursors.len();
            let high = self.state.high(self.cursors[index].partition)?;
            if self.cursors[index].next < high {
                return Ok(Some((index, high)));
            }
        }
        Ok(None)
    }

    /// Records of one partition from `next` on. If they do not fill a batch, they are all.
    async fn records(
        &self,
        partition: Partition,
        next: Offset,
        high: Offset,
    ) -> Result<Vec<StoredRecord>, ReadError> {
        let tail = self.state.tail_records(partition, next, BATCH_RECORDS_MAX, BATCH_BYTES_MAX);
        if let Some(records) = tail {
            return Ok(records);
        }
        let (engine, state) = (self.engine.clone(), self.state.clone());
        let read = move || read_records(engine.as_ref(), &state, partition, next, high);
        let result = tokio::task::spawn_blocking(read).await;
        result.unwrap_or_else(|error| Err(ReadError::Unavailable { reason: error.to_string() }))
    }
}

#[async_trait]
impl Reader for EmbeddedReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        loop {
            self.changes.mark_unchanged();
            let Some((index, high)) = self.unread()? else {
                if let Some(reason) = self.state.closed() {
                    return Err(ReadError::Unavailable { reason });
                }
                // The sender lives as long as this reader does.
                let _ = self.changes.changed().await;
                continue;
            };
            let mut cursor = self.cursors[index];
            let records = self.records(cursor.partition, cursor.next, high).await?;
            // Only now, so that a future dropped above loses nothing.
            cursor.next = match records.last() {
                Some(last) if is_full(&records) => last.offset.next(),
                Some(last) => last.offset.next().max(high),
                None => high,
            };
            self.cursors[index] = cursor;
            self.turn = index + 1;
            return Ok(Batch { records, cursor, high: high.max(cursor.next) });
        }
    }
}

fn is_full(records: &[StoredRecord]) -> bool {
    let bytes: usize = records.iter().map(|recorded| recorded.record.bytes()).sum();
    records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX
}

/// Reads from the engine until a batch is full or `high` is reached.
fn read_records(
    engine: &dyn Engine,
    state: &LogState,
    partition: Partition,
    next: Offset,
    high: Offset,
) -> Result<Vec<StoredRecord>, ReadError> {
    let mut range = records(state.log_topic(), partition, next, high);
    let mut read = Vec::new();
    let mut bytes = 0;
    let mut chunk = FIRST_CHUNK_RECORDS;
    while read.len() < BATCH_RECORDS_MAX && bytes < BATCH_BYTES_MAX {
        let pairs = engine.scan(&range, chunk).map_err(|error| failed(partition, next, error))?;
        let at_end = pairs.len() < chunk;
        for (key, stored) in pairs {
            let offset = offset_of(&key).unwrap_or(next);
            range = range.after(&key);
            let recorded = decode_record(partition, offset, stored)
                .map_err(|reason| ReadError::Corrupt { partition, offset, reason })?;
            bytes += recorded.record.bytes();
            read.push(recorded);
        }
        if at_end {
            break;
        }
        let average = (bytes / read.len().max(1)).max(1);
        let rest = BATCH_BYTES_MAX.saturating_sub(bytes) / average;
        chunk = rest.clamp(1, BATCH_RECORDS_MAX - read.len().min(BATCH_RECORDS_MAX - 1));
    }
    Ok(read)
}

fn failed(partition: Partition, offset: Offset, error: EngineError) -> ReadError {
    let reason = error.to_string();
    match error {
        EngineError::Corrupt { .. } => ReadError::Corrupt { partition, offset, reason },
        _ => ReadError::Unavailable { reason },
    }
}
