//! The seam to resource usage: CPU, memory, processes and disk.

use std::path::PathBuf;

use async_trait::async_trait;

use super::RuntimeError;
use crate::pod::PodUid;

/// Measures the resources that pods use.
#[async_trait]
pub trait Usage: Send + Sync + 'static {
    /// The usage of every pod that runs.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn pods(&self) -> Result<Vec<PodUsage>, RuntimeError>;

    /// The usage of the file systems that hold images, containers and volumes.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn file_systems(&self) -> Result<Vec<FileSystemUsage>, RuntimeError>;
}

/// The resources that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// The pod.
    pub pod: PodUid,
    /// Its containers.
    pub containers: Vec<ContainerUsage>,
}

/// The resources that a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// The container's name.
    pub container: String,
    /// CPU time since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory that cannot be reclaimed, in bytes.
    pub memory_bytes: u64,
    /// Processes.
    pub processes: u64,
    /// Disk, without volumes.
    pub disk: DiskUsage,
}

/// Space and files on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub inodes: u64,
}

/// The usage of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemUsage {
    /// Its mount point.
    pub mount_point: PathBuf,
    /// The part in use.
    pub used: DiskUsage,
    /// The size.
    pub capacity: DiskUsage,
}
