//! Gives the files of a published volume to the pod's group (`pkg/volume/volume_linux.go` of Kubernetes).
//!
//! Containers of other pods may write to the volume meanwhile: no link is followed.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use headwater_edged::container::driver_volume::VolumeGroup;
use nix::fcntl::{AtFlags, OFlag};
use nix::unistd::{Gid, fchownat};

/// The deepest folder: each level holds a file descriptor.
const DEPTH_MAX: usize = 128;

/// What the group may do with files, and with folders.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Gives the volume at `root` to the group.
pub(crate) fn give(root: &Path, group: VolumeGroup) -> io::Result<()> {
    let found = fs::metadata(root)?;
    let has_bits = found.mode() & FOLDER_BITS == FOLDER_BITS;
    if group.only_on_mismatch && found.gid() == group.id && has_bits {
        return Ok(());
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let folder = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(root)?;
    give_folder(&folder, group.id, 0)
}

fn give_folder(folder: &File, group: u32, depth: usize) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("a folder lies deeper than {DEPTH_MAX} others")));
    }
    let here = format!("/proc/self/fd/{}", folder.as_raw_fd());
    for entry in fs::read_dir(&here)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_dir() {
            let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
            let path = Path::new(&here).join(&name);
            let opened = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
            give_folder(&opened?, group, depth + 1)?;
        } else {
            let gid = Some(Gid::from_raw(group));
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            fchownat(folder.as_fd(), name.as_os_str(), None, gid, flags)?;
            if kind.is_file() {
                let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
                let path = Path::new(&here).join(&name);
                let file =
                    fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
                add_bits(&file, FILE_BITS)?;
            }
        }
    }
    // Last: a root with the group's bits is one whose files have been given.
    let gid = Some(Gid::from_raw(group));
    nix::unistd::fchown(folder.as_fd(), None, gid)?;
    add_bits(folder, FOLDER_BITS)
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
