//! Parts of volumes that containers write to: each is bound to a place of its own, from which the runtime mounts it.
//!
//! A container can put a link into such a volume at any moment. So the kernel resolves the part below the volume in one
//! call (`openat2` with `RESOLVE_BENEATH`), and what was opened is bound, not its path: whatever the container changes
//! meanwhile leads nowhere else. A link that stays in the volume is followed, as by a kubelet
//! (`pkg/volume/util/subpath/subpath_linux.go`). The places are a kubelet's, too.
//!
//! The places on the disk name the mounts: a pod worker that was killed leaves none that the next one does not find.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, mkdirat};

use crate::disk::durable_file::or_absent;
use crate::disk::paths::entries;

/// Calls to open a part while something in the volume is renamed, which the kernel asks to repeat.
const OPENS_MAX: usize = 64;

/// Mounts on one place that are removed.
const MOUNTS_MAX: usize = 16;

/// The directories of a place: of all places of the pod, of the volume, of the container.
const DEPTH: usize = 3;

/// The mode of the directories of places.
const MODE: u32 = 0o700;

/// Why a part of a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartError {
    /// The path has a part that is no name.
    #[error("it is no plain path below the volume")]
    NotPlain,
    /// It leads out of the volume.
    #[error("it leads out of the volume")]
    Outside,
    /// It is a directory, or something else that has no content.
    #[error("it is no file")]
    NoFile,
    /// It has too many bytes.
    #[error("it has more than {bytes_max} bytes")]
    TooLarge {
        /// How many it may have.
        bytes_max: u64,
    },
    /// The kernel cannot open a path safely.
    #[error("the kernel cannot open it safely: it has no openat2, which Linux has since 5.6")]
    OldKernel,
    /// Something of the volume, or of the place.
    #[error("{action}: {source}")]
    File {
        /// What failed.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl PartError {
    fn of(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action, source }
    }
}

/// Binds a part of a volume to its place. A part that is not there is made, as a directory. A place that has it already
/// stays as it is.
///
/// # Errors
/// Nothing is bound.
pub(super) fn bind(volume: &Path, part: &Path, place: &Path) -> Result<(), PartError> {
    if !part.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(PartError::NotPlain);
    }
    let volume = open_volume(volume)?;
    let source = match open(&volume, part) {
        Err(Errno::ENOENT) => {
            make(&volume, part)?;
            open(&volume, part)
        }
        opened => opened,
    };
    let source = source.map_err(error_of)?;
    let found = File::from(source);
    let wanted = found.metadata().map_err(PartError::of("it cannot be looked at"))?;
    let is_bound = || {
        fs::symlink_metadata(place)
            .is_ok_and(|it| (it.dev(), it.ino()) == (wanted.dev(), wanted.ino()))
    };
    if is_bound() {
        return Ok(());
    }
    let failed = PartError::of;
    unbind(place).map_err(failed("its place is in use"))?;
    make_place(place, wanted.is_dir()).map_err(failed("its place cannot be made"))?;
    let opened = PathBuf::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
    let none: Option<&str> = None;
    mount(Some(&opened), place, none, MsFlags::MS_BIND, none)
        .map_err(|error| failed("it cannot be bound")(error.into()))?;
    if is_bound() {
        return Ok(());
    }
    unbind(place).map_err(failed("another file was bound"))?;
    Err(failed("another file was bound")(io::ErrorKind::InvalidData.into()))
}

/// Opens the directory of a volume. The open of anything else could wait: a volume of the host may be a pipe.
fn open_volume(volume: &Path) -> Result<File, PartError> {
    let flags = OFlag::O_DIRECTORY.bits();
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(volume);
    opened.map_err(PartError::of("the volume cannot be opened"))
}

/// Reads a file of a volume.
///
/// # Errors
/// It is no file of the volume, or it has more bytes than `bytes_max`.
pub(super) fn read(volume: &Path, part: &Path, bytes_max: u64) -> Result<Vec<u8>, PartError> {
    let volume = open_volume(volume)?;
    let found = File::from(open(&volume, part).map_err(error_of)?);
    let is_file = found.metadata().map_err(PartError::of("it cannot be looked at"))?.is_file();
    if !is_file {
        // The open of a pipe would wait for its other end.
        return Err(PartError::NoFile);
    }
    let failed = || PartError::of("it cannot be read");
    // What was opened is read, whatever has its name by now. A container can hold a lease on its file, for whose end an
    // ordinary open would wait.
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))
        .map_err(failed())?;
    let mut content = Vec::new();
    opened.take(bytes_max + 1).read_to_end(&mut content).map_err(failed())?;
    if content.len() as u64 > bytes_max {
        Err(PartError::TooLarge { bytes_max })
    } else {
        Ok(content)
    }
}

