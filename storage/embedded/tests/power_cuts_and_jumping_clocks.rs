//! Power cuts at random moments under load, with a wall clock that jumps by years, many a seed:
//! what an append returned, and what a reader saw, is there; no offset is used twice; and the time
//! of appends never decreases.
//!
//! `HEADWATER_SEEDS=N` for more seeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_event::{Offset, Partition};
use headwater_log::{Append, Log, Record, StoredRecord};
use headwater_store::{MemoryEngine, Survival};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Seeds that every run plays.
const SEEDS: u64 = 100;

/// Cuts of a seed.
const CUTS: u32 = 5;

const PARTITIONS: u32 = 2;

/// A year, near enough.
const YEAR_MS: i64 = 365 * 24 * 3_600_000;

fn seeds() -> u64 {
    std::env::var("HEADWATER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

type Place = (Partition, Offset);

/// The acknowledged appends: the key of each place.
type AcknowledgedKeys = BTreeMap<Place, Bytes>;

fn open(engine: &Arc<MemoryEngine>, clock: &Arc<AtomicI64>) -> Arc<EmbeddedLog> {
    let settings =
        EmbeddedSettings { partitions: PARTITIONS, ..EmbeddedSettings::new(LogTopic::Downstream) };
    let clock = Arc::clone(clock);
    let clock = Arc::new(move || clock.load(Ordering::Relaxed));
    Arc::new(EmbeddedLog::open(engine.clone(), settings, clock).expect("opens"))
}

fn append(partition: u32, key: String, bytes: usize) -> Append {
    let record = Record {
        key: key.into(),
        value: Some(vec![b'v'; bytes].into()),
        header: Bytes::new(),
        traceparent: None,
    };
    Append { partition: Partition(partition), record }
}

async fn read_all(log: &EmbeddedLog, partition: Partition) -> Vec<StoredRecord> {
    let start = log.start(partition).await.expect("there");
    let high = log.bounds(partition).await.expect("there").high;
    let mut reader = log.read(vec![start]).await.expect("readable");
    let mut next = start.next;
    let mut seen = Vec::new();
    while next < high {
        let batch = reader.next().await.expect("readable");
        next = batch.cursor.next;
        seen.extend(batch.records);
    }
    seen
}

/// Everything that is there: dense, in the order of its time.
async fn everything(log: &EmbeddedLog) -> AcknowledgedKeys {
    let mut found = AcknowledgedKeys::new();
    for partition in (0..PARTITIONS).map(Partition) {
        let records = read_all(log, partition).await;
        for (offset, recorded) in (0..).zip(&records) {
            assert_eq!(recorded.offset, Offset(offset), "no offset is left out, or used twice");
            found.insert((partition, recorded.offset), recorded.record.key.clone());
        }
        assert!(records.is_sorted_by_key(|recorded| recorded.time_ms), "time never decreases");
    }
    found
}

/// Appends and reads at once, until the power goes.
async fn life(
    engine: &Arc<MemoryEngine>,
    clock: &Arc<AtomicI64>,
    rng: &mut StdRng,
    life: u32,
) -> (MemoryEngine, AcknowledgedKeys) {
    let log = open(engine, clock);
    let known = Arc::new(Mutex::new(AcknowledgedKeys::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..3 {
        let (log, known, clock) = (log.clone(), known.clone(), clock.clone());
        let mut rng = StdRng::seed_from_u64(rng.random());
        tasks.spawn(async move {
            for n in 0.. {
                if rng.random_bool(0.1) {
                    let years = rng.random_range(-10..=10);
                    clock.store(1_000_000 + years * YEAR_MS, Ordering::Relaxed);
                }
                let key = format!("{life} {writer} {n}");
                let bytes = rng.random_range(0..2_000);
                let appends = vec![append(rng.random_range(0..PARTITIONS), key.clone(), bytes)];
                let Ok(appended) = log.append(appends).await else { return };
                let mut known = known.lock().expect("no panic");
                known.insert((appended[0].partition, appended[0].offset), key.into());
            }
        });
    }
    for partition in (0..PARTITIONS).map(Partition) {
        let (log, known) = (log.clone(), known.clone());
        tasks.spawn(async move {
            let start = log.start(partition).await.expect("there");
            let mut reader = log.read(vec![start]).await.expect("readable");
            while let Ok(batch) = reader.next().await {
                let mut known = known.lock().expect("no panic");
                for recorded in batch.records {
                    known.insert((recorded.partition, recorded.offset), recorded.record.key);
                }
            }
        });
    }
    let enough = rng.random_range(0..60);
    while known.lock().expect("no panic").len() < enough {
        tokio::task::yield_now().await;
    }
    let survives = match rng.random_range(0..3) {
        0 => Survival::Synced,
        _ => Survival::Some { seed: rng.random() },
    };
    let left = engine.crash(survives);
    // The next append fails, and then every caller learns it. What was acknowledged until then stays.
    tasks.join_all().await;
    log.close().await;
    let known = std::mem::take(&mut *known.lock().expect("no panic"));
    (left, known)
}

#[tokio::test]
async fn every_confirmed_append_is_there() {
    let mut acknowledged = 0;
    for seed in 0..seeds() {
        // Shown when it fails.
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let clock = Arc::new(AtomicI64::new(1_000_000));
        let mut engine = Arc::new(MemoryEngine::new());
        let mut known = AcknowledgedKeys::new();
        for n in 0..CUTS {
            let (left, new) = life(&engine, &clock, &mut rng, n).await;
            engine = Arc::new(left);
            for (place, key) in new {
                let before = known.insert(place, key.clone());
                assert!(before.is_none_or(|before| before == key), "{place:?} is another's now");
            }
            let log = open(&engine, &clock);
            let found = everything(&log).await;
            for (place, key) in &known {
                assert_eq!(found.get(place), Some(key), "{place:?} after cut {n}");
            }
            log.close().await;
            drop(log);
            engine = Arc::new(engine.reopen());
        }
        acknowledged += known.len();
    }
    println!("{acknowledged} appends were acknowledged");
    assert!(acknowledged > 1_000, "{acknowledged}");
}
