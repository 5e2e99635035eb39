//! The seam to resource usage: CPU, memory, processes and disk.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;

use super::RuntimeError;
use crate::pod::PodUid;

/// Measures the resources that pods use.
#[async_trait]
pub trait Usage: Send + Sync + 'static {
    /// The usage of every pod that runs, or has content here.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn pods(&self) -> Result<Vec<PodUsage>, RuntimeError>;

    /// What a pod takes of the disk, and these volumes of it one by one. `None`, as by default: nothing of it is here, or
    /// it is not measured.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn disk(
        &self,
        pod: &PodUid,
        volumes: &[String],
    ) -> Result<Option<PodDisk>, RuntimeError> {
        let _ = (pod, volumes);
        Ok(None)
    }

    /// The usage of these volumes of a pod, by name. One that is not there is absent, as all are by default. What lies at
    /// `of_drivers` is not looked at: its drivers measure it, and its file system may not answer.
    async fn volumes(
        &self,
        pod: &PodUid,
        volumes: &[String],
        of_drivers: &BTreeSet<PathBuf>,
    ) -> BTreeMap<String, VolumeUsage> {
        let _ = (pod, volumes, of_drivers);
        BTreeMap::new()
    }

    /// The usage of the file systems that hold images, containers and volumes.
    ///
    /// # Errors
    /// See [`RuntimeError`].
    async fn file_systems(&self) -> Result<Vec<FileSystemUsage>, RuntimeError>;

    /// The memory that all pods may use together, and what they use of it; `None`, as by default: they may use that of the
    /// machine.
    fn memory_of_all(&self) -> Option<MemoryUsage> {
        None
    }
}

/// The memory of all pods, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUsage {
    /// What they may use.
    pub limit: u64,
    /// What they use, without what the kernel can get back at once.
    pub used: u64,
}

/// The resources that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// The pod.
    pub pod: PodUid,
    /// What all of its processes use, those of its sandbox among them.
    pub processes: ProcessUsage,
    /// Its volumes on the node's disk, and its files of hosts and messages.
    pub volumes: DiskUsage,
    /// Its containers, whether they run or not.
    pub containers: Vec<ContainerUsage>,
}

/// What a pod takes of the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDisk {
    /// Its volumes on the node's disk, and its files of hosts and messages.
    pub files: DiskUsage,
    /// The volumes that were asked for, by name; those in memory, too.
    pub volumes: BTreeMap<String, DiskUsage>,
    /// Its containers, whether they run or not.
    pub containers: Vec<ContainerDisk>,
}

/// What a container takes of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerDisk {
    /// The container's name.
    pub container: String,
    /// What it wrote beside its volumes; `None`: the runtime does not show where, as of one that does not run.
    pub layer: Option<DiskUsage>,
    /// Its logs, those of ended runs among them.
    pub logs: DiskUsage,
}

/// The resources that processes use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// CPU time since the first of them started, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory, with all files that the kernel keeps in memory for them, in bytes.
    pub memory_used_bytes: u64,
    /// Memory that the kernel cannot get back at once, in bytes: a kubelet's working set.
    pub memory_bytes: u64,
    /// Memory without files, in bytes: a kubelet's RSS.
    pub memory_anonymous_bytes: u64,
    /// Their number, threads included.
    pub count: u64,
}

/// The resources that a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// The container's name.
    pub container: String,
    /// What its processes use.
    pub processes: ProcessUsage,
    /// What it wrote beside its volumes; `None`: the runtime does not show where, as of one that does not run.
    pub disk: Option<DiskUsage>,
    /// Its logs, those of ended runs among them.
    pub logs: DiskUsage,
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

/// The usage of a volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Its place on the node.
    pub place: PathBuf,
    /// What it takes of its file system, and the size of that; `None`: it has no size of its own, or its driver knows it.
    pub system: Option<FileSystemUsage>,
}

/// Files and directories of one tree that are counted. A larger tree is counted in part.
const ENTRIES_MAX: usize = 200_000;

impl DiskUsage {
    /// What a directory takes with all below it, on its own file system. Links are not followed, not even one that a
    /// container puts in the place of a directory meanwhile. A file with several names counts once. What cannot be read
    /// counts nothing.
    pub fn of(dir: &Path) -> Self {
        let mut sum = Self::default();
        let Ok(root) = dir.symlink_metadata() else { return sum };
        let (mut dirs, mut left) = (vec![PathBuf::from(".")], ENTRIES_MAX);
        let mut several = HashSet::new();
        let mut add = |found: &std::fs::Metadata| {
            let is_counted = !found.is_dir() && found.nlink() > 1 && !several.insert(found.ino());
            if !is_counted {
                sum.bytes = sum.bytes.saturating_add(found.blocks().saturating_mul(512));
                sum.inodes += 1;
            }
        };
        add(&root);
        let Ok(top) = File::open(dir) else { return sum };
        while let Some(below) = dirs.pop() {
            let Ok(opened) = open_below(&top, &below) else { continue };
            // The kernel's name of the open directory: no other one takes its place.
            let place = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
                let Ok(found) = entry.metadata() else { continue };
                if left == 0 {
                    return sum;
                }
                left -= 1;
                if found.dev() != root.dev() {
                    continue;
                }
                add(&found);
                if found.is_dir() {
                    dirs.push(below.join(entry.file_name()));
                }
            }
        }
        sum
    }
}

/// Opens a directory below another one, on a way without links.
fn open_below(top: &File, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(top, below, OpenHow::new().flags(flags).resolve(resolve)) {
        // A kernel before 5.6.
        Err(Errno::ENOSYS) => Ok(nix::fcntl::openat(top, below, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

impl std::ops::Add for DiskUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_counted_without_what_links_lead_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        std::fs::create_dir_all(tree.join("a/b")).expect("made");
        let empty = DiskUsage::of(&tree);
        assert_eq!(empty.inodes, 3);
        std::fs::write(tree.join("a/b/file"), vec![1; 1 << 20]).expect("written");
        std::fs::write(dir.path().join("outside"), vec![1; 1 << 20]).expect("written");
        std::os::unix::fs::symlink(dir.path(), tree.join("link")).expect("a link");
        std::fs::hard_link(tree.join("a/b/file"), tree.join("again")).expect("a second name");
        let full = DiskUsage::of(&tree);
        assert_eq!(full.inodes, 5, "a file counts once");
        let more = full.bytes - empty.bytes;
        assert!((1 << 20..3 << 19).contains(&more), "{more} bytes");
        assert_eq!(DiskUsage::of(&tree.join("absent")), DiskUsage::default());
    }

    #[test]
    fn a_file_system_has_no_more_in_use_than_its_size() {
        let usage = FileSystemUsage::of(Path::new("/")).expect("measured");
        assert!(usage.capacity.bytes > 0);
        assert!(usage.used.bytes + usage.available.bytes <= usage.capacity.bytes, "{usage:?}");
        FileSystemUsage::of(Path::new("/no/such/place")).expect_err("nothing is there");
    }
}
