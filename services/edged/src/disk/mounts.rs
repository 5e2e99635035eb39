//! What is mounted below a directory. A removal of the directory would go through such a mount, and take what belongs to
//! others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::mountinfo::{OWN_MOUNTS, mounts};

/// Checks that nothing is mounted below a directory, which may be absent.
///
/// # Errors
/// Names a mount.
pub(crate) fn check_none_below(dir: &Path) -> io::Result<()> {
    let Ok(dir) = fs::canonicalize(dir) else { return Ok(()) };
    // Without it nothing is mounted by this process either.
    let list = fs::read(OWN_MOUNTS).unwrap_or_default();
    match below(&list, &dir) {
        None => Ok(()),
        Some(mount) => {
            let what = format!("{} is mounted", mount.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
        }
    }
}

/// The first mount point below a directory.
fn below(list: &[u8], dir: &Path) -> Option<PathBuf> {
    let mut points = mounts(list).map(|mount| mount.point);
    points.find(|point| point != dir && point.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_below_the_directory_counts() {
        let mounts = b"22 1 0:21 / / rw - ext4 /dev/sda1 rw\n\
                       23 22 0:22 / /a\\040b/pods/u1/volumes/m rw - tmpfs tmpfs rw\n\
                       24 22 0:23 / /a\\040b/pods/u10/x rw - tmpfs tmpfs rw\n\
                       nothing\n";
        let of = |dir: &str| below(mounts, Path::new(dir));
        assert_eq!(of("/a b/pods/u1"), Some(PathBuf::from("/a b/pods/u1/volumes/m")));
        assert_eq!(of("/a b/pods/u10"), Some(PathBuf::from("/a b/pods/u10/x")));
        for dir in ["/a b/pods/u2", "/a b/pods/u1/volumes/m", "/a b/pods/u"] {
            assert_eq!(of(dir), None, "{dir}");
        }
        check_none_below(Path::new("/proc/self/fd")).expect("nothing is mounted there");
    }

    #[test]
    fn a_mount_whose_name_is_no_text_hides_no_mount() {
        let mounts = b"22 1 0:21 / /elsewhere/\xff rw - tmpfs tmpfs rw\n\
                       23 1 0:22 / /pods/u1/\xfe rw - tmpfs tmpfs rw\n";
        assert!(below(mounts, Path::new("/pods/u1")).is_some());
    }
}
