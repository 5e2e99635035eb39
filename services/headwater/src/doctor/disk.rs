//! Checks of the disk below the data directory: free space, durability, and the time of a sync.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::statfs::{self, FsType, statfs};
use nix::sys::statvfs::statvfs;

use super::Check;

/// Below this free space a write-ahead log may soon fail, in bytes.
const FREE_BYTES_FAIL: u64 = 256 << 20;

/// Below this free space `doctor` warns, in bytes.
const FREE_BYTES_WARN: u64 = 2 << 30;

/// Below this fraction of free inodes `doctor` warns: 1 in so many.
const FREE_FILES_WARN: u64 = 20;

/// A slower sync delays everything: a spinning disk needs about 10 ms.
const SYNC_WARN: Duration = Duration::from_millis(50);

/// The number of timed syncs; the median counts.
const SYNCS: usize = 5;

/// The write before each sync, in bytes: a small batch.
const SYNC_BYTES: usize = 4096;

/// The place where a file system stores its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A disk of this machine.
    Disk,
    /// Memory: a power cut loses it.
    Memory,
    /// Another machine.
    Network,
    /// An unknown file system.
    Other,
}

/// Magic numbers of file systems without a name in nix, from Linux's `magic.h` and sources.
const KNOWN: [(i64, &str, Kind); 7] = [
    (0x0102_1997, "9p", Kind::Network),
    (0x5846_5342, "xfs", Kind::Disk),
    (0x2fc1_2fc1, "zfs", Kind::Disk),
    (0xf2f5_2010, "f2fs", Kind::Disk),
    (0x8584_58f6, "ramfs", Kind::Memory),
    (0xff53_4d42, "cifs", Kind::Network),
    (0xfe53_4d42, "smb2", Kind::Network),
];

/// Checks the disk of `dir`.
pub(super) fn look(dir: &Path) -> Vec<Check> {
    let mut checks = match statvfs(dir) {
        Ok(room) => {
            let bytes = room.blocks_available() * room.fragment_size();
            vec![
                judge_room(bytes, room.blocks() * room.fragment_size()),
                judge_files(room.files_available(), room.files()),
            ]
        }
        Err(error) => {
            vec![Check::fail("disk room", error.to_string(), "check the disk and its mount")]
        }
    };
    checks.push(match statfs(dir) {
        Ok(found) => judge_kind(found.filesystem_type()),
        Err(error) => Check::fail("file system", error.to_string(), "check the disk and its mount"),
    });
    checks.push(judge_sync(time_syncs(dir), dir));
    checks
}

fn judge_room(free: u64, all: u64) -> Check {
    let found = format!("{} of {} free", size(free), size(all));
    let advice = "free some space, or move the data directory";
    match free {
        free if free < FREE_BYTES_FAIL => Check::fail("disk room", found, advice),
        free if free < FREE_BYTES_WARN => Check::warn("disk room", found, advice),
        _ => Check::ok("disk room", found),
    }
}

fn judge_files(free: u64, all: u64) -> Check {
    let name = "disk files";
    // A file system without a bound reports zero.
    if all == 0 {
        return Check::ok(name, "no limit but the free space");
    }
    let found = format!("{free} of {all} free");
    let advice = "delete files, or use a file system with more inodes";
    match free {
        0 => Check::fail(name, found, advice),
        free if free < all / FREE_FILES_WARN => Check::warn(name, found, advice),
        _ => Check::ok(name, found),
    }
}

