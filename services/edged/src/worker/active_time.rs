//! How long a pod has been active on the node. Pure, but for the look at the clocks.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::boot_time::BootTime;
use crate::pod::PodRecord;

/// The time of a pod's activity: from its start until its worker began, and from then on by a clock that nothing sets. A node
/// without a clock of its own starts in the past, and is set forward by years: the time before counts by the clock of the
/// boot, too, if the pod started in this one, and only otherwise by that of the wall.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveTime {
    before: Duration,
    since: Instant,
}

/// What the clocks of the machine say at one moment.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    /// The clock of the wall, which is set.
    pub(super) wall: Timestamp,
    /// The clock of the boot; `None`: the kernel does not say it.
    pub(super) boot: Option<BootTime>,
    /// The clock of this process.
    pub(super) now: Instant,
}

impl Clocks {
    /// Looks at the clocks.
    pub(super) fn read() -> Self {
        Self { wall: Timestamp::now(), boot: BootTime::now(), now: Instant::now() }
    }
}

impl ActiveTime {
    /// The time of a pod whose worker begins now. A start that is to come is now.
    pub(super) fn begin(record: &PodRecord, clocks: &Clocks) -> Self {
        let in_boot = clocks.boot.as_ref().zip(record.seen_in_boot.as_ref());
        let in_boot = in_boot.and_then(|(now, start)| now.since(start));
        let by_wall =
            || Duration::try_from(clocks.wall.duration_since(record.seen_at)).unwrap_or_default();
        Self { before: in_boot.unwrap_or_else(by_wall), since: clocks.now }
    }

    /// How long the pod has been active.
    pub(super) fn at(&self, now: Instant) -> Duration {
        self.before.saturating_add(now.saturating_duration_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodUid;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn boot(boot_id: &str, seconds: u64) -> Option<BootTime> {
        Some(BootTime { boot_id: boot_id.to_owned(), since_boot_ms: seconds * 1000 })
    }

    fn record(seen_at: Timestamp, seen_in_boot: Option<BootTime>) -> PodRecord {
        PodRecord {
            uid: PodUid::try_from("u1".to_owned()).expect("a UID"),
            key: "shop/pod/web".parse().expect("a key"),
            grace_seconds: 30,
            seen_at,
            seen_in_boot,
            is_static: false,
        }
    }

    const SECONDS: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_pod_is_active_from_its_start_and_a_clock_that_is_set_changes_nothing() {
        let now = Instant::now();
        let earlier = record(second(100), None);
        let active =
            ActiveTime::begin(&earlier, &Clocks { wall: second(130), boot: boot("b", 900), now });
        // No clock that is set is asked any more.
        assert_eq!(active.at(now), SECONDS(30));
        assert_eq!(active.at(now + SECONDS(5)), SECONDS(35));
        // The clock was set back between two runs of the pod worker.
        let active = ActiveTime::begin(&earlier, &Clocks { wall: second(7), boot: None, now });
        assert_eq!(active.at(now + SECONDS(5)), SECONDS(5));
    }

    #[test]
    fn a_clock_that_is_set_between_two_pod_workers_of_one_boot_makes_no_pod_older() {
        const YEARS_50: i64 = 50 * 365 * 24 * 3600;
        let now = Instant::now();
        // The node began in 1970, and was set right while no pod worker ran.
        let pod = record(second(60), boot("b", 60));
        let wall = second(90 + YEARS_50);
        let active = ActiveTime::begin(&pod, &Clocks { wall, boot: boot("b", 90), now });
        assert_eq!(active.at(now + SECONDS(5)), SECONDS(35));
        // Only the clock of the wall goes on from one boot to the next.
        let wall = second(90);
        let active = ActiveTime::begin(&pod, &Clocks { wall, boot: boot("c", 7), now });
        assert_eq!(active.at(now), SECONDS(30));
        let active = ActiveTime::begin(&pod, &Clocks { wall, boot: None, now });
        assert_eq!(active.at(now), SECONDS(30));
    }
}
