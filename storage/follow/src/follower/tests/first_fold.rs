//! A first fold reads almost nothing: what it has not written is not there.

use super::reconnect::ReadCounter;
use super::*;

#[tokio::test]
async fn a_first_fold_does_not_read_the_keys_that_it_writes_first() {
    const KEYS: u8 = 200;
    let log = log().await;
    let (mut owner, s) = (Owner::new(&log).await, stream("node/a"));
    for n in 0..KEYS {
        owner.set(&s, n, Some("{}")).await;
    }
    let engine = Arc::new(ReadCounter::default());
    let mut follower = Follower::open(&log, engine.clone(), (), clock(&log)).await.expect("opened");
    let before = engine.count();
    drain(&mut follower, &log).await;
    assert!(follower.is_folded());
    let reads = engine.count() - before;
    assert!(reads < usize::from(KEYS) / 4, "{reads} reads for {KEYS} keys");
    owner.check_replay(&follower).await;

    // From now on the engine answers, and changes of what the first fold wrote are right.
    owner.set(&s, 1, Some(r#"{"a":1}"#)).await;
    owner.set(&s, 2, None).await;
    drain(&mut follower, &log).await;
    owner.check_replay(&follower).await;
}
