//! Whether a pod has to be evicted. Pure: decided from measurements, thresholds and the time.
//!
//! ```text
//!   none --below a threshold--> met --(soft: for its grace)--> short --> a pod is evicted
//!    ^                                                           ^              |
//!    |                                                           |              v
//!    +--above it, and what is to be reclaimed beyond it----------+--measured <- ended
//! ```
//!
//! One shortage never evicts twice what is needed: after an eviction nothing is decided until the pod has ended and
//! has been removed, and a measurement began after that. The same holds after the evictions of pods for limits of their
//! own: the room that they leave may be enough. A pod that does not end is waited for as long as by a kubelet, beyond the
//! time that it has to end.

use std::time::Duration;

use tokio::time::Instant;

use crate::node::signal::{Measurement, Resource, Signal, Threshold};
use crate::pod::PodUid;

/// A pod that was evicted is gone this long after the time that it has to end: as a kubelet's podCleanupTimeout.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// A resource of which a pod has to leave some to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// The resource.
    pub(crate) signal: Signal,
    /// The remainder that there should be.
    pub(crate) least: u64,
    /// What is left.
    pub(crate) available: u64,
    /// The threshold is a soft one.
    pub(crate) is_soft: bool,
}

/// The thresholds that are met, and the evictions that are under way.
#[derive(Debug)]
pub(crate) struct ShortageTracker {
    thresholds: Vec<Threshold>,
    /// When each threshold was met first; `None`: it is not met.
    met_since: Vec<Option<Instant>>,
    departures: Vec<Departure>,
}

/// A pod that was asked to go.
#[derive(Debug)]
struct Departure {
    pod: PodUid,
    /// When it is waited for no longer.
    until: Instant,
    /// When nothing of it was left.
    ended: Option<Instant>,
}

impl Departure {
    /// Whether it may leave room that a measurement which began at `began` does not show.
    fn is_open(&self, began: Instant, now: Instant) -> bool {
        self.ended.map_or(now < self.until, |ended| began <= ended)
    }
}

impl ShortageTracker {
    pub(crate) fn new(thresholds: Vec<Threshold>) -> Self {
        let met_since = vec![None; thresholds.len()];
        Self { thresholds, met_since, departures: Vec::new() }
    }

    /// Applies a measurement that began at `began`, and returns the shortage for which a pod has to go.
    pub(crate) fn observe(
        &mut self,
        measured: &Measurement,
        began: Instant,
        now: Instant,
    ) -> Option<Shortage> {
        let is_memory = |shortage: &Shortage| shortage.signal.resource() == Resource::Memory;
        let mut found: Option<Shortage> = None;
        for (threshold, since) in self.thresholds.iter().zip(&mut self.met_since) {
            let Some(share) = measured.share(threshold.signal) else {
                *since = None;
                continue;
            };
            let least = threshold.least.of(share.all);
            let more = if since.is_some() { threshold.reclaim.of(share.all) } else { 0 };
            if share.free >= least.saturating_add(more) {
                *since = None;
                continue;
            }
            let met_for = now.saturating_duration_since(*since.get_or_insert(now));
            if threshold.grace.is_some_and(|grace| met_for < grace) {
                continue;
            }
            let is_soft = threshold.grace.is_some();
            let shortage =
                Shortage { signal: threshold.signal, least, available: share.free, is_soft };
            // Memory first: the kernel kills for it soon. Then in the order of the thresholds, the hard ones first.
            if found.as_ref().is_none_or(|found| is_memory(&shortage) && !is_memory(found)) {
                found = Some(shortage);
            }
        }
        self.departures.retain(|it| it.is_open(began, now));
        found.filter(|_| self.departures.is_empty())
    }

    /// A pod is asked to go, and has so long to end.
    pub(crate) fn evict(&mut self, pod: PodUid, within: Duration, now: Instant) {
        let until = now + within + GONE_WITHIN;
        self.departures.push(Departure { pod, until, ended: None });
    }