fn judge_kind(found: FsType) -> Check {
    let named = [
        (statfs::EXT4_SUPER_MAGIC, "ext2/3/4", Kind::Disk),
        (statfs::BTRFS_SUPER_MAGIC, "btrfs", Kind::Disk),
        (statfs::OVERLAYFS_SUPER_MAGIC, "overlayfs", Kind::Other),
        (statfs::TMPFS_MAGIC, "tmpfs", Kind::Memory),
        (statfs::NFS_SUPER_MAGIC, "nfs", Kind::Network),
        (statfs::SMB_SUPER_MAGIC, "smb", Kind::Network),
        (statfs::FUSE_SUPER_MAGIC, "fuse", Kind::Other),
    ];
    let named =
        named.iter().find(|(magic, ..)| *magic == found).map(|(_, name, kind)| (*name, *kind));
    // The type differs between machines.
    #[allow(clippy::useless_conversion, reason = "the number's type differs between machines")]
    let number = i64::try_from(found.0).unwrap_or_default();
    let known =
        KNOWN.iter().find(|(magic, ..)| *magic == number).map(|(_, name, kind)| (*name, *kind));
    let name = "file system";
    let (text, kind) = named.or(known).map_or_else(
        || (format!("unknown ({number:#x})"), Kind::Other),
        |(text, kind)| (text.to_owned(), kind),
    );
    match kind {
        Kind::Disk => Check::ok(name, text),
        Kind::Other => Check::ok(name, format!("{text}: durable if the file system below it is")),
        Kind::Memory => Check::warn(
            name,
            format!("{text}: in memory"),
            "use a disk: a restart of the machine loses this data",
        ),
        Kind::Network => Check::warn(
            name,
            format!("{text}: on another machine"),
            "use a local disk: locks and syncs of network file systems are not reliable",
        ),
    }
}

/// Returns the median time of a write with a sync, in a temporary file.
fn time_syncs(dir: &Path) -> io::Result<Duration> {
    let mut probe = Probe::new(dir)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        probe.file.write_all(&[0; SYNC_BYTES])?;
        let began = Instant::now();
        probe.file.sync_all()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}

fn judge_sync(took: io::Result<Duration>, dir: &Path) -> Check {
    let name = "disk sync";
    match took {
        Ok(took) if took > SYNC_WARN => Check::warn(
            name,
            format!("a sync takes {} ms", took.as_millis()),
            "use a faster disk: each start of a pod and each acknowledgement waits for a sync",
        ),
        Ok(took) => Check::ok(name, format!("a sync takes {:.1} ms", took.as_secs_f64() * 1e3)),
        Err(error) => Check::fail(
            name,
            format!("{} cannot be written: {error}", dir.display()),
            "make it writable for the user of headwater, or name another directory with --data",
        ),
    }
}

/// A file that is removed when dropped.
struct Probe {
    path: std::path::PathBuf,
    file: File,
}

impl Probe {
    fn new(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!(".headwater-doctor-{}", std::process::id()));
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // The removal fails only if the file does not exist.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_full_disk_fails_and_a_nearly_full_one_warns() {
        let all = 100 << 30;
        assert_eq!(judge_room(50 << 30, all).result, Verdict::Ok);
        assert_eq!(judge_room(1 << 30, all).result, Verdict::Warn);
        assert_eq!(judge_room(1 << 20, all).result, Verdict::Fail);
        assert_eq!(judge_room(3 << 29, all).found, "1.5 GiB of 100.0 GiB free");
        assert_eq!(judge_files(0, 0).result, Verdict::Ok, "no bound");
        assert_eq!(judge_files(0, 9).result, Verdict::Fail);
        assert_eq!(judge_files(1, 100).result, Verdict::Warn);
    }

    #[test]
    fn memory_and_network_file_systems_are_no_local_disks() {
        assert_eq!(judge_kind(statfs::EXT4_SUPER_MAGIC).result, Verdict::Ok);
        assert_eq!(judge_kind(statfs::TMPFS_MAGIC).result, Verdict::Warn);
        assert_eq!(judge_kind(statfs::NFS_SUPER_MAGIC).result, Verdict::Warn);
        assert_eq!(
            judge_kind(FsType(0x1234)).found,
            "unknown (0x1234): durable if the file system below it is"
        );
    }

    #[test]
    fn nothing_is_left_behind() {
        let dir = tempfile::tempdir().expect("a directory");
        let checks = look(dir.path());
        assert!(checks.iter().any(|check| check.check == "disk sync"), "{checks:?}");
        assert_eq!(dir.path().read_dir().expect("reads").count(), 0);
        let absent = judge_sync(time_syncs(&dir.path().join("absent")), dir.path());
        assert_eq!(absent.result, Verdict::Fail);
        let slow = judge_sync(Ok(SYNC_WARN * 2), dir.path());
        assert_eq!(slow.result, Verdict::Warn);
    }
}
