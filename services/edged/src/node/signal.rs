//! What a node can lack, as a kubelet names it, and how much of it is left. Pure.

use std::time::Duration;

use crate::config::PressureSettings;

/// A resource that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// Memory of the machine: `memory.available`.
    Memory,
    /// Memory of all pods together, if they have a limit: `allocatableMemory.available`.
    PodsMemory,
    /// Bytes of the file system of pods: `nodefs.available`.
    DiskBytes,
    /// Files of the file system of pods: `nodefs.inodesFree`.
    DiskFiles,
    /// Bytes of the file system of images: `imagefs.available`.
    ImageBytes,
    /// Files of the file system of images: `imagefs.inodesFree`.
    ImageFiles,
    /// Process ids: `pid.available`.
    Pids,
}

/// The condition of the node that a signal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// `MemoryPressure`.
    Memory,
    /// `DiskPressure`.
    Disk,
    /// `PIDPressure`.
    Pids,
}

/// The part of a resource that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The part.
    pub(crate) free: u64,
    /// All of it.
    pub(crate) all: u64,
}

/// What a machine has left. `None`: it cannot be read, or has no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measurement {
    /// Bytes of memory that processes can still get.
    pub(crate) memory: Option<Share>,
    /// Bytes of memory that pods can still get.
    pub(crate) pods_memory: Option<Share>,
    /// Bytes of the file system of pods.
    pub(crate) disk_bytes: Option<Share>,
    /// Its files; `None` also for one that has no bound.
    pub(crate) disk_files: Option<Share>,
    /// Bytes of the file system of images.
    pub(crate) image_bytes: Option<Share>,
    /// Its files.
    pub(crate) image_files: Option<Share>,
    /// Process ids.
    pub(crate) pids: Option<Share>,
}

/// An amount of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// Bytes.
    Bytes(u64),
    /// A part of all.
    Percent(u8),
}

/// A remainder below which the node lacks a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threshold {
    /// The resource.
    pub(crate) signal: Signal,
    /// The remainder.
    pub(crate) least: Amount,
    /// The time for which a soft threshold is met before a pod is evicted; `None`: a hard one.
    pub(crate) grace: Option<Duration>,
    /// What is there beyond the remainder when the shortage has ended.
    pub(crate) reclaim: Amount,
}

impl Signal {
    /// The resource as a kubelet's messages name it.
    pub(crate) fn resource_name(self) -> &'static str {
        match self {
            Self::Memory | Self::PodsMemory => "memory",
            Self::DiskBytes | Self::ImageBytes => "ephemeral-storage",
            Self::DiskFiles | Self::ImageFiles => "inodes",
            Self::Pids => "pids",
        }
    }

    /// The name, as a kubelet's metric has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory.available",
            Self::PodsMemory => "allocatableMemory.available",
            Self::DiskBytes => "nodefs.available",
            Self::DiskFiles => "nodefs.inodesFree",
            Self::ImageBytes => "imagefs.available",
            Self::ImageFiles => "imagefs.inodesFree",
            Self::Pids => "pid.available",
        }
    }

    /// The condition.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Memory | Self::PodsMemory => Resource::Memory,
            Self::DiskBytes | Self::DiskFiles | Self::ImageBytes | Self::ImageFiles => {
                Resource::Disk
            }
            Self::Pids => Resource::Pids,
        }
    }
}

impl Measurement {
    /// What is left of a resource.
    pub(crate) fn share(&self, signal: Signal) -> Option<Share> {
        match signal {
            Signal::Memory => self.memory,
            Signal::PodsMemory => self.pods_memory,
            Signal::DiskBytes => self.disk_bytes,
            Signal::DiskFiles => self.disk_files,
            Signal::ImageBytes => self.image_bytes,
            Signal::ImageFiles => self.image_files,
            Signal::Pids => self.pids,
        }
    }
}

impl Amount {
    /// The amount of a resource of which there is so much, rounded up.
    pub(crate) fn of(self, all: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let part = (u128::from(all) * u128::from(percent)).div_ceil(100);
                u64::try_from(part).unwrap_or(u64::MAX)
            }
        }
    }

    fn is_zero(self) -> bool {
        matches!(self, Self::Bytes(0) | Self::Percent(0))
    }
}

/// The thresholds of a node: the hard ones, then the soft ones.
pub(crate) fn thresholds(settings: &PressureSettings) -> Vec<Threshold> {
    let hard = [
        (Signal::Memory, Amount::Bytes(settings.memory_available_bytes)),
        (Signal::PodsMemory, Amount::Bytes(settings.memory_available_bytes)),
        (Signal::DiskBytes, Amount::Percent(settings.disk_available_percent)),
        (Signal::DiskFiles, Amount::Percent(settings.files_free_percent)),
        (Signal::ImageBytes, Amount::Percent(settings.images_available_percent)),
        (Signal::ImageFiles, Amount::Percent(settings.image_files_free_percent)),
        (Signal::Pids, Amount::Percent(settings.pids_available_percent)),
    ];
    let soft = [
        (Signal::Memory, Amount::Bytes(settings.soft.memory_available_bytes)),
        (Signal::DiskBytes, Amount::Percent(settings.soft.disk_available_percent)),
        (Signal::DiskFiles, Amount::Percent(settings.soft.files_free_percent)),
        (Signal::ImageBytes, Amount::Percent(settings.soft.images_available_percent)),
        (Signal::ImageFiles, Amount::Percent(settings.soft.image_files_free_percent)),
        (Signal::Pids, Amount::Percent(settings.soft.pids_available_percent)),
    ];
    let hard = hard.map(|(signal, least)| (signal, least, None));
    let soft = soft.map(|(signal, least)| (signal, least, Some(settings.soft.grace)));
    let all = hard.into_iter().chain(soft).filter(|(_, least, _)| !least.is_zero());
    all.map(|(signal, least, grace)| {
        let reclaim = match signal.resource() {
            Resource::Memory => Amount::Bytes(settings.reclaim_memory_bytes),
            Resource::Disk => Amount::Percent(settings.reclaim_disk_percent),
            Resource::Pids => Amount::Percent(0),
        };
        Threshold { signal, least, grace, reclaim }
    })
    .collect()
}
