//! The facts of the machine that a check asks for. The only part of the spec that reads files.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_edged::mountinfo::{OWN_MOUNTS, mounts};

/// How the mount that a path lies on passes on later mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountKind {
    /// Not at all.
    Private,
    /// It receives them.
    Slave,
    /// It receives and sends them.
    Shared,
}

/// The facts of the machine that a check asks for.
pub trait Machine {
    /// Whether there is a file at this path.
    fn has_file(&self, path: &Path) -> bool;

    /// The kind of the mount that the path lies on.
    fn mount_kind(&self, path: &Path) -> MountKind;
}

/// The machine that this process runs on, as this process sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMachine;

impl Machine for HostMachine {
    fn has_file(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.is_file())
    }

    fn mount_kind(&self, path: &Path) -> MountKind {
        let list = fs::read(OWN_MOUNTS).unwrap_or_default();
        kind_of(&list, &resolved(path))
    }
}

/// The path without links. What does not exist yet lies below its nearest directory that does.
fn resolved(path: &Path) -> PathBuf {
    let mut existing = path.ancestors();
    let found =
        existing.find_map(|ancestor| fs::canonicalize(ancestor).ok().map(|it| (ancestor, it)));
    match found {
        Some((ancestor, real)) => match path.strip_prefix(ancestor) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path.to_owned(),
    }
}

/// The kind of the last mount with the longest path above this one. A mount that nothing says anything
/// about is private.
fn kind_of(list: &[u8], path: &Path) -> MountKind {
    let mut kind = (0, MountKind::Private);
    for mount in mounts(list) {
        let depth = mount.point.components().count();
        if !path.starts_with(&mount.point) || depth < kind.0 {
            continue;
        }
        kind = match (mount.has_tag("shared:"), mount.has_tag("master:")) {
            (true, _) => (depth, MountKind::Shared),
            (false, true) => (depth, MountKind::Slave),
            (false, false) => (depth, MountKind::Private),
        };
    }
    kind.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_kind_of_the_deepest_and_last_mount_above_it() {
        let list = b"\
22 1 0:21 / / rw,relatime - overlay overlay rw
23 22 0:22 / /data rw shared:7 - ext4 /dev/sda rw
24 23 0:23 / /data/slave rw master:7 - ext4 /dev/sdb rw
25 23 0:24 / /data/a\\040b rw shared:9 master:7 - ext4 /dev/sdc rw
26 22 0:25 / /twice rw shared:1 - tmpfs tmpfs rw
27 26 0:26 / /twice rw - tmpfs tmpfs rw
torn line
";
        for (path, kind) in [
            ("/", MountKind::Private),
            ("/etc", MountKind::Private),
            ("/data", MountKind::Shared),
            ("/data/x/y", MountKind::Shared),
            ("/database", MountKind::Private),
            ("/data/slave/x", MountKind::Slave),
            ("/data/a b/x", MountKind::Shared),
            ("/twice/x", MountKind::Private),
        ] {
            assert_eq!(kind_of(list, Path::new(path)), kind, "{path}");
        }
        assert_eq!(kind_of(b"", Path::new("/")), MountKind::Private);
    }

    #[test]
    fn the_machine_knows_its_files_and_its_mounts() {
        assert!(HostMachine.has_file(Path::new("/proc/self/status")));
        assert!(!HostMachine.has_file(Path::new("/proc/self")));
        assert!(!HostMachine.has_file(Path::new("/no/such/file")));
        assert_eq!(resolved(Path::new("/proc/../proc/no/such")), Path::new("/proc/no/such"));
        let _ = HostMachine.mount_kind(Path::new("/no/such/file"));
    }
}
