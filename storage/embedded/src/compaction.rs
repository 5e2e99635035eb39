//! Drops what is superseded, and tombstones whose time is over, by Kafka's rules.
//!
//! Records are met in the order of their offsets once they have left the replay window; per key
//! the last one met is remembered, and the one before it dropped. So a record goes only for a
//! later one that is past the window itself, and each record costs one look-up, once.

use std::collections::HashMap;

use bytes::Bytes;
use headwater_event::{Offset, Partition};
use headwater_store::{Durability, Engine, EngineError, WriteBatch};

use crate::layout::{
    cleaned_key, decode_offset, decode_record, encode_offset, latest_key, offset_of, record_key,
    records, tombstone_key, tombstones_until,
};
use crate::shared::Shared;

/// How many records one write of compaction covers: bounds its memory to that many records.
const CHUNK_RECORDS: usize = 64;

/// What a run of compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionRun {
    /// How many records and tombstones it looked at.
    pub examined: usize,
    /// How many records it dropped.
    pub dropped: usize,
    /// Whether it ended because of its bound: there is more to do now.
    pub more_due: bool,
}

/// One run: looks at `records_max` records at most, a chunk more or less.
pub(crate) fn compact(
    engine: &dyn Engine,
    shared: &Shared,
    now_ms: i64,
    records_max: usize,
) -> Result<CompactionRun, EngineError> {
    let mut done = CompactionRun::default();
    for partition in (0..shared.settings.partitions).map(Partition) {
        loop {
            let met = meet_chunk(engine, shared, partition, now_ms, &mut done)?;
            let over = drop_tombstones(engine, shared, partition, now_ms, &mut done)?;
            if done.examined >= records_max {
                done.more_due = true;
                return Ok(done);
            }
            if met < CHUNK_RECORDS && over < CHUNK_RECORDS {
                break;
            }
        }
    }
    Ok(done)
}

/// Meets the next records that have left the replay window. Gives their number.
fn meet_chunk(
    engine: &dyn Engine,
    shared: &Shared,
    partition: Partition,
    now_ms: i64,
    done: &mut CompactionRun,
) -> Result<usize, EngineError> {
    let topic = shared.log_topic();
    let cleaned_at = cleaned_key(topic, partition);
    let from = match engine.get(&cleaned_at)? {
        Some(value) => decode_offset(&value).ok_or_else(|| damaged("compaction's offset"))?,
        None => Offset(0),
    };
    let Ok(high) = shared.high(partition) else { return Ok(0) };
    let mut batch = WriteBatch::default();
    let mut latest: HashMap<Bytes, Offset> = HashMap::new();
    let mut cleaned = from;
    let mut met = 0;
    for (key, stored) in engine.scan(&records(topic, partition, from, high), CHUNK_RECORDS)? {
        let offset = offset_of(&key).ok_or_else(|| damaged("a record's key"))?;
        let recorded = decode_record(partition, offset, stored)
            .map_err(|reason| EngineError::Corrupt { reason })?;
        if recorded.time_ms.saturating_add_unsigned(shared.settings.replay_window_ms) > now_ms {
            break;
        }
        met += 1;
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
            let retention_ms = shared.settings.delete_retention_ms;
            let horizon_ms = now_ms.saturating_add_unsigned(retention_ms);
            batch.put(tombstone_key(topic, partition, horizon_ms, offset), Bytes::new());
        }
        latest.insert(recorded.record.key, offset);
    }
    if met > 0 {
        batch.put(cleaned_at, encode_offset(cleaned));
        // Done again after a crash: what is lost unsynced is lost from the end, as a whole.
        engine.write(batch, Durability::Buffered)?;
        shared.forget(partition, cleaned);
    }
    done.examined += met;
    Ok(met)
}

/// Drops tombstones whose time is over and that nothing has superseded. Gives the number met.
fn drop_tombstones(
    engine: &dyn Engine,
    shared: &Shared,
    partition: Partition,
    now_ms: i64,
    done: &mut CompactionRun,
) -> Result<usize, EngineError> {
    let topic = shared.log_topic();
    let over = engine.scan(&tombstones_until(topic, partition, now_ms), CHUNK_RECORDS)?;
    let met = over.len();
    let mut batch = WriteBatch::default();
    for (key, _) in over {
        let offset = offset_of(&key).ok_or_else(|| damaged("a tombstone's key"))?;
        let record_at = record_key(topic, partition, offset);
        // A tombstone that a later record has superseded is gone already.
        if let Some(stored) = engine.get(&record_at)? {
            let recorded = decode_record(partition, offset, stored)
                .map_err(|reason| EngineError::Corrupt { reason })?;
            batch.delete(latest_key(topic, partition, &recorded.record.key));
            batch.delete(record_at);
            done.dropped += 1;
        }
        batch.delete(key);
    }
    if met > 0 {
        engine.write(batch, Durability::Buffered)?;
    }
    done.examined += met;
    Ok(met)
}

fn damaged(what: &str) -> EngineError {
    EngineError::Corrupt { reason: format!("{what} in the embedded log") }
}
