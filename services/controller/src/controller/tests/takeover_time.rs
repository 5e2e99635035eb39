//! How long nothing is written after a writer has frozen, by the timings that hold by default.

use tokio::time::Instant as RuntimeInstant;

use super::*;

/// Twelve seconds are promised.
const SILENCE: Duration = Duration::from_secs(12);

/// What a claim costs beside the silence: the log is in memory.
const MARGIN: Duration = Duration::from_secs(1);

/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a writer and a standby over the store of `standby`. Returns the time from the last heartbeat of the writer, which
/// freezes behind it, to the claim of the standby.
async fn from_heartbeat_to_claim(world: &World, standby: &World) -> Duration {
    let writing = world.start().await;
    writing.list([pod("p", "c")]).await;
    let epoch = writing.controller.progress().borrow().epoch;
    let standby = standby.start().await;
    standby.send([SourceEvent::Init, SourceEvent::InitApply(pod("p", "c"))]).await;
    standby.send([SourceEvent::InitDone]).await;
    standby.stands_by().await;
    let beats = async || world.signs().await.iter().filter(|(of, _)| *of == epoch).count();
    let before = beats().await;
    while beats().await == before {
        tokio::time::sleep(LOOK).await;
    }
    // The heartbeat came within the last look.
    let last = RuntimeInstant::now();
    writing.log.set_frozen(true);
    while world.newest_epoch().await == epoch {
        assert!(last.elapsed() < 3 * SILENCE, "the standby does not take over");
        tokio::time::sleep(LOOK).await;
    }
    let silence = last.elapsed();
    standby.reconciled(epoch.0).await;
    assert_eq!(beats().await, before + 1, "nothing of the frozen writer");
    drop(writing);
    standby.controller.stop().await;
    silence
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_from_a_frozen_writer_within_twelve_seconds_of_its_last_heartbeat() {
    let timings = WriterTimings::default();
    assert_eq!(timings.silence_max(), SILENCE);
    let world = World { timings, ..World::new() };
    let (with_disk, without) = (world.elsewhere(), world.elsewhere());
    let used = with_disk.start().await;
    used.list([pod("p", "c")]).await;
    used.controller.stop().await;
    for (what, standby) in [("on a used store", with_disk), ("on an empty store", without)] {
        let silence = from_heartbeat_to_claim(&world, &standby).await;
        assert!(silence <= SILENCE + MARGIN, "{what}: {silence:?}");
        // Not earlier than a writer may count itself alone.
        assert!(silence > timings.writes_for(), "{what}: {silence:?}");
    }
}
