//! A follower whose log was away for a while continues with the fold that it has.

use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_store::KeyValue;

use super::*;

/// An engine that counts what is read of it.
#[derive(Debug, Default)]
pub(super) struct ReadCounter {
    engine: MemoryEngine,
    reads: AtomicUsize,
}

impl ReadCounter {
    pub(super) fn count(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    fn counted(&self) -> &MemoryEngine {
        self.reads.fetch_add(1, Ordering::Relaxed);
        &self.engine
    }
}

impl Read for ReadCounter {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.counted().get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.counted().scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.counted().last(range)
    }
}

impl Engine for ReadCounter {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        self.engine.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.counted().snapshot()
    }
}

#[tokio::test]
async fn a_follower_continues_after_a_pause_of_the_log_and_reads_nothing_of_its_fold_again() {
    let log = log().await;
    let (mut owner, s) = (Owner::new(&log).await, stream("node/a"));
    owner.set(&s, 1, Some("{}")).await;
    let engine = Arc::new(ReadCounter { engine: MemoryEngine::new(), ..ReadCounter::default() });
    let mut follower = Follower::open(&log, engine.clone(), (), clock(&log)).await.expect("opened");
    drain(&mut follower, &log).await;
    let before = engine.count();
    log.set_available(false);
    for _ in 0..3 {
        assert!(follower.next().await.expect_err("away").is_unavailable());
        assert!(follower.reconnect(&log).await.expect_err("away").is_unavailable());
    }
    log.set_available(true);
    follower.reconnect(&log).await.expect("back");
    assert_eq!(engine.count(), before, "nothing is verified again");
    assert!(follower.is_folded());
    owner.set(&s, 2, Some("{}")).await;
    drain(&mut follower, &log).await;
    owner.check_replay(&follower).await;
}

#[tokio::test]
async fn a_follower_reconnects_to_no_other_log_and_not_after_too_long() {
    let (log, s) = (log().await, stream("node/a"));
    let mut owner = Owner::new(&log).await;
    owner.set(&s, 1, Some("{}")).await;
    let mut follower = open(&log, &Arc::new(MemoryEngine::new())).await;
    drain(&mut follower, &log).await;
    owner.set(&s, 1, Some(r#"{"n":1}"#)).await;
    owner.set(&s, 1, Some(r#"{"n":2}"#)).await;
    log.advance_clock(WINDOW_MS);
    let late = follower.reconnect(&log).await.expect_err("compaction may have passed it");
    assert!(matches!(late, FollowError::Outdated { .. }) && late.needs_rebuild(), "{late}");
    log.recreate(PARTITIONS);
    let other = follower.reconnect(&log).await.expect_err("another log");
    assert!(other.needs_rebuild() && !other.is_unavailable(), "{other}");
}

#[tokio::test]
async fn a_partition_without_records_for_long_is_no_reason_to_fold_anew() {
    let (log, s) = (log().await, stream("node/a"));
    let mut owner = Owner::new(&log).await;
    owner.set(&s, 1, Some("{}")).await;
    let engine = Arc::new(MemoryEngine::new());
    drain(&mut open(&log, &engine).await, &log).await;
    log.advance_clock(2 * WINDOW_MS);
    log.compact();
    let mut follower = open(&log, &engine).await;
    assert!(follower.is_folded(), "nothing is unread");
    // The partition ended here just now, so the records that follow are all there.
    log.advance_clock(WINDOW_MS / 4);
    owner.set(&s, 2, Some("{}")).await;
    follower.reconnect(&log).await.expect("inside the window");
    drain(&mut follower, &log).await;
    owner.check_replay(&follower).await;
}

#[tokio::test]
async fn a_partition_without_records_for_days_costs_no_new_fold_after_a_pause() {
    for notes in [true, false] {
        let log = log().await;
        let mut owner = Owner::new(&log).await;
        owner.set(&stream("node/a"), 1, Some("{}")).await;
        let engine = Arc::new(MemoryEngine::new());
        let mut follower = open(&log, &engine).await;
        drain(&mut follower, &log).await;
        for _ in 0..3 {
            log.advance_clock(WINDOW_MS);
            if notes {
                follower.note_ends(&log).await.expect("noted");
            }
        }
        // A record comes while the log is away.
        log.set_available(false);
        follower.next().await.expect_err("away");
        follower.note_ends(&log).await.expect("the log may be away");
        log.set_available(true);
        owner.set(&stream("node/a"), 2, Some("{}")).await;
        let reconnected = follower.reconnect(&log).await;
        if !notes {
            assert!(matches!(reconnected, Err(FollowError::Outdated { .. })), "{reconnected:?}");
            continue;
        }
        reconnected.expect("it continues");
        drain(&mut follower, &log).await;
        owner.check_replay(&follower).await;
        drop(follower);
        // The notes are durable, and what is unread is never noted.
        log.advance_clock(WINDOW_MS / 2 + 1);
        let mut reopened = open(&log, &engine).await;
        owner.set(&stream("node/a"), 3, Some("{}")).await;
        log.advance_clock(WINDOW_MS);
        reopened.note_ends(&log).await.expect("noted");
        let reconnected = reopened.reconnect(&log).await;
        assert!(matches!(reconnected, Err(FollowError::Outdated { .. })), "{reconnected:?}");
    }
}
