//! One writer after the other: who stops in order is followed at once, who dies after a silence.

use headwater_event::RecordKey;
use headwater_event::record::Heartbeat;
use headwater_log::{Ends, starts};

use super::*;

impl World {
    /// Two controllers of one log: the first writes, the other came later and stands by.
    async fn pair(&self) -> (Running, Running) {
        let writing = self.start().await;
        writing.list([pod("p", "c")]).await;
        let standing_by = self.elsewhere().start().await;
        standing_by.tell([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
        standing_by.tell([SourceEvent::InitDone]).await;
        standing_by.stands_by().await;
        (writing, standing_by)
    }

    /// The highest epoch that was claimed.
    async fn newest_epoch(&self) -> WriterEpoch {
        let (_, follower) = self.read().await;
        follower.acceptance().writer().map_or(WriterEpoch::default(), |claim| claim.epoch)
    }

    /// The signs of life in the log, by epoch: whether each says that it is the last.
    async fn signs(&self) -> Vec<(WriterEpoch, bool)> {
        let cursors = starts(&self.downstream).await.expect("readable");
        let mut ends = Ends::ahead_of(&self.downstream, &cursors).await.expect("readable");
        let mut reader = self.downstream.read(cursors).await.expect("readable");
        let mut signs = Vec::new();
        while !ends.are_reached() {
            let batch = reader.next().await.expect("readable");
            for Recorded { record, .. } in &batch.records {
                let Ok(RecordKey::Heartbeat(epoch)) = RecordKey::decode(&record.key) else {
                    continue;
                };
                let value = record.value.as_deref().expect("a value");
                let sign: Heartbeat = serde_json::from_slice(value).expect("JSON");
                signs.push((epoch, sign.released));
            }
            ends.pass(&batch.cursor);
        }
        signs
    }

    /// The epochs whose writers said that they stopped.
    async fn released(&self) -> Vec<WriterEpoch> {
        let signs = self.signs().await.into_iter();
        signs.filter_map(|(epoch, released)| released.then_some(epoch)).collect()
    }
}

impl Running {
    async fn stands_by(&self) {
        let mut progress = self.controller.progress();
        let stands_by = progress.wait_for(|now| now.stands_by);
        timeout(SOON, stands_by).await.expect("soon").expect("it runs");
    }
}

#[tokio::test]
async fn who_starts_beside_a_writer_claims_nothing_however_often() {
    let world = World::new();
    let (writing, mut standing_by) = world.pair().await;
    for _ in 0..3 {
        drop(standing_by);
        standing_by = world.elsewhere().start().await;
        standing_by.stands_by().await;
    }
    writing.set(config("c", 1, "x")).await;
    until_true("it writes on", async || {
        world.said("node/a").await.contains(&"+d/configmap/c".to_owned())
    })
    .await;
    assert_eq!(world.newest_epoch().await, WriterEpoch(1));
    writing.controller.stop().await;
}

#[tokio::test]
async fn who_wrote_last_itself_or_is_alone_claims_at_once() {
    assert!(SOON < WriterTimings::default().silence_max());
    let world = World::new();
    let died = world.start().await;
    died.list([pod("p", "c")]).await;
    drop(died);
    // Killed, and started again over its own database, which remembers the claim.
    let again = world.start().await;
    again.list([pod("p", "c")]).await;
    drop(again);
    let alone = world.usurped().start().await;
    alone.list([pod("p", "c")]).await;
    assert_eq!(world.released().await, [], "nobody said that it stopped");
    assert_eq!(world.newest_epoch().await, WriterEpoch(3));
    alone.controller.stop().await;
}

#[tokio::test]
async fn who_stands_by_takes_over_at_once_when_the_writer_stops_in_order() {
    let world = World::new();
    let (writing, standing_by) = world.pair().await;
    let epoch = writing.controller.progress().borrow().epoch;
    writing.controller.stop().await;
    // Within far less than the silence that it takes otherwise.
    assert!(SOON < world.timings.silence_max());
    standing_by.reconciled(epoch.0).await;
    assert_eq!(world.released().await, [epoch]);
    standing_by.set(config("c", 1, "x")).await;
    until_true("it publishes", async || {
        world.said("node/a").await.contains(&"+d/configmap/c".to_owned())
    })
    .await;
    standing_by.controller.stop().await;
    world.check("node/a", &["d/pod/p", "d/configmap/c"]).await;
}

#[tokio::test]
async fn who_stands_by_takes_over_from_a_writer_that_died_after_its_silence() {
    let timings =
        WriterTimings { heartbeat_interval: Duration::from_millis(200), heartbeats_missed: 3 };
    let world = World { timings, ..World::new() };
    let (writing, standing_by) = world.pair().await;
    let epoch = writing.controller.progress().borrow().epoch;
    until_true("a sign of life", async || world.signs().await.contains(&(epoch, false))).await;
    let died = Instant::now();
    drop(writing);
    standing_by.reconciled(epoch.0).await;
    assert!(died.elapsed() > timings.heartbeat_interval, "it waits for a silence");
    assert_eq!(world.released().await, [], "it said nothing");
    standing_by.controller.stop().await;
}

#[tokio::test]
async fn who_stands_by_stops_without_a_word() {
    let world = World::new();
    let (writing, standing_by) = world.pair().await;
    let epoch = writing.controller.progress().borrow().epoch;
    standing_by.controller.stop().await;
    assert_eq!(world.released().await, []);
    writing.set(config("c", 1, "x")).await;
    until_true("the other writes on", async || {
        world.said("node/a").await.contains(&"+d/configmap/c".to_owned())
    })
    .await;
    assert_eq!(writing.controller.progress().borrow().epoch, epoch);
    writing.controller.stop().await;
}
