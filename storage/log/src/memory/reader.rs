//! Reads a log in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use headwater_event::Cursor;

use super::{MemoryLog, unavailable};
use crate::log::{Batch, ReadError, Reader};

/// The most records of one batch.
const BATCH_RECORDS_MAX: usize = 512;

/// A batch ends after the record that brings it to this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

pub(super) struct MemoryReader {
    log: MemoryLog,
    cursors: Vec<Cursor>,
    /// The index of the cursor that the next poll tries first: the partitions take turns.
    turn: usize,
}

impl MemoryReader {
    pub(super) fn new(log: MemoryLog, cursors: Vec<Cursor>) -> Self {
        Self { log, cursors, turn: 0 }
    }

    /// Returns the next batch, if there is one now.
    fn poll(&mut self) -> Result<Option<Batch>, ReadError> {
        let state = self.log.state();
        if !state.available {
            return Err(unavailable());
        }
        for step in 0..self.cursors.len() {
            let index = (self.turn + step) % self.cursors.len();
            let cursor = &mut self.cursors[index];
            state.topic.check(cursor)?;
            let content = state.topic.partition(cursor.partition)?;
            if cursor.next >= content.high || state.check_leader(cursor.partition).is_err() {
                continue;
            }
            let mut records = Vec::new();
            let mut bytes = 0;
            for (offset, stored) in content.records.range(cursor.next..) {
                if records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX {
                    break;
                }
                bytes += stored.record.bytes();
                records.push(stored.recorded(cursor.partition, *offset));
            }
            let full = records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX;
            match records.last() {
                Some(last) if full => cursor.next = last.offset.next(),
                _ => cursor.next = content.high,
            }
            cursor.leader_epoch = content.epoch_before(cursor.next);
            self.turn = index + 1;
            self.log.records_read.fetch_add(records.len() as u64, Ordering::Relaxed);
            return Ok(Some(Batch { records, cursor: *cursor, high: content.high }));
        }
        Ok(None)
    }
}

#[async_trait]
impl Reader for MemoryReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        let shared = Arc::clone(&self.log.shared);
        loop {
            self.log.wait_until_thawed().await;
            let changed = shared.changed.notified();
            if let Some(batch) = self.poll()? {
                return Ok(batch);
            }
            changed.await;
        }
    }
}
