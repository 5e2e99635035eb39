//! Compaction by Kafka's rules: drops superseded records, and tombstones after their retention.
//!
//! Compaction examines records in the order of their offsets, once they have left the replay
//! window. Per key it remembers the last examined record and drops the one before. So a record is
//! dropped only for a later one that is past the window too, and each record costs one look-up.

use std::collections::HashMap;

use bytes::Bytes;
use headwater_event::{Offset, Partition};
use headwater_store::{Durability, Engine, EngineError, WriteBatch};

use crate::compaction_run::CompactionRun;
use crate::layout::{
    cleaned_key, decode_offset, decode_record, encode_offset, latest_key, offset_of, record_key,
    records, tombstone_key, tombstones_until,
};
use crate::log_state::LogState;

/// How many records one write of compaction covers, which bounds its memory.
const CHUNK_RECORDS: usize = 64;

/// Runs once over `records_max` records at most, give or take a chunk.
pub(crate) fn compact(
    engine: &dyn Engine,
    state: &LogState,
    now_ms: i64,
    records_max: usize,
) -> Result<CompactionRun, EngineError> {
    let mut done = CompactionRun::default();
    for partition in (0..state.settings.partitions).map(Partition) {
        loop {
            let examined = examine_chunk(engine, state, partition, now_ms, &mut done)?;
            let expired = drop_tombstones(engine, state, partition, now_ms, &mut done)?;
            if done.examined >= records_max {
                done.more_due = true;
                return Ok(done);
            }
            if examined < CHUNK_RECORDS && expired < CHUNK_RECORDS {
                break;
            }
        }
    }
    Ok(done)
}

/// Examines the next records that have left the replay window. Returns their number.
fn examine_chunk(
    engine: &dyn Engine,
    state: &LogState,
    partition: Partition,
    now_ms: i64,
    done: &mut CompactionRun,
) -> Result<usize, EngineError> {
    let topic = state.log_topic();
    let cleaned_at = cleaned_key(topic, partition);
    let from = match engine.get(&cleaned_at)? {
        Some(value) => decode_offset(&value).ok_or_else(|| damaged("compaction's offset"))?,
        None => Offset(0),
    };
    let Ok(high) = state.high(partition) else { return Ok(0) };
    let mut batch = WriteBatch::default();
    let mut latest: HashMap<Bytes, Offset> = HashMap::new();
    let mut cleaned = from;
    let mut examined = 0;
    for (key, stored) in engine.scan(&records(topic, partition, from, high), CHUNK_RECORDS)? {
        let offset = offset_of(&key).ok_or_else(|| damaged("a record's key"))?;
        let recorded = decode_record(partition, offset, stored)
            .map_err(|reason| EngineError::Corrupt { reason })?;
        if recorded.time_ms.saturating_add_unsigned(state.settings.replay_window_ms) > now_ms {
            break;
        }
        examined += 1;
        cleaned = offset.next();
        let latest_at = latest_key(topic, partition, &recorded.record.key);
        let before = match latest.get(&recorded.record.key) {
            Some(offset) => Some(*offset),
            None => engine.get(&latest_at)?.and_then(|value| decode_offset(&value)),
        };
        if let Some(before) = before {
            batch.delete(record_key(topic, partition, before));
            done.dropped += 1;
        }
        batch.put(latest_at, encode_offset(offset));
        if recorded.record.value.is_none() {
            let retention_ms = state.settings.delete_retention_ms;
            let horizon_ms = now_ms.saturating_add_unsigned(retention_ms);
            batch.put(tombstone_key(topic, partition, horizon_ms, offset), Bytes::new());
        }
        latest.insert(recorded.record.key, offset);
    }
    if examined > 0 {
        batch.put(cleaned_at, encode_offset(cleaned));
        // Unsynced: a crash loses whole batches from the end, and the next run repeats them.
        engine.write(batch, Durability::Buffered)?;
        state.forget(partition, cleaned);
    }
    done.examined += examined;
    Ok(examined)
}

/// Drops tombstones past their retention that nothing superseded. Returns the number examined.
fn drop_tombstones(
    engine: &dyn Engine,
    state: &LogState,
    partition: Partition,
    now_ms: i64,
    done: &mut CompactionRun,
) -> Result<usize, EngineError> {
    let topic = state.log_topic();
    let expired = engine.scan(&tombstones_until(topic, partition, now_ms), CHUNK_RECORDS)?;
    let examined = expired.len();
    let mut batch = WriteBatch::default();
    for (key, _) in expired {
        let offset = offset_of(&key).ok_or_else(|| damaged("a tombstone's key"))?;
        let record_at = record_key(topic, partition, offset);
        // A superseded tombstone was dropped before.
        if let Some(stored) = engine.get(&record_at)? {
            let recorded = decode_record(partition, offset, stored)
                .map_err(|reason| EngineError::Corrupt { reason })?;
            batch.delete(latest_key(topic, partition, &recorded.record.key));
            batch.delete(record_at);
            done.dropped += 1;
        }
        batch.delete(key);
    }
    if examined > 0 {
        engine.write(batch, Durability::Buffered)?;
    }
    done.examined += examined;
    Ok(examined)
}

fn damaged(what: &str) -> EngineError {
    EngineError::Corrupt { reason: format!("{what} in the embedded log") }
}
