//! What an append returned survives power loss; failures are distinguished; syncs are shared.

use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use headwater_embedded::{EmbeddedLog, EmbeddedSettings, LogTopic};
use headwater_event::Partition;
use headwater_log::{Append, AppendError, Log, ReadError, Record, StoredRecord};
use headwater_store::{
    Durability, Engine, EngineError, Failure, KeyValue, MemoryEngine, Range, Read, Survival,
    TableId, WriteBatch,
};

const PARTITION: Partition = Partition(0);

fn open(engine: &Arc<MemoryEngine>, topic: LogTopic) -> EmbeddedLog {
    let settings = EmbeddedSettings { partitions: 1, ..EmbeddedSettings::new(topic) };
    EmbeddedLog::open(engine.clone(), settings, Arc::new(|| 1000)).expect("opens")
}

fn append(key: &str, bytes: usize) -> Append {
    let record = Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(vec![b'v'; bytes].into()),
        header: Bytes::new(),
        traceparent: None,
    };
    Append { partition: PARTITION, record }
}

async fn read_all(log: &EmbeddedLog) -> Result<Vec<StoredRecord>, ReadError> {
    let start = log.start(PARTITION).await?;
    let high = log.bounds(PARTITION).await?.high;
    let mut reader = log.read(vec![start]).await?;
    let mut next = start.next;
    let mut seen = Vec::new();
    while next < high {
        let batch = reader.next().await?;
        next = batch.cursor.next;
        seen.extend(batch.records);
    }
    Ok(seen)
}

fn keys(records: &[StoredRecord]) -> Vec<String> {
    let key = |it: &StoredRecord| String::from_utf8_lossy(&it.record.key).into_owned();
    records.iter().map(key).collect()
}

#[tokio::test]
async fn power_loss_takes_nothing_that_was_acknowledged() {
    let mut engine = Arc::new(MemoryEngine::new());
    let mut wanted = Vec::new();
    for life in 0..5 {
        let log = open(&engine, LogTopic::Downstream);
        for n in 0..7 {
            log.append(vec![append(&format!("{life} {n}"), 10)]).await.expect("taken");
            wanted.push(format!("{life} {n}"));
        }
        // No farewell: the power goes.
        engine = Arc::new(engine.crash(Survival::Synced));
    }
    let read = read_all(&open(&engine, LogTopic::Downstream)).await.expect("readable");
    assert_eq!(keys(&read), wanted);
}

#[tokio::test]
async fn a_failed_write_ends_the_handle_and_leaves_what_was_there() {
    for took_effect in [false, true] {
        let engine = Arc::new(MemoryEngine::new());
        let log = open(&engine, LogTopic::Downstream);
        log.append(vec![append("before", 1)]).await.expect("taken");
        engine.fail_write(1, Failure { disk_full: true, took_effect });
        for _ in 0..2 {
            let result = log.append(vec![append("failed", 1)]).await;
            assert!(matches!(result, Err(AppendError::Fatal { .. })), "{result:?}");
        }
        assert_eq!(keys(&read_all(&log).await.expect("still readable")), ["before"]);
        let start = log.start(PARTITION).await.expect("still there");
        let mut reader = log.read(vec![start]).await.expect("still readable");
        reader.next().await.expect("what was there");
        assert!(matches!(reader.next().await, Err(ReadError::Unavailable { .. })), "no waiting");
        log.close().await;
        let engine = Arc::new(engine.reopen());
        let log = open(&engine, LogTopic::Downstream);
        log.append(vec![append("after", 1)]).await.expect("taken");
        let failed: &[&str] = if took_effect { &["failed"] } else { &[] };
        let wanted = [&["before"], failed, &["after"]].concat();
        assert_eq!(keys(&read_all(&log).await.expect("readable")), wanted);
    }
}

/// An engine whose writes wait until the gate is open.
#[derive(Debug, Default)]
struct GatedEngine {
    engine: MemoryEngine,
    open: Mutex<bool>,
    opened: Condvar,
}

impl GatedEngine {
    fn set_open(&self, open: bool) {
        *self.open.lock().expect("no panic") = open;
        self.opened.notify_all();
    }
}

impl Read for GatedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.engine.get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.engine.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.engine.last(range)
    }
}

impl Engine for GatedEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        let open = self.open.lock().expect("no panic");
        drop(self.opened.wait_while(open, |open| !*open).expect("no panic"));
        self.engine.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }
}

#[tokio::test]
async fn appends_that_wait_together_share_a_sync() {
    let engine = Arc::new(GatedEngine::default());
    engine.set_open(true);
    let settings = EmbeddedSettings { partitions: 1, ..EmbeddedSettings::new(LogTopic::Upstream) };
    let log = EmbeddedLog::open(engine.clone(), settings, Arc::new(|| 1000)).expect("opens");
    let before = engine.engine.counts().syncs;
    engine.set_open(false);
    // Few enough that the runtime lets all of them queue in one go.
    let calls = (0..40).map(|n| log.append(vec![append(&n.to_string(), 100)]));
    let all_are_queued = async { engine.set_open(true) };
    let (results, ()) = tokio::join!(futures::future::join_all(calls), all_are_queued);
    assert!(results.iter().all(Result::is_ok));
    let syncs = engine.engine.counts().syncs - before;
    assert!(syncs <= 2, "the first alone, then all that waited: {syncs} syncs");
    assert_eq!(read_all(&log).await.expect("readable").len(), 40);
}

#[tokio::test]
async fn two_logs_share_an_engine_and_nothing_else() {
    let engine = Arc::new(MemoryEngine::new());
    let (down, up) = (open(&engine, LogTopic::Downstream), open(&engine, LogTopic::Upstream));
    down.append(vec![append("down", 1)]).await.expect("taken");
    up.append(vec![append("up", 1), append("up 2", 1)]).await.expect("taken");
    assert_eq!(keys(&read_all(&down).await.expect("readable")), ["down"]);
    assert_eq!(keys(&read_all(&up).await.expect("readable")), ["up", "up 2"]);
    let cursor = down.start(PARTITION).await.expect("there");
    assert!(matches!(up.read(vec![cursor]).await, Err(ReadError::Recreated { .. })));
}

#[tokio::test]
async fn a_log_larger_than_its_tail_in_memory_is_read_whole() {
    let engine = Arc::new(MemoryEngine::new());
    let log = open(&engine, LogTopic::Downstream);
    for n in 0..40 {
        log.append(vec![append(&n.to_string(), 500_000)]).await.expect("taken");
    }
    let read = read_all(&log).await.expect("readable");
    assert_eq!(keys(&read), (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_damaged_record_is_named_with_its_place() {
    let engine = Arc::new(MemoryEngine::new());
    let log = open(&engine, LogTopic::Downstream);
    log.append(vec![append("a", 1), append("b", 1)]).await.expect("taken");
    log.close().await;
    let engine = Arc::new(engine.reopen());
    let mut key = vec![TableId::LogRecords.prefix(), LogTopic::Downstream as u8, 0, 0, 0, 0];
    key.extend_from_slice(&1u64.to_be_bytes());
    let mut batch = WriteBatch::default();
    batch.put(key, &b"\x09not a record at all, whatever it is"[..]);
    engine.write(batch, Durability::Synced).expect("writes");
    let log = open(&engine, LogTopic::Downstream);
    match read_all(&log).await {
        Err(ReadError::Corrupt { offset, .. }) => assert_eq!(offset.0, 1),
        other => panic!("the damage goes unseen: {other:?}"),
    }
}