/// Removes all places below a directory with what is mounted there, and the directory. What is mounted stays as it is.
///
/// # Errors
/// Something is still mounted.
pub(super) fn unbind_all(places: &Path) -> io::Result<()> {
    for volume in entries(places)? {
        for container in entries(&volume.path())? {
            for place in entries(&container.path())? {
                unbind(&place.path())?;
            }
            fs::remove_dir(container.path())?;
        }
        fs::remove_dir(volume.path())?;
    }
    or_absent(fs::remove_dir(places))
}

/// Mounts a file system in memory of so many bytes at a directory, unless one is there.
///
/// # Errors
/// It cannot be mounted.
pub(super) fn mount_memory(dir: &Path, bytes_max: u64) -> io::Result<()> {
    if has_own_file_system(dir)? {
        return Ok(());
    }
    let options = format!("size={bytes_max}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(Some("tmpfs"), dir, Some("tmpfs"), flags, Some(options.as_str()))?)
}

/// Unmounts the file system in memory at a directory, if there is one.
///
/// # Errors
/// It is in use.
pub(super) fn unmount_memory(dir: &Path) -> io::Result<()> {
    if has_own_file_system(dir)? { unmount(dir) } else { Ok(()) }
}

fn has_own_file_system(dir: &Path) -> io::Result<bool> {
    let above = dir.parent().unwrap_or(dir);
    Ok(fs::symlink_metadata(dir)?.dev() != fs::symlink_metadata(above)?.dev())
}

/// Ends whatever is mounted at a path.
fn unmount(path: &Path) -> io::Result<()> {
    for _ in 0..MOUNTS_MAX {
        match umount2(path, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            // Nothing is mounted there.
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => {
                let message = format!("{} stays mounted: {error}", path.display());
                return Err(io::Error::new(io::Error::from(error).kind(), message));
            }
        }
    }
    Err(io::Error::other(format!("{} has too many mounts", path.display())))
}

fn unbind(place: &Path) -> io::Result<()> {
    unmount(place)?;
    let Ok(present) = fs::symlink_metadata(place) else { return Ok(()) };
    // Never what lies below it: something could still be mounted there.
    if present.is_dir() { fs::remove_dir(place) } else { fs::remove_file(place) }
}

fn make_place(place: &Path, is_dir: bool) -> io::Result<()> {
    let above: Vec<&Path> = place.ancestors().skip(1).take(DEPTH).collect();
    for dir in above.into_iter().rev() {
        match fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made?;
                fs::set_permissions(dir, Permissions::from_mode(MODE))?;
            }
        }
    }
    if is_dir { fs::create_dir(place) } else { File::create_new(place).map(drop) }
}

/// Opens a part below a volume, without its content.
fn open(volume: &File, part: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    repeated(|| openat2(volume, part, how))
}

/// Makes the directories of a part that are not there, with the mode of the volume.
fn make(volume: &File, part: &Path) -> Result<(), PartError> {
    let failed = || PartError::of("it cannot be made");
    let mode = volume.metadata().map_err(failed())?.mode() & 0o7777;
    let mut below = PathBuf::from(".");
    for name in part.components() {
        let above = below.clone();
        below.push(name);
        match open(volume, &below) {
            Ok(_) => continue,
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error_of(error)),
        }
        let above = open(volume, &above).map_err(error_of)?;
        match mkdirat(&above, name.as_os_str(), Mode::from_bits_truncate(mode & 0o777)) {
            Ok(()) => {}
            // A container made it just now.
            Err(Errno::EEXIST) => continue,
            Err(error) => return Err(failed()(error.into())),
        }
        // The mask of this process counts for what mkdir makes.
        let made = directory(above.as_fd(), Path::new(name.as_os_str())).map_err(error_of)?;
        File::from(made).set_permissions(Permissions::from_mode(mode)).map_err(failed())?;
    }
    Ok(())
}

fn directory(above: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    repeated(|| openat2(&above, name, how))
}

/// Repeats a call while a rename in the volume lets the kernel give up.
fn repeated(call: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let mut result = call();
    for _ in 0..OPENS_MAX {
        if !matches!(result, Err(Errno::EAGAIN)) {
            break;
        }
        result = call();
    }
    result
}

fn error_of(error: Errno) -> PartError {
    match error {
        Errno::EXDEV | Errno::ELOOP => PartError::Outside,
        Errno::ENOSYS => PartError::OldKernel,
        error => PartError::of("it cannot be opened")(error.into()),
    }
}

#[cfg(test)]
mod tests;
