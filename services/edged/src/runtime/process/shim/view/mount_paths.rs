//! The absolute mountPaths of a view, which need not exist on the host.
//!
//! The directory above a mountPath is covered by a copy in memory: each of its entries is mounted at
//! its own name, and the mountPath is a link to the same path below the container's root
//! directory. The copy itself is read-only; its entries are the host's. An entry that the host makes or
//! replaces later appears when the container starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::{NO_PATH, fix, open};
use crate::runtime::process::mount_point::{ENTRIES_MAX, MountPoint};

/// The directories and links that lead to the mountPaths, besides the entries of the host.
const INODES_OF_LINKS: usize = 4096;

/// A link in a copy.
struct Link {
    /// Its path below the copy.
    below: PathBuf,
    target: PathBuf,
}

/// Shows each path as a link to the same path below `root`. It must be called in a namespace of
/// mounts of this process's own.
pub(super) fn show(root: &Path, paths: &[PathBuf]) -> io::Result<()> {
    let mut copies: BTreeMap<PathBuf, Vec<Link>> = BTreeMap::new();
    for path in paths {
        let failed = |why| io::Error::other(format!("mountPath {}: {why}", path.display()));
        let MountPoint { parent, below } = MountPoint::find(path).map_err(failed)?;
        let target = root.join(path.strip_prefix("/").unwrap_or(path));
        copies.entry(parent).or_default().push(Link { below, target });
    }
    // A directory comes before those in it, and its copy has the host's.
    for (dir, links) in &copies {
        cover(dir, links, root).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot cover {}: {error}", dir.display()))
        })?;
    }
    Ok(())
}

/// Covers the directory by its copy with the links. `root` is an empty place for the copy of the
/// root directory, which cannot be covered and is exchanged instead.
fn cover(dir: &Path, links: &[Link], root: &Path) -> io::Result<()> {
    let is_top = dir == Path::new("/");
    let source = open(dir)?;
    let found = source.metadata()?;
    let entries: Vec<DirEntry> = fs::read_dir(dir)?.take(ENTRIES_MAX).collect::<io::Result<_>>()?;
    let replaced: BTreeSet<&OsStr> =
        links.iter().filter_map(|link| link.below.iter().next()).collect();

    let at = if is_top { root } else { dir };
    let options = format!(
        "mode={:04o},uid={},gid={},size=1m,nr_inodes={}",
        found.mode() & 0o7777,
        found.uid(),
        found.gid(),
        ENTRIES_MAX + INODES_OF_LINKS,
    );
    let bare = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), bare, Some(options.as_str()))?;
    if is_top {
        // The copies of the host's directories do not contain this one.
        mount(NO_PATH, at, NO_PATH, MsFlags::MS_UNBINDABLE, NO_PATH)?;
    }
    for entry in entries.iter().filter(|entry| !replaced.contains(&*entry.file_name())) {
        match copy(&source, entry, &at.join(entry.file_name())) {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => copied.map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", entry.path().display()))
            })?,
        }
    }
    for Link { below, target } in links {
        let path = at.join(below);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        symlink(target, path)?;
    }
    fix(at)?;
    if is_top {
        // The former root directory lies under the new one, and is taken away.
        chdir(at)?;
        pivot_root(".", ".")?;
        umount2(".", MntFlags::MNT_DETACH)?;
        chdir("/")?;
    }
    Ok(())
}

/// Makes an entry of the open directory appear at `to`: links as links, everything else as a mount.
fn copy(dir: &File, entry: &DirEntry, to: &Path) -> io::Result<()> {
    let from = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(entry.file_name());
    let kind = entry.file_type()?;
    if kind.is_symlink() {
        return symlink(fs::read_link(&from)?, to);
    }
    if kind.is_dir() {
        fs::create_dir(to)?;
    } else {
        File::create(to)?;
    }
    Ok(mount(Some(&from), to, NO_PATH, MsFlags::MS_BIND | MsFlags::MS_REC, NO_PATH)?)
}
