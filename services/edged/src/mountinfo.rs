//! The mounts that a process sees, as the kernel lists them in `/proc/PID/mountinfo`. Pure.
//!
//! Paths are bytes: a mount point whose name is no UTF-8 is a mount point, too.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// The mounts that this process sees.
pub const OWN_MOUNTS: &str = "/proc/self/mountinfo";

/// The digits of an octal number after a backslash, as the kernel writes a blank: `\040`.
const ESCAPE_DIGITS: usize = 3;

/// A mount: a line of the list, by proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The file or directory on which it is mounted.
    pub point: PathBuf,
    /// The optional fields, such as `shared:7` and `master:7`.
    pub tags: Vec<&'a [u8]>,
    /// The type of the file system, such as `ext4`; empty in a torn line.
    pub file_system: &'a [u8],
    /// The options of the file system, with commas between them, as the kernel escapes them.
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    /// The mount of a line; `None` if the line has no mount point.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ').skip(4);
        let point = unescaped(words.next()?);
        // After the options of the mount come the optional fields, up to a dash.
        let mut words = words.skip(1);
        let tags = words.by_ref().take_while(|word| *word != b"-").collect();
        let file_system = words.next().unwrap_or_default();
        let options = words.nth(1).unwrap_or_default();
        Some(Self { point, tags, file_system, options })
    }

    /// Whether there is an optional field with this beginning.
    pub fn has_tag(&self, beginning: &str) -> bool {
        self.tags.iter().any(|tag| tag.starts_with(beginning.as_bytes()))
    }

    /// The path in an option of the file system: that of `upperdir` is `/b` in `rw,upperdir=/b`.
    pub fn path_option(&self, name: &str) -> Option<PathBuf> {
        let mut options = self.options.split(|byte| *byte == b',');
        options.find_map(|option| {
            option.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(unescaped)
        })
    }
}

/// The mounts of a list, in its order: a later one may cover an earlier one.
pub fn mounts(list: &[u8]) -> impl Iterator<Item = Mount<'_>> {
    list.split(|byte| *byte == b'\n').filter_map(Mount::parse)
}

/// A path in which the kernel wrote blanks and the like as `\040`.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let escape = after.get(..ESCAPE_DIGITS).filter(|_| *byte == b'\\').and_then(octal);
        bytes.push(escape.unwrap_or(*byte));
        rest = if escape.is_some() { &after[ESCAPE_DIGITS..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The byte that these octal digits are.
fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0_u8, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_line_has_a_mount_point_tags_a_type_and_options() {
        let list = b"25 23 0:24 / /a\\040b rw,relatime shared:9 master:7 - overlay overlay \
                     rw,lowerdir=/l,upperdir=/s\\0409/fs\n\
                     26 23 0:25 / /c rw - ext4 /dev/sda rw";
        let found: Vec<Mount<'_>> = mounts(list).collect();
        let [first, second] = &found[..] else { panic!("{found:?}") };
        assert_eq!(first.point, Path::new("/a b"));
        assert!(first.has_tag("shared:") && first.has_tag("master:"));
        assert_eq!(first.file_system, b"overlay");
        assert_eq!(first.path_option("upperdir"), Some(PathBuf::from("/s 9/fs")));
        assert_eq!(first.path_option("upper"), None);
        assert!(second.tags.is_empty());
        assert_eq!(second.file_system, b"ext4");
    }

    #[test]
    fn a_torn_line_has_what_there_is_of_it() {
        assert_eq!(mounts(b"\n22 1 0:21 /\n").count(), 0);
        let found: Vec<Mount<'_>> = mounts(b"22 1 0:21 / /a").collect();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].tags.len(), found[0].file_system), (0, &b""[..]));
    }

    #[test]
    fn a_path_is_bytes_and_only_octal_numbers_are_escapes() {
        for (written, read) in [
            (&b"/a\\134040"[..], &b"/a\\040"[..]),
            (b"/\xff\\012", b"/\xff\n"),
            (b"/\\377", b"/\xff"),
            (b"/\\400", b"/\\400"),
            (b"/\\+12", b"/\\+12"),
            (b"/\\04", b"/\\04"),
        ] {
            let line = [b"22 1 0:21 / ", written, b" rw - ext4 /dev/sda rw"].concat();
            let point = mounts(&line).next().expect("a mount").point;
            assert_eq!(point, Path::new(OsStr::from_bytes(read)));
        }
    }
}
