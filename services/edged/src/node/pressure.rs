//! Pressure: the node lacks memory, disk or process ids. Pure: decided from measurements, thresholds
//! and the time.
//!
//! A condition holds as soon as a measurement is below a threshold, hard or soft, and ends when none has been for
//! the hold time, as under a kubelet. So it does not flap at the threshold.

use std::time::Duration;

use tokio::time::Instant;

use super::signal::{Measurement, Resource, Signal, thresholds};
use crate::config::PressureSettings;

/// The state of a resource on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// The resource cannot be measured.
    Unknown,
    /// There is enough.
    Absent,
    /// There is too little, or was a moment ago.
    Present,
}

/// The state of every resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressures {
    /// Of memory.
    pub(crate) memory: Pressure,
    /// Of the disk.
    pub(crate) disk: Pressure,
    /// Of process ids.
    pub(crate) pids: Pressure,
}

/// When each resource was last short.
#[derive(Clone, Debug, Default)]
pub(crate) struct PressureTracker {
    memory: Option<Instant>,
    disk: Option<Instant>,
    pids: Option<Instant>,
}

/// The signals by which a resource is known.
const SIGNALS: [Signal; 7] = [
    Signal::Memory,
    Signal::PodsMemory,
    Signal::DiskBytes,
    Signal::DiskFiles,
    Signal::ImageBytes,
    Signal::ImageFiles,
    Signal::Pids,
];

/// Whether a resource is short; `None` if it was not measured.
fn is_short(
    measured: &Measurement,
    resource: Resource,
    settings: &PressureSettings,
) -> Option<bool> {
    let own = |signal: &Signal| signal.resource() == resource;
    let is_known = SIGNALS.iter().filter(|it| own(it)).any(|it| measured.share(*it).is_some());
    let is_met = thresholds(settings).into_iter().filter(|it| own(&it.signal)).any(|threshold| {
        let share = measured.share(threshold.signal);
        share.is_some_and(|share| share.free < threshold.least.of(share.all))
    });
    is_known.then_some(is_met)
}

impl PressureTracker {
    /// Applies a measurement.
    pub(crate) fn observe(
        &mut self,
        measured: &Measurement,
        settings: &PressureSettings,
        now: Instant,
    ) -> Pressures {
        let hold = settings.hold;
        let state = |resource, short_at: &mut Option<Instant>| {
            let is_short = is_short(measured, resource, settings);
            if is_short == Some(true) {
                *short_at = Some(now);
            }
            match (is_short, *short_at) {
                (_, Some(at)) if is_held(at, hold, now) => Pressure::Present,
                (Some(_), _) => Pressure::Absent,
                (None, _) => Pressure::Unknown,
            }
        };
        Pressures {
            memory: state(Resource::Memory, &mut self.memory),
            disk: state(Resource::Disk, &mut self.disk),
            pids: state(Resource::Pids, &mut self.pids),
        }
    }
}

/// Whether a shortage counts still.
fn is_held(short_at: Instant, hold: Duration, now: Instant) -> bool {
    now == short_at || now.saturating_duration_since(short_at) < hold
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::signal::Share;

    const MINUTE: Duration = Duration::from_mins(1);

    fn measured(memory_bytes: u64) -> Measurement {
        let half = Some(Share { free: 50, all: 100 });
        let memory = Some(Share { free: memory_bytes, all: u64::MAX });
        Measurement {
            memory,
            pods_memory: None,
            disk_bytes: half,
            disk_files: half,
            image_bytes: half,
            image_files: half,
            pids: half,
        }
    }

    #[test]
    fn a_pressure_begins_at_once_and_ends_when_there_was_enough_for_the_hold_time() {
        let settings = PressureSettings { hold: 5 * MINUTE, ..PressureSettings::default() };
        let (start, least) = (Instant::now(), settings.memory_available_bytes);
        let mut tracker = PressureTracker::default();
        let mut at = |minute: u32, bytes| {
            tracker.observe(&measured(bytes), &settings, start + minute * MINUTE).memory
        };
        assert_eq!(at(0, least), Pressure::Absent);
        assert_eq!(at(1, least - 1), Pressure::Present);
        for minute in 2..6 {
            assert_eq!(at(minute, least), Pressure::Present, "minute {minute}");
        }
        assert_eq!(at(6, least), Pressure::Absent);
        // A node at its threshold changes its condition once, not at every look.
        let states = (7..30).map(|minute| at(minute, least - u64::from(minute % 2)));
        assert!(states.into_iter().all(|state| state == Pressure::Present));
    }

    #[test]
    fn each_resource_has_its_own_threshold() {
        let settings = PressureSettings::default();
        let at = |percent: u8| Some(Share { free: u64::from(percent) - 1, all: 100 });
        let state = |change: &dyn Fn(&mut Measurement)| {
            let mut measured = measured(u64::MAX);
            change(&mut measured);
            let Pressures { memory, disk, pids } =
                PressureTracker::default().observe(&measured, &settings, Instant::now());
            [memory, disk, pids]
        };
        use Pressure::{Absent, Present, Unknown};
        assert_eq!(state(&|_| {}), [Absent; 3]);
        let disk = [Absent, Present, Absent];
        assert_eq!(state(&|m| m.disk_bytes = at(settings.disk_available_percent)), disk);
        assert_eq!(state(&|m| m.disk_files = at(settings.files_free_percent)), disk);
        assert_eq!(state(&|m| m.image_bytes = at(settings.images_available_percent)), disk);
        assert_eq!(state(&|m| m.image_files = at(settings.image_files_free_percent)), disk);
        let memory = [Present, Absent, Absent];
        assert_eq!(state(&|m| m.pods_memory = at(9)), memory, "100 MiB for all pods");
        let pids = [Absent, Absent, Present];
        assert_eq!(state(&|m| m.pids = at(settings.pids_available_percent)), pids);
        assert_eq!(state(&|m| m.disk_files = None), [Absent; 3], "the file system has no bound");
        assert_eq!(state(&|m| *m = Measurement::default()), [Unknown; 3]);
    }
}