    /// Whether the next measurement is awaited.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.departures.is_empty()
    }

    /// Notes which pods have gone: those of which nothing is here any more.
    pub(crate) fn note_gone(&mut self, is_here: impl Fn(&PodUid) -> bool, now: Instant) {
        for departure in &mut self.departures {
            if !is_here(&departure.pod) {
                departure.ended.get_or_insert(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{PressureSettings, SoftThresholds};
    use crate::node::signal::{Share, thresholds};

    const SECOND: Duration = Duration::from_secs(1);

    fn uid(number: usize) -> PodUid {
        PodUid::try_from(format!("u{number}")).expect("a UID")
    }

    fn tracker(change: impl FnOnce(&mut PressureSettings)) -> ShortageTracker {
        let mut settings = PressureSettings { memory_available_bytes: 100, ..Default::default() };
        change(&mut settings);
        ShortageTracker::new(thresholds(&settings))
    }

    fn memory(free: u64) -> Measurement {
        Measurement { memory: Some(Share { free, all: 1000 }), ..Measurement::default() }
    }

    #[test]
    fn each_signal_has_its_threshold_and_memory_comes_first() {
        let half = Some(Share { free: 50, all: 100 });
        let enough = Measurement {
            memory: Some(Share { free: 100, all: 1000 }),
            pods_memory: Some(Share { free: 100, all: 200 }),
            disk_bytes: half,
            disk_files: half,
            image_bytes: half,
            image_files: half,
            pids: half,
        };
        let short = |change: &dyn Fn(&mut Measurement)| {
            let (mut measured, now) = (enough, Instant::now());
            change(&mut measured);
            tracker(|_| {}).observe(&measured, now, now).map(|it| (it.signal, it.least))
        };
        assert_eq!(short(&|_| {}), None);
        assert_eq!(short(&|m| *m = Measurement::default()), None, "nothing is known");
        type Change = fn(&mut Measurement, Option<Share>);
        let both: Change = |m, share| (m.disk_bytes, m.pods_memory) = (share, share);
        let others: Change = |m, share| (m.pids, m.image_files) = (share, share);
        let cases: [(Change, u64, Signal, u64); 9] = [
            (|m, share| m.memory = share, 99, Signal::Memory, 100),
            (|m, share| m.pods_memory = share, 99, Signal::PodsMemory, 100),
            (|m, share| m.disk_bytes = share, 9, Signal::DiskBytes, 10),
            (|m, share| m.disk_files = share, 4, Signal::DiskFiles, 5),
            (|m, share| m.image_bytes = share, 14, Signal::ImageBytes, 15),
            (|m, share| m.image_files = share, 4, Signal::ImageFiles, 5),
            (|m, share| m.pids = share, 4, Signal::Pids, 5),
            (both, 1, Signal::PodsMemory, 100),
            (others, 1, Signal::ImageFiles, 5),
        ];
        for (change, free, signal, least) in cases {
            let found = short(&|measured| change(measured, Some(Share { free, all: 100 })));
            assert_eq!(found, Some((signal, least)));
        }
    }

    #[test]
    fn a_soft_threshold_waits_for_its_grace_and_what_is_reclaimed_goes_beyond_the_threshold() {
        let soft = SoftThresholds {
            memory_available_bytes: 200,
            grace: 3 * SECOND,
            ..SoftThresholds::default()
        };
        let mut tracker = tracker(|it| {
            it.soft = soft;
            it.reclaim_memory_bytes = 50;
        });
        let start = Instant::now();
        let mut at = |second: u32, free| {
            let now = start + second * SECOND;
            tracker.observe(&memory(free), now, now).map(|it| (it.least, it.is_soft))
        };
        assert_eq!(at(0, 199), None);
        assert_eq!(at(2, 199), None);
        assert_eq!(at(3, 199), Some((200, true)));
        // It is above the threshold, and not by what is to be reclaimed.
        assert_eq!(at(4, 249), Some((200, true)));
        assert_eq!(at(5, 250), None);
        assert_eq!(at(6, 199), None, "the grace begins anew");
        assert_eq!(at(7, 99), Some((100, false)), "the hard threshold has no grace");
        assert_eq!(at(8, 149), Some((100, false)));
        assert_eq!(at(8, 150), None, "the soft one waits");
    }

    #[test]
    fn after_an_eviction_nothing_is_decided_before_the_pod_has_gone_and_a_later_measurement() {
        let (mut tracker, start) = (tracker(|_| {}), Instant::now());
        let at = |second: u32| start + second * SECOND;
        assert!(tracker.observe(&memory(1), at(0), at(0)).is_some());
        tracker.evict(uid(1), SECOND, at(0));
        tracker.note_gone(|_| true, at(1));
        assert_eq!(tracker.observe(&memory(1), at(1), at(1)), None);
        tracker.note_gone(|_| false, at(2));
        assert_eq!(tracker.observe(&memory(1), at(2), at(3)), None, "it began too early");
        assert!(tracker.is_waiting());
        assert!(tracker.observe(&memory(1), at(4), at(4)).is_some());
        assert!(!tracker.is_waiting());
    }

    #[test]
    fn a_pod_that_does_not_end_is_waited_for_beyond_the_time_that_it_has_to_end() {
        for grace in [1, 120] {
            let (mut tracker, start) = (tracker(|_| {}), Instant::now());
            let at = |second: u32| start + second * SECOND;
            tracker.evict(uid(1), grace * SECOND, at(0));
            assert_eq!(tracker.observe(&memory(1), at(grace + 29), at(grace + 29)), None);
            assert!(tracker.observe(&memory(1), at(grace + 30), at(grace + 30)).is_some());
        }
    }

    #[test]
    fn nothing_is_decided_while_one_of_several_pods_goes() {
        let (mut tracker, start) = (tracker(|_| {}), Instant::now());
        let at = |second: u32| start + second * SECOND;
        tracker.evict(uid(1), SECOND, at(0));
        tracker.evict(uid(2), SECOND, at(0));
        tracker.note_gone(|pod| *pod == uid(2), at(1));
        assert_eq!(tracker.observe(&memory(1), at(2), at(2)), None, "the second one goes");
        tracker.note_gone(|_| false, at(3));
        assert_eq!(tracker.observe(&memory(1), at(3), at(3)), None);
        assert!(tracker.observe(&memory(1), at(4), at(4)).is_some());
    }

    proptest! {
        /// Pods go one by one while the node is short, however late each is gone and however long each has to end: without
        /// the last one that was evicted there would still be a shortage.
        #[test]
        fn no_more_is_evicted_than_is_needed(
            sizes in prop::collection::vec(1_u64..300, 1..12),
            graces in prop::collection::vec(0_u32..150, 12),
            delays in prop::collection::vec(0_u32..=30, 12),
            free in 0_u64..400,
            reclaim in 0_u64..100,
        ) {
            let mut tracker = tracker(|it| it.reclaim_memory_bytes = reclaim);
            let mut present: Vec<(usize, u64)> = sizes.into_iter().enumerate().collect();
            let (mut free, mut leaving): (u64, Option<(u64, u32)>) = (free, None);
            let (first, mut sizes_gone) = (free, Vec::new());
            let start = Instant::now();
            for second in 0..2400 {
                let now = start + second * SECOND;
                if let Some((size, at)) = leaving && at <= second {
                    free += size;
                    leaving = None;
                    tracker.note_gone(|_| false, now);
                }
                // The measurement began a second ago: it does not see what has just gone.
                let began = now.checked_sub(SECOND).unwrap_or(now);
                if tracker.observe(&memory(free), began, now).is_some() {
                    prop_assert!(leaving.is_none(), "two at a time");
                    let Some((number, size)) = present.pop() else { break };
                    tracker.evict(uid(number), graces[number] * SECOND, now);
                    leaving = Some((size, second + graces[number] + delays[number]));
                    sizes_gone.push(size);
                }
            }
            let before_last: u64 = sizes_gone.iter().rev().skip(1).sum();
            if !sizes_gone.is_empty() {
                prop_assert!(first < 100);
                let needed = if sizes_gone.len() > 1 { 100 + reclaim } else { 100 };
                prop_assert!(first + before_last < needed, "{first} {sizes_gone:?} {reclaim}");
            }
            let is_enough = free >= 100 + reclaim || first >= 100;
            prop_assert!(is_enough || present.is_empty(), "{free} {present:?}");
        }
    }
}
