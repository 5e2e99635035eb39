//! The container's own view of mounts: its directory and its volumes at their own paths, and
//! nothing else of the pod worker's. `mount_paths` shows the volumes at the paths of the spec, too.
//!
//! Only the owner may enter the directories above a pod's. In the view the first such directory is
//! empty, but for the paths that lead to the container's own places.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::runtime::process::run_spec::View;

mod mount_paths;

/// The paths to the places: a few directories.
const COVER_OPTIONS: &str = "mode=0755,size=1m,nr_inodes=4096";

const NO_PATH: Option<&Path> = None;

/// Moves this process to the view. It must have one thread, and the rights of root.
pub(super) fn enter(view: &View) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // What the host unmounts is unmounted here, too; what is mounted here stays here.
    mount(NO_PATH, "/", NO_PATH, MsFlags::MS_REC | MsFlags::MS_SLAVE, NO_PATH)?;
    let cover = first_closed(&view.dir)?;
    // Opened before they are covered.
    let sources: io::Result<Vec<File>> = view.places.iter().map(|at| open(&at.path)).collect();
    let sources = sources?;
    let bare = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), &cover, Some("tmpfs"), bare, Some(COVER_OPTIONS))?;
    for (place, source) in view.places.iter().zip(&sources) {
        show(source, &place.path, place.read_only)
            .map_err(|error| io::Error::new(error.kind(), format!("{:?}: {error}", place.path)))?;
    }
    fix(&cover)?;
    mount_paths::show(&view.root, &view.mount_paths)
}

/// Makes a directory of this view read-only. What is mounted below it stays as it is.
fn fix(path: &Path) -> io::Result<()> {
    let bare = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let fixed = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | bare;
    Ok(mount(NO_PATH, path, NO_PATH, fixed, NO_PATH)?)
}

/// The first directory from the root down to `dir` that others may not enter; `dir` if there is
/// none.
fn first_closed(dir: &Path) -> io::Result<PathBuf> {
    let mut above: Vec<&Path> = dir.ancestors().collect();
    above.reverse();
    for path in above {
        if fs::metadata(path)?.permissions().mode() & 0o001 == 0 {
            return Ok(path.to_owned());
        }
    }
    Ok(dir.to_owned())
}

/// Opens a file or directory of any kind, only to mount it.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_PATH.bits()).open(path).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot open {}: {error}", path.display()))
    })
}

/// Mounts the open file or directory at `path`.
fn show(source: &File, path: &Path, read_only: bool) -> io::Result<()> {
    if source.metadata()?.is_dir() {
        fs::create_dir_all(path)?;
    } else {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        File::create(path)?;
    }
    let from = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
    mount(Some(&from), path, NO_PATH, MsFlags::MS_BIND | MsFlags::MS_REC, NO_PATH)?;
    if !read_only {
        return Ok(());
    }
    // The other flags of the mount stay.
    let present = statvfs(path)?.flags();
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    for (is, flag) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ] {
        flags.set(flag, present.contains(is));
    }
    Ok(mount(NO_PATH, path, NO_PATH, flags, NO_PATH)?)
}
