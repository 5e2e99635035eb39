//! When a node lacks a resource, and what it does then: settings of `edge` and `edged`.

use std::ops::RangeInclusive;
use std::time::Duration;

use headwater_edged::{PressureSettings, SoftThresholds};
use headwater_settings::{InvalidSetting, duration_text};
use serde::{Deserialize, Serialize};

use super::pods::check;

/// Amounts of memory, in MiB: 1 TiB is more than a gateway has.
const MEMORY_MIB: RangeInclusive<u64> = 0..=1 << 20;

/// Parts in percent. A node of which nothing may be used would always lack the resource.
const PERCENT: RangeInclusive<u8> = 0..=99;

/// The longest time that a pressure lasts after its cause: the scheduler avoids the node meanwhile.
const HOLD_MAX: Duration = Duration::from_hours(24);

/// The `[pressure]` table: below which remainder the node lacks a resource. It reports so, and evicts pods. Zero turns a
/// threshold off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pressure {
    /// Memory that processes can still get, in MiB.
    pub(crate) memory_available_mib: u64,
    /// Free bytes of the file system of the data directory, in percent.
    pub(crate) disk_available_percent: u8,
    /// Free files of this file system, in percent.
    pub(crate) files_free_percent: u8,
    /// Free bytes of the file system of images, in percent.
    pub(crate) images_available_percent: u8,
    /// Free files of this file system, in percent.
    pub(crate) image_files_free_percent: u8,
    /// Free process ids, in percent.
    pub(crate) pids_available_percent: u8,
    /// The same, for a shortage that a pod has to go for only after a time.
    pub(crate) soft_memory_available_mib: u64,
    pub(crate) soft_disk_available_percent: u8,
    pub(crate) soft_files_free_percent: u8,
    pub(crate) soft_images_available_percent: u8,
    pub(crate) soft_image_files_free_percent: u8,
    pub(crate) soft_pids_available_percent: u8,
    /// That time.
    #[serde(with = "duration_text")]
    pub(crate) soft_grace: Duration,
    /// The time that the pod has to end then, at most its own grace period.
    #[serde(with = "duration_text")]
    pub(crate) soft_pod_grace: Duration,
    /// Memory that is there beyond the threshold when a shortage has ended, in MiB.
    pub(crate) reclaim_memory_mib: u64,
    /// The part of a file system that is, in percent.
    pub(crate) reclaim_disk_percent: u8,
    /// Whether pods are evicted.
    pub(crate) evict: bool,
    /// The time for which there must be enough before a pressure ends.
    #[serde(with = "duration_text")]
    pub(crate) hold: Duration,
}

impl Default for Pressure {
    fn default() -> Self {
        let default = PressureSettings::default();
        Self {
            memory_available_mib: default.memory_available_bytes >> 20,
            disk_available_percent: default.disk_available_percent,
            files_free_percent: default.files_free_percent,
            images_available_percent: default.images_available_percent,
            image_files_free_percent: default.image_files_free_percent,
            pids_available_percent: default.pids_available_percent,
            soft_memory_available_mib: default.soft.memory_available_bytes >> 20,
            soft_disk_available_percent: default.soft.disk_available_percent,
            soft_files_free_percent: default.soft.files_free_percent,
            soft_images_available_percent: default.soft.images_available_percent,
            soft_image_files_free_percent: default.soft.image_files_free_percent,
            soft_pids_available_percent: default.soft.pids_available_percent,
            soft_grace: default.soft.grace,
            soft_pod_grace: default.soft.pod_grace,
            reclaim_memory_mib: default.reclaim_memory_bytes >> 20,
            reclaim_disk_percent: default.reclaim_disk_percent,
            evict: default.evicts,
            hold: default.hold,
        }
    }
}

impl Pressure {
    /// Checks that each value is in its range.
    ///
    /// # Errors
    /// The setting, its value, and the range.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        for (key, value) in [
            ("memory_available_mib", self.memory_available_mib),
            ("soft_memory_available_mib", self.soft_memory_available_mib),
            ("reclaim_memory_mib", self.reclaim_memory_mib),
        ] {
            check(&format!("pressure.{key}"), value, &MEMORY_MIB)?;
        }
        for (key, value) in [
            ("disk_available_percent", self.disk_available_percent),
            ("files_free_percent", self.files_free_percent),
            ("images_available_percent", self.images_available_percent),
            ("image_files_free_percent", self.image_files_free_percent),
            ("pids_available_percent", self.pids_available_percent),
            ("soft_disk_available_percent", self.soft_disk_available_percent),
            ("soft_files_free_percent", self.soft_files_free_percent),
            ("soft_images_available_percent", self.soft_images_available_percent),
            ("soft_image_files_free_percent", self.soft_image_files_free_percent),
            ("soft_pids_available_percent", self.soft_pids_available_percent),
            ("reclaim_disk_percent", self.reclaim_disk_percent),
        ] {
            check(&format!("pressure.{key}"), value, &PERCENT)?;
        }
        if self.hold > HOLD_MAX {
            let what = "a node would report a pressure for more than a day after its end: set at \
                        most 24h";
            return Err(InvalidSetting::new("pressure.hold", what));
        }
        Ok(())
    }

    /// The settings of a pod worker.
    pub(crate) fn settings(&self) -> PressureSettings {
        PressureSettings {
            memory_available_bytes: self.memory_available_mib << 20,
            disk_available_percent: self.disk_available_percent,
            files_free_percent: self.files_free_percent,
            images_available_percent: self.images_available_percent,
            image_files_free_percent: self.image_files_free_percent,
            pids_available_percent: self.pids_available_percent,
            soft: SoftThresholds {
                memory_available_bytes: self.soft_memory_available_mib << 20,
                disk_available_percent: self.soft_disk_available_percent,
                files_free_percent: self.soft_files_free_percent,
                images_available_percent: self.soft_images_available_percent,
                image_files_free_percent: self.soft_image_files_free_percent,
                pids_available_percent: self.soft_pids_available_percent,
                grace: self.soft_grace,
                pod_grace: self.soft_pod_grace,
            },
            reclaim_memory_bytes: self.reclaim_memory_mib << 20,
            reclaim_disk_percent: self.reclaim_disk_percent,
            evicts: self.evict,
            hold: self.hold,
            ..PressureSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_a_pod_worker() {
        assert_eq!(Pressure::default().settings(), PressureSettings::default());
    }
}
