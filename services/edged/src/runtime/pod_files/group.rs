//! Gives the files of a volume to the pod's group (`pkg/volume/volume_linux.go` of Kubernetes).
//!
//! Containers of other pods may write to the volume meanwhile: no link is followed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag};
use nix::unistd::{Gid, fchown, fchownat};

use crate::container::driver_volume::VolumeGroup;

/// The deepest folder: each level holds a file descriptor.
const DEPTH_MAX: usize = 128;

/// What the group may do with files, and with folders.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Gives the volume at `root` to the group. It blocks until every file has been looked at. As under a kubelet, a file that
/// keeps its group is logged: the file system may have no groups.
///
/// # Errors
/// The root is no directory, or cannot be read.
pub fn give(root: &Path, group: VolumeGroup) -> io::Result<()> {
    let found = fs::metadata(root)?;
    let has_bits = found.mode() & FOLDER_BITS == FOLDER_BITS;
    if group.only_on_mismatch && found.gid() == group.id && has_bits {
        return Ok(());
    }
    let mut walk = Walk { group: Gid::from_raw(group.id), kept: 0, first: None };
    walk.give_folder(&open_folder(root)?, 0)?;
    if let Some(error) = walk.first {
        let (root, id, kept) = (root.display(), group.id, walk.kept);
        tracing::warn!(%root, group = id, kept, %error, "files of a volume are not given to the pod's group");
    }
    Ok(())
}

/// A walk through a volume.
struct Walk {
    group: Gid,
    /// The files and folders that keep their group.
    kept: u64,
    /// Why the first of them does.
    first: Option<io::Error>,
}

impl Walk {
    fn give_folder(&mut self, folder: &File, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other(format!("a folder lies deeper than {DEPTH_MAX} others")));
        }
        let here = format!("/proc/self/fd/{}", folder.as_raw_fd());
        for entry in fs::read_dir(&here)? {
            let entry = entry?;
            let path = Path::new(&here).join(entry.file_name());
            let kind = match entry.file_type() {
                Ok(kind) => kind,
                Err(error) => {
                    self.note(Err(error));
                    continue;
                }
            };
            if kind.is_dir() {
                // Another pod may remove it, or put a link in its place.
                let opened = open_folder(&path);
                let given = opened.and_then(|opened| self.give_folder(&opened, depth + 1));
                self.note(given);
            } else {
                let given = self.give_file(folder, &path, kind.is_file());
                self.note(given);
            }
        }
        // Last: a root with the group's bits is one whose files have been given.
        let given = fchown(folder.as_fd(), None, Some(self.group)).map_err(io::Error::from);
        self.note(given.and_then(|()| add_bits(folder, FOLDER_BITS)));
        Ok(())
    }

    fn give_file(&self, folder: &File, path: &Path, is_file: bool) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default();
        fchownat(folder.as_fd(), name, None, Some(self.group), AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if !is_file {
            return Ok(());
        }
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
        add_bits(&file, FILE_BITS)
    }

    /// Counts a file that keeps its group. One that another pod removed counts for nothing.
    fn note(&mut self, given: io::Result<()>) {
        match given {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.kept += 1;
                self.first.get_or_insert(error);
            }
            _ => {}
        }
    }
}

fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Adds bits to the mode of what is open, if it is a file or a folder.
fn add_bits(file: &File, bits: u32) -> io::Result<()> {
    let found = file.metadata()?;
    if found.is_file() || found.is_dir() {
        let mode = Permissions::from_mode(found.mode() & 0o7777 | bits);
        fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_that_lies_too_deep_keeps_its_group_and_the_volume_is_given() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().join("volume");
        let deep = (0..DEPTH_MAX + 2).fold(root.clone(), |path, _| path.join("d"));
        fs::create_dir_all(&deep).expect("folders");
        let id = nix::unistd::getegid().as_raw();
        give(&root, VolumeGroup { id, gives_files: true, only_on_mismatch: false }).expect("given");
        let bits = |path: &Path| fs::metadata(path).expect("there").mode() & FOLDER_BITS;
        assert_eq!(bits(&root), FOLDER_BITS);
        assert_ne!(bits(&deep), FOLDER_BITS);
    }

    #[test]
    fn files_are_given_and_no_link_is_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (root, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(root.join("deep")).expect("folders");
        for file in [&root.join("deep/file"), &outside] {
            fs::write(file, "").expect("a file");
            fs::set_permissions(file, Permissions::from_mode(0o600)).expect("its own");
        }
        symlink(&outside, root.join("link")).expect("a link");
        // The own group: another one needs rights that a test may lack.
        let id = nix::unistd::getegid().as_raw();
        let group = VolumeGroup { id, gives_files: true, only_on_mismatch: false };
        give(&root, group).expect("given");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o7777;
        assert_eq!(mode(&root.join("deep/file")), 0o660);
        assert_eq!(mode(&root.join("deep")) & FOLDER_BITS, FOLDER_BITS);
        assert_eq!(mode(&outside), 0o600);
        fs::write(root.join("later"), "").expect("a file");
        fs::set_permissions(root.join("later"), Permissions::from_mode(0o600)).expect("its own");
        give(&root, VolumeGroup { only_on_mismatch: true, ..group }).expect("nothing to do");
        assert_eq!(mode(&root.join("later")), 0o600, "the root is the group's already");
    }
}
