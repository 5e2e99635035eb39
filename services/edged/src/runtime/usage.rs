//! The seam to resource usage: CPU, memory, processes and disk.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use nix::sys::statvfs::statvfs;

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
    /// What a user without rights can still get. It may be less than what is not in use.
    pub available: DiskUsage,
}

impl FileSystemUsage {
    /// The usage of the file system at a path.
    ///
    /// # Errors
    /// It cannot be measured, or there is no such path.
    pub fn of(path: &Path) -> io::Result<Self> {
        let disk = statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
        let usage = |blocks: u64, inodes: u64| DiskUsage { bytes: bytes(blocks), inodes };
        Ok(Self {
            mount_point: path.to_owned(),
            used: usage(
                disk.blocks().saturating_sub(disk.blocks_free()),
                disk.files().saturating_sub(disk.files_free()),
            ),
            capacity: usage(disk.blocks(), disk.files()),
            available: usage(disk.blocks_available(), disk.files_available()),
        })
    }
}
