//! A follower whose rows were damaged: it goes on, folds anew, or says why not; and what it says
//! is folded is what the log says.

use std::time::Duration;

use headwater_store::damage::{apply_damage, damage};

use super::*;

/// Far longer than any of this takes.
const WITHIN: Duration = Duration::from_secs(20);

/// Batches that a few events and their claim come in.
const BATCHES_MAX: usize = 200;

proptest! {
    #[test]
    fn a_damaged_fold_is_gone_on_with_or_folded_anew(
        before in 1..12_u8, after in 0..4_u8, damages in damage(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let log = log().await;
            let mut owner = Owner::new(&log).await;
            for n in 0..before {
                owner.set(&stream(["cluster", "node/a"][usize::from(n % 2)]), n % 5, Some("{}")).await;
            }
            let engine = Arc::new(MemoryEngine::new());
            let mut follower = open(&log, &engine).await;
            drain(&mut follower, &log).await;
            drop(follower);
            apply_damage(&*engine, &damages).expect("memory takes it");
            for n in 0..after {
                owner.set(&stream("node/a"), n, (n % 2 == 0).then_some("[]")).await;
            }
            let followed = async {
                let Ok(mut follower) = try_open(&log, &engine).await else { return };
                for turn in 0.. {
                    assert!(turn < BATCHES_MAX, "it does not come to the end");
                    let mut behind = false;
                    for cursor in follower.acceptance().cursors() {
                        let bounds = log.bounds(cursor.partition).await;
                        behind |= bounds.is_ok_and(|bounds| cursor.next < bounds.high);
                    }
                    if !behind {
                        return;
                    }
                    match follower.next().await {
                        Ok(_) => {}
                        Err(error) if error.needs_rebuild() => {
                            let rebuilt = Follower::rebuild(&log, engine.clone(), (), clock(&log));
                            follower = rebuilt.await.expect("the log is whole");
                        }
                        Err(_) => return,
                    }
                }
            };
            timeout(WITHIN, followed).await.expect("it ends");
        });
    }
}

#[tokio::test]
async fn a_fold_that_lost_an_object_needs_a_new_fold() {
    let (log, s) = (log().await, stream("node/a"));
    let mut owner = Owner::new(&log).await;
    for n in 1..=3 {
        owner.set(&s, n, Some("one")).await;
    }
    let engine = Arc::new(MemoryEngine::new());
    drain(&mut open(&log, &engine).await, &log).await;
    let entries = Range::prefix(vec![TableId::Entries.prefix()]);
    let (lost, _) = engine.scan(&entries, 1).expect("reads").pop().expect("an entry");
    let mut batch = WriteBatch::default();
    batch.delete(lost);
    engine.write(batch, Durability::Buffered).expect("writes");
    let mut follower = open(&log, &engine).await;
    assert!(!follower.is_verified());
    let error = follower.verify().expect_err("an object is missing");
    assert!(matches!(error, FollowError::LostObjects { .. }) && error.needs_rebuild(), "{error}");
    let rebuilt = Follower::rebuild(&log, engine.clone(), (), clock(&log)).await;
    let mut follower = rebuilt.expect("the log is whole");
    drain(&mut follower, &log).await;
    follower.verify().expect("the fold is new");
    owner.check_replay(&follower).await;
}

#[tokio::test]
async fn an_object_that_is_lost_is_found_in_whichever_of_many_streams_it_was() {
    let log = log().await;
    let mut owner = Owner::new(&log).await;
    // Enough for several threads.
    let streams: Vec<StreamId> = (0..300).map(|n| stream(&format!("node/n{n}"))).collect();
    for s in &streams {
        owner.set(s, 1, Some("one")).await;
    }
    let engine = Arc::new(MemoryEngine::new());
    drain(&mut open(&log, &engine).await, &log).await;
    let mut follower = open(&log, &engine).await;
    follower.verify().expect("nothing is lost");
    assert!(follower.is_verified());
    drop(follower);
    let entries = Range::prefix(vec![TableId::Entries.prefix()]);
    for (lost, value) in engine.scan(&entries, streams.len()).expect("reads").iter().step_by(97) {
        let mut batch = WriteBatch::default();
        batch.delete(lost.clone());
        engine.write(batch, Durability::Buffered).expect("writes");
        let error = open(&log, &engine).await.verify().expect_err("an object is missing");
        assert!(matches!(error, FollowError::LostObjects { .. }), "{error}");
        let mut batch = WriteBatch::default();
        batch.put(lost.clone(), value.clone());
        engine.write(batch, Durability::Buffered).expect("writes");
    }
    open(&log, &engine).await.verify().expect("they are back");
}
