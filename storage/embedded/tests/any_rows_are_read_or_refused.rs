//! A database with arbitrary rows: the log on it opens or names the damage; an open log reads, appends
//! and compacts, or gives the reason why not. Nothing panics, and nothing is endless.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_event::Partition;
use headwater_log::{Append, Log, Record};
use headwater_store::{Durability, Engine, MemoryEngine, TableId, WriteBatch};
use proptest::collection::vec;
use proptest::prelude::*;

/// Far longer than any of this takes.
const WITHIN: Duration = Duration::from_secs(20);

/// Batches read of one log: it holds a few records.
const BATCHES_MAX: usize = 64;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0_u64..6,
        1 => Just(u64::MAX),
        1 => Just(i64::MAX as u64),
        1 => Just(i64::MAX as u64 + 1),
        1 => any::<u64>(),
    ]
}

/// A stored record as the log writes it, with other lengths and flags in it.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let lengths = vec(prop_oneof![4 => 0_u32..4, 1 => any::<u32>()], 3);
    let flags = prop_oneof![4 => 0_u8..4, 1 => any::<u8>()];
    (
        prop_oneof![9 => Just(1_u8), 1 => any::<u8>()],
        any::<i64>(),
        flags,
        lengths,
        vec(any::<u8>(), 0..16),
    )
        .prop_map(|(form, time_ms, flags, lengths, rest)| {
            let mut stored = vec![form];
            stored.extend(time_ms.to_be_bytes());
            stored.push(flags);
            lengths.iter().for_each(|length| stored.extend(length.to_be_bytes()));
            stored.extend(rest);
            stored
        })
}

/// A row: mostly where the log keeps one, mostly of the right form.
fn row() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let at = |table: TableId, partition: u32, rest: &[u8]| {
        let mut key = vec![table.prefix(), LogTopic::Upstream as u8];
        key.extend(partition.to_be_bytes());
        key.extend(rest);
        key
    };
    let topic = "[0-9]{1,10}".prop_map(|partitions| {
        let row = r#"{"topic":"00000000-0000-0000-0000-000000000001","partitions":N}"#;
        (vec![TableId::LogPartitions.prefix(), 2], row.replace('N', &partitions).into_bytes())
    });
    let end = (0_u32..3, number(), any::<i64>()).prop_map(move |(partition, next, time_ms)| {
        let value = [next.to_be_bytes(), time_ms.to_be_bytes()].concat();
        (at(TableId::LogPartitions, partition, &[0]), value)
    });
    let cleaned = (0_u32..3, number()).prop_map(move |(partition, next)| {
        (at(TableId::LogPartitions, partition, &[1]), next.to_be_bytes().to_vec())
    });
    let stored = (0_u32..3, number(), record()).prop_map(move |(partition, offset, record)| {
        (at(TableId::LogRecords, partition, &offset.to_be_bytes()), record)
    });
    let key = (0_u32..3, vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..9))
        .prop_map(move |(partition, rest, value)| (at(TableId::LogKeys, partition, &rest), value));
    let any = (0..3_usize, vec(any::<u8>(), 0..16), vec(any::<u8>(), 0..24)).prop_map(
        |(table, rest, value)| {
            let table = [TableId::LogPartitions, TableId::LogRecords, TableId::LogKeys][table];
            ([&[table.prefix()], rest.as_slice()].concat(), value)
        },
    );
    prop_oneof![1 => topic, 4 => end, 2 => cleaned, 8 => stored, 2 => key, 1 => any]
}

/// Opens it, reads it to its end, appends, compacts, and reads what was appended.
async fn used(engine: Arc<dyn Engine>) {
    let settings = EmbeddedSettings { partitions: 2, ..EmbeddedSettings::new(LogTopic::Upstream) };
    let now_ms = 1_000 * 24 * 60 * 60 * 1_000;
    let log = match EmbeddedLog::open(engine, settings, Arc::new(move || now_ms)) {
        Ok(log) => log,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let partitions = log.describe().await.expect("it is there").partitions;
    for partition in (0..partitions.min(3)).map(Partition) {
        let record = Record {
            key: Bytes::from_static(b"k"),
            value: None,
            header: Bytes::new(),
            traceparent: None,
        };
        let appended = log.append(vec![Append { partition, record }]).await;
        let cursor = log.start(partition).await.expect("it has a start");
        let mut reader = log.read(vec![cursor]).await.expect("it has a start");
        let bounds = log.bounds(partition).await.expect("it has bounds");
        for turn in 0.. {
            assert!(turn < BATCHES_MAX, "partition {partition} does not end at {}", bounds.high);
            let Ok(batch) = reader.next().await else { break };
            if batch.cursor.next >= bounds.high {
                break;
            }
        }
        if let Ok(appended) = appended {
            assert_eq!(appended[0].offset.next(), bounds.high, "what was appended is the end");
        }
        let _ = log.compact(100).await;
    }
    log.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_rows_are_read_or_refused(rows in vec(row(), 0..12)) {
        let engine = Arc::new(MemoryEngine::new());
        let mut batch = WriteBatch::default();
        rows.into_iter().for_each(|(key, value)| batch.put(key, value));
        engine.write(batch, Durability::Synced).expect("memory takes it");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            for _ in 0..2 {
                let used = tokio::time::timeout(WITHIN, used(engine.clone())).await;
                used.expect("it ends");
            }
        });
    }
}
