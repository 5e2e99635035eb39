//! Measures what the machine has left: memory, the disk of a directory, process ids.

use std::fs;
use std::path::Path;

use nix::sys::statvfs::{Statvfs, statvfs};

use super::signal::{Measurement, Share};
use crate::runtime::FileSystemUsage;

/// Measures the machine, and the file system of `dir` or of the nearest directory above it.
pub(crate) fn measure(dir: &Path) -> Measurement {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let disk = dir.ancestors().find_map(|dir| statvfs(dir).ok());
    let limits = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].map(read);
    Measurement {
        memory: memory(&read("/proc/meminfo")),
        disk_bytes: disk.as_ref().map(bytes),
        disk_files: disk.as_ref().and_then(files),
        pids: pids(&read("/proc/loadavg"), &limits),
        ..Measurement::default()
    }
}

/// Bytes and files of the file system of images.
pub(crate) fn of_images(disk: &FileSystemUsage) -> (Option<Share>, Option<Share>) {
    let share = |free, all| Some(Share { free, all }).filter(|share| share.all > 0);
    let bytes = share(disk.available.bytes, disk.capacity.bytes);
    (bytes, share(disk.available.inodes, disk.capacity.inodes))
}

/// Whether two places are on one file system.
pub(crate) fn is_one_disk(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    device(a).is_some_and(|own| device(b) == Some(own))
}

fn bytes(disk: &Statvfs) -> Share {
    let bytes = |blocks: u64| blocks.saturating_mul(disk.fragment_size());
    Share { free: bytes(disk.blocks_available()), all: bytes(disk.blocks()) }
}

fn memory(meminfo_text: &str) -> Option<Share> {
    let free = meminfo(meminfo_text, "MemAvailable:")?;
    Some(Share { free, all: meminfo(meminfo_text, "MemTotal:")? })
}

/// A file system that makes room for files as they come has none.
fn files(disk: &Statvfs) -> Option<Share> {
    let files = Share { free: disk.files_available(), all: disk.files() };
    Some(files).filter(|files| files.all > 0)
}

/// The size of the file system of `dir`, or of the nearest directory above it.
pub(crate) fn storage_bytes(dir: &Path) -> Option<u64> {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let disk = dir.ancestors().find_map(|dir| statvfs(dir).ok())?;
    disk.blocks().checked_mul(disk.fragment_size())
}

/// The memory of the machine; `None` if it cannot be read.
pub fn memory_bytes() -> Option<u64> {
    meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// A line such as `MemAvailable: 1234 kB` of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The fourth field of `/proc/loadavg` is `<runnable>/<all>` threads, each of which has an id.
fn pids(loadavg: &str, limits: &[String]) -> Option<Share> {
    let (_, used) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    let used: u64 = used.parse().ok()?;
    let all = limits.iter().filter_map(|limit| limit.trim().parse().ok()).min()?;
    Some(Share { free: u64::saturating_sub(all, used), all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_measured() {
        let Measurement { memory, disk_bytes, pids, .. } = measure(Path::new("/no/such/directory"));
        assert!(memory.is_some_and(|memory| memory.free > 0 && memory.free < memory.all));
        assert!(disk_bytes.is_some_and(|disk| disk.all > 0));
        assert!(pids.is_some_and(|pids| pids.free < pids.all));
    }

    #[test]
    fn the_files_of_the_kernel_are_read_by_their_form() {
        let text = "MemTotal: 9 kB\nMemAvailable:   2 kB\n";
        assert_eq!(meminfo(text, "MemAvailable:"), Some(2048));
        assert_eq!(meminfo(text, "MemTotal:"), Some(9 << 10));
        assert_eq!(meminfo("MemTotal: 9 kB\n", "MemAvailable:"), None);
        let limits = ["32768\n".to_owned(), "100\n".to_owned()];
        let share = Some(Share { free: 70, all: 100 });
        assert_eq!(pids("0.1 0.2 0.3 2/30 4242\n", &limits), share);
        assert_eq!(pids("", &limits), None);
        assert_eq!(pids("0.1 0.2 0.3 2/30 4242\n", &[]), None);
    }
}
