//! What is mounted below a directory. A removal of the directory would go through such a mount, and take what belongs to
//! others.

use std::fs;
use std::io;
use std::path::Path;

/// The mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";

/// Checks that nothing is mounted below a directory, which may be absent.
///
/// # Errors
/// Names a mount.
pub(crate) fn check_none_below(dir: &Path) -> io::Result<()> {
    let Ok(dir) = fs::canonicalize(dir) else { return Ok(()) };
    // Without it nothing is mounted by this process either.
    let mounts = fs::read_to_string(MOUNTS).unwrap_or_default();
    match below(&mounts, &dir) {
        None => Ok(()),
        Some(mount) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("{mount} is mounted")))
        }
    }
}

/// The first mount point below a directory, as the kernel writes it.
fn below<'m>(mountinfo: &'m str, dir: &Path) -> Option<&'m str> {
    let dir = escaped(&dir.to_string_lossy());
    let mut points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.find(|point| point.strip_prefix(&dir).is_some_and(|rest| rest.starts_with('/')))
}

/// A path as the kernel writes it into a line with blanks.
fn escaped(path: &str) -> String {
    let one = |character| match character {
        ' ' => "\\040".to_owned(),
        '\t' => "\\011".to_owned(),
        '\n' => "\\012".to_owned(),
        '\\' => "\\134".to_owned(),
        other => other.to_string(),
    };
    path.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_below_the_directory_counts() {
        let mounts = "22 1 0:21 / / rw - ext4 /dev/sda1 rw\n\
                      23 22 0:22 / /a\\040b/pods/u1/volumes/m rw - tmpfs tmpfs rw\n\
                      24 22 0:23 / /a\\040b/pods/u10/x rw - tmpfs tmpfs rw\n\
                      nothing\n";
        let of = |dir: &str| below(mounts, Path::new(dir));
        assert_eq!(of("/a b/pods/u1"), Some("/a\\040b/pods/u1/volumes/m"));
        assert_eq!(of("/a b/pods/u10"), Some("/a\\040b/pods/u10/x"));
        for dir in ["/a b/pods/u2", "/a b/pods/u1/volumes/m", "/a"] {
            assert_eq!(of(dir), None, "{dir}");
        }
        check_none_below(Path::new("/proc/self/fd")).expect("nothing is mounted there");
    }
}
