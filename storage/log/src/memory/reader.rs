//! Reads a log in memory.

use std::sync::Arc;

use async_trait::async_trait;
use headwater_event::Cursor;

use super::{MemoryLog, unavailable};
use crate::log::{Batch, ReadError, Reader};

/// The most records that one batch gives out.
const BATCH_RECORDS_MAX: usize = 512;

/// A batch ends behind the record that fills it up to this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

pub(super) struct MemoryReader {
    log: MemoryLog,
    cursors: Vec<Cursor>,
    /// Which partition is looked at first: each gets its turn.
    turn: usize,
}

impl MemoryReader {
    pub(super) fn new(log: MemoryLog, cursors: Vec<Cursor>) -> Self {
        Self { log, cursors, turn: 0 }
    }

    /// A batch that is there now.
    fn poll(&mut self) -> Result<Option<Batch>, ReadError> {
        let state = self.log.state();
        if !state.available {
            return Err(unavailable());
        }
        for step in 0..self.cursors.len() {
            let index = (self.turn + step) % self.cursors.len();
            let cursor = &mut self.cursors[index];
            state.topic.check(cursor)?;
            let held = state.topic.partition(cursor.partition)?;
            if cursor.next >= held.high {
                continue;
            }
            let mut records = Vec::new();
            let mut bytes = 0;
            for (offset, stored) in held.records.range(cursor.next..) {
                if records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX {
                    break;
                }
                bytes += stored.record.bytes();
                records.push(stored.recorded(cursor.partition, *offset));
            }
            let full = records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX;
            match records.last() {
                Some(last) if full => cursor.next = last.offset.next(),
                _ => cursor.next = held.high,
            }
            cursor.leader_epoch = held.epoch_before(cursor.next);
            self.turn = index + 1;
            return Ok(Some(Batch { records, cursor: *cursor, high: held.high }));
        }
        Ok(None)
    }
}

#[async_trait]
impl Reader for MemoryReader {
    async fn next(&mut self) -> Result<Batch, ReadError> {
        let shared = Arc::clone(&self.log.shared);
        loop {
            self.log.thawed().await;
            let bell = shared.bell.notified();
            if let Some(batch) = self.poll()? {
                return Ok(batch);
            }
            bell.await;
        }
    }
}
