//! Writes volumes to the disk, and links them into the root directories of containers.
//!
//! A container starts in its own root directory, in which every mountPath is a link to its volume. A
//! command reaches `etc/app` of its manifest as such or as `$HEADWATER_ROOT/etc/app`. An absolute
//! mountPath leads there, too (`mount_point`).
//!
//! A container of another user has no rights in the pod worker's directory. Its view of mounts shows
//! it its root directory and its volumes, and its own launch stage makes the links, so that a link
//! that it left there leads no further than its own rights.

use std::collections::BTreeMap;
use std::fs::{self, FileType, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, lchown,
    symlink,
};
use std::path::Path;

use jiff::Timestamp;

use super::claims::ClaimDirectories;
use super::secret_memory::SecretMemory;
use super::{group, parts};
use crate::container::Mount;
use crate::container::driver_volume::VolumeGroup;
use crate::container::volume::{Volume, VolumeContent, VolumeFile};
use crate::disk::durable_file;
use crate::disk::file_error::FileError;
use crate::disk::paths::{Paths, entries};
use crate::pod::PodUid;
use crate::runtime::RuntimeError;
use crate::runtime::process::rights::UserIdentity;
use crate::runtime::process::run_spec::Layout;

/// The link in a volume of files that points to its current files, as under a kubelet.
const DATA: &str = "..data";

/// New files of a directory with this bit have the directory's group.
const SET_GROUP: u32 = 0o2000;

/// The bit of a directory in which a user removes only files of its own: a file system in memory has it.
const STICKY: u32 = 0o1000;

/// Whose processes use the volumes, and so which modes they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum Audience {
    /// This user alone: the others have no rights.
    Owner,
    /// Any user, behind a directory that only this user may enter: the modes of the spec.
    Users,
}

impl Audience {
    fn file(self, mode: u32) -> u32 {
        match self {
            Self::Owner => mode & 0o700,
            Self::Users => mode,
        }
    }

    /// The mode of a directory with the pod worker's files.
    fn own_dir(self) -> u32 {
        self.file(0o755)
    }

    /// The mode of a directory that containers write to: several users may share it.
    fn shared_dir(self) -> u32 {
        self.file(0o777)
    }
}

/// Writes the pod's volumes, or brings them up to date.
pub(in crate::runtime) fn write(
    paths: &Paths,
    claims: &ClaimDirectories,
    memory: &SecretMemory,
    pod: &PodUid,
    volumes: &[Volume],
    audience: Audience,
    hidden: Option<&str>,
) -> Result<(), RuntimeError> {
    create(&paths.volumes(pod), 0o700)?;
    for volume in volumes {
        let path = paths.volumes(pod).join(&volume.name);
        match &volume.content {
            VolumeContent::Files(files) => {
                let memory = memory.volume(pod, &volume.name).filter(|_| volume.is_secret);
                let place = memory.as_ref().unwrap_or(&path);
                write_files(place, &path, files, audience)
                    .map_err(FileError::new("write the files of", place))?;
                if let Some(memory) = &memory {
                    remove_files(&path)?;
                    link(&path, memory)?;
                }
            }
            VolumeContent::Empty { memory_bytes_max } => {
                create(&path, audience.shared_dir())?;
                if let Some(bytes_max) = memory_bytes_max.filter(|_| audience == Audience::Users) {
                    // Its root is open to all and sticky, as under a kubelet.
                    in_memory(volume, &path, bytes_max, hidden)?;
                }
            }
            VolumeContent::Host { path: host, kind } => {
                let host = Path::new(host);
                // Looked at once, as by a kubelet: a container that runs has it, whatever it is by now.
                if !leads(&path, host) {
                    host_path(&volume.name, host, kind)?;
                }
                link(&path, host)?;
            }
            VolumeContent::Local { path: local, is_block, group } => {
                let local = Path::new(local);
                if !leads(&path, local) {
                    check_local(volume, local, *is_block)?;
                }
                let group = group.filter(|_| audience == Audience::Users);
                set_up(volume, &path, (local, group), |at| link(at, local))?;
            }
            VolumeContent::Claim { claim, group } => {
                let data = paths.claim_data(&claim.uid);
                let group = group.filter(|_| audience == Audience::Users);
                let mode = audience.shared_dir();
                set_up(volume, &path, (&data, group), |at| claims.link(claim, mode, at))?;
            }
            VolumeContent::Published { path: published } => link(&path, published)?,
            VolumeContent::Driver(_) => {
                let cause = "the node has no storage drivers (csi): use another volume, or set \
                             plugins_dir of the runtime cri";
                return Err(unmounted(volume, cause));
            }
            VolumeContent::Unsupported { kind } => {
                let cause = format!(
                    "the node mounts no {kind}: use hostPath, emptyDir, a claim, configMap, \
                     secret, downwardAPI or projected"
                );
                return Err(unmounted(volume, cause));
            }
        }
    }
    Ok(())
}

/// Makes the link at `path` to a volume that outlives its pod, with `make`. The volume's files are the pod's group's before
/// the link is there: that is done once for a pod, because there may be many.
fn set_up(
    volume: &Volume,
    path: &Path,
    (target, group): (&Path, Option<VolumeGroup>),
    make: impl Fn(&Path) -> Result<(), FileError>,
) -> Result<(), RuntimeError> {
    let Some(group) = group.filter(|_| !leads(path, target)) else { return Ok(make(path)?) };
    // Until then another link has the directory of a claim stay. No volume has its name.
    let pending = path.with_file_name(format!(".{}", volume.name));
    make(&pending)?;
    let given = fs::canonicalize(target).and_then(|root| group::give(&root, group));
    given.map_err(|error| unmounted(volume, format!("applyFSGroup failed: {error}")))?;
    make(path)?;
    durable_file::remove(&pending).map_err(FileError::new("remove", &pending))?;
    Ok(())
}

/// Checks that a `local` volume is there.
fn check_local(volume: &Volume, path: &Path, is_block: bool) -> Result<(), RuntimeError> {
    if is_block {
        return host_path(&volume.name, path, "BlockDevice");
    }
    if path.is_absolute() && path.exists() {
        return Ok(());
    }
    // The words of a kubelet.
    Err(unmounted(volume, format!("path {:?} does not exist", path.display().to_string())))
}

/// Whether the link at `path` leads to `target`.
fn leads(path: &Path, target: &Path) -> bool {
    fs::read_link(path).is_ok_and(|present| present == target)
}

fn unmounted(volume: &Volume, cause: impl Into<String>) -> RuntimeError {
    RuntimeError::Volume { volume: volume.name.clone(), cause: cause.into() }
}

/// Gives an emptyDir a file system in memory.
fn in_memory(
    volume: &Volume,
    path: &Path,
    bytes_max: u64,
    hidden: Option<&str>,
) -> Result<(), RuntimeError> {
    if let Some(why) = hidden {
        return Err(unmounted(volume, format!("it cannot lie in memory: {why}")));
    }
    parts::mount_memory(path, bytes_max).map_err(FileError::new("mount memory at", path))?;
    Ok(())
}

/// Checks that the pod has every volume that the container mounts.
pub(in crate::runtime) fn check(layout: &Layout) -> Result<(), RuntimeError> {
    match layout.mounts.iter().find(|mount| !layout.volumes.join(&mount.volume).exists()) {
        None => Ok(()),
        Some(mount) => {
            let cause = "a container mounts it, and the pod does not have it".to_owned();
            Err(RuntimeError::Volume { volume: mount.volume.clone(), cause })
        }
    }
}

/// Gives a container of another user its root directory, and its volumes the pod's group.
pub(in crate::runtime) fn give(
    layout: &Layout,
    identity: &UserIdentity,
    fs_group: Option<u32>,
) -> Result<(), RuntimeError> {
    let root = &layout.root;
    create(root, Audience::Users.own_dir())?;
    // The directory above belongs to the pod worker: this is no link of the container.
    lchown(root, Some(identity.user), Some(identity.group))
        .map_err(FileError::new("give", root))?;
    let Some(group) = fs_group else { return Ok(()) };
    give_group(&layout.volumes, &layout.mounts, group)
}

/// Gives the volumes that are of the pod alone the pod's group, as far as a container mounts them. A volume that
/// outlives its pod got it when it was set up.
pub(in crate::runtime) fn give_group(
    volumes: &Path,
    mounts: &[Mount],
    group: u32,
) -> Result<(), RuntimeError> {
    for mount in mounts {
        let path = volumes.join(&mount.volume);
        let real = fs::canonicalize(&path).map_err(FileError::new("look at", &path))?;
        if mount.is_written_here {
            give_files(&real, group).map_err(FileError::new("give", &real))?;
        } else if real.starts_with(volumes) {
            let found = fs::metadata(&real).map_err(FileError::new("look at", &real))?;
            chown(&real, None, Some(group)).map_err(FileError::new("give", &real))?;
            let sticky = found.mode() & STICKY;
            set_mode(&real, SET_GROUP | sticky | Audience::Users.shared_dir())?;
        }
    }
    Ok(())
}

/// Gives the pod worker's own files a group, which may read them. Files that replace them later
/// inherit it.
fn give_files(path: &Path, group: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(());
    }
    chown(path, None, Some(group))?;
    let more = if found.is_dir() { SET_GROUP | 0o550 } else { 0o440 };
    // A change of the group takes the bit back.
    fs::set_permissions(path, Permissions::from_mode(found.mode() & 0o7777 | more))?;
    if found.is_dir() {
        for entry in entries(path)? {
            give_files(&entry.path(), group)?;
        }
    }
    Ok(())
}

/// Makes a container's root directory with its mounts, and its working directory.
pub(in crate::runtime) fn root(layout: &Layout) -> Result<(), RuntimeError> {
    let Layout { root, volumes, mounts, .. } = layout;
    let mode = Audience::Users.own_dir();
    create(root, mode)?;
    for mount in mounts {
        let volume = volumes.join(&mount.volume);
        let target = match &mount.sub_path {
            None => volume,
            Some(sub_path) => {
                let target = volume.join(sub_path);
                if !mount.is_written_here && !target.exists() {
                    create(&target, mode)?;
                }
                target
            }
        };
        let path = root.join(&mount.path);
        if let Some(parent) = path.parent() {
            create(parent, mode)?;
        }
        check_place(root, mount, &path, &target)?;
        link(&path, &target)?;
    }
    Ok(create(&layout.start(), mode)?)
}

/// Checks that a mount replaces nothing in another volume. A mount below another mount lies in the
/// other's volume, which may be a directory of the host or outlive the pod.
fn check_place(root: &Path, mount: &Mount, path: &Path, target: &Path) -> Result<(), RuntimeError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let real = |path: &Path| fs::canonicalize(path).map_err(FileError::new("look at", path));
    let is_own = real(parent)?.starts_with(real(root)?);
    let is_link = fs::read_link(path).is_ok_and(|present| present == target);
    // An earlier pod left a link whose target is gone.
    if is_own || is_link || !path.exists() {
        return Ok(());
    }
    let cause = format!(
        "its mountPath /{} lies in another volume, which has something there: the process runtime \
         makes links, and would have to replace it",
        mount.path.display()
    );
    Err(RuntimeError::Volume { volume: mount.volume.clone(), cause })
}

/// Writes the files of a volume to `dir`. Files without content are those at `present`: a secret volume moves
/// to memory when the pod worker starts again.
fn write_files(
    dir: &Path,
    present: &Path,
    files: &BTreeMap<String, VolumeFile>,
    audience: Audience,
) -> io::Result<()> {
    let complete = with_kept(&present.join(DATA), files, audience);
    replace_files(dir, complete.as_ref().unwrap_or(files), audience)
}

/// Replaces all files of a volume at once: it writes them beside the old ones, then replaces one
/// link. A reader sees all old files or all new files.
fn replace_files(
    dir: &Path,
    files: &BTreeMap<String, VolumeFile>,
    audience: Audience,
) -> io::Result<()> {
    create_dirs(dir, audience.own_dir())?;
    // The pod's group, which may read every file.
    let group_bits = fs::metadata(dir)?.mode() & SET_GROUP;
    let more = if group_bits == 0 { 0 } else { 0o440 };
    let mode = |file: &VolumeFile| audience.file(file.mode) | more;
    let data = dir.join(DATA);
    let old = fs::read_link(&data).ok();
    if old.is_some() && holds(&data, files, mode)? {
        return Ok(());
    }
    let stamp = format!("..{}", Timestamp::now().as_nanosecond());
    let new = dir.join(&stamp);
    create_dirs(&new, audience.own_dir() | group_bits)?;
    for (name, file) in files {
        let path = new.join(name);
        if let Some(parent) = path.parent() {
            create_dirs(parent, audience.own_dir() | group_bits)?;
        }
        // Its mode is the final one before others may read it.
        let mut new_file = fs::OpenOptions::new();
        let mut new_file = new_file.write(true).create_new(true).mode(0o600).open(&path)?;
        new_file.write_all(file.bytes.as_deref().unwrap_or_default())?;
        if let Some(owner) = file.owner {
            chown(&path, Some(owner), None)?;
        }
        fs::set_permissions(&path, Permissions::from_mode(mode(file)))?;
    }
    let swapped = dir.join("..data_tmp");
    durable_file::remove(&swapped)?;
    symlink(&stamp, &swapped)?;
    fs::rename(&swapped, &data)?;
    let first = |name: &String| name.split('/').next().unwrap_or_default().to_owned();
    let visible: std::collections::BTreeSet<String> = files.keys().map(first).collect();
    for name in &visible {
        let link = dir.join(name);
        if !link.is_symlink() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    for entry in entries(dir)? {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !visible.contains(&name) {
            durable_file::remove(&entry.path())?;
        } else if name.starts_with("..") && name != DATA && name != stamp {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The files with the content of those that stay as they are, and without those that are not there, or
/// `None` if each file has its own content. Only a runtime that runs containers as other users gives files away.
fn with_kept(
    dir: &Path,
    files: &BTreeMap<String, VolumeFile>,
    audience: Audience,
) -> Option<BTreeMap<String, VolumeFile>> {
    let is_final = |file: &VolumeFile| {
        file.bytes.is_some() && (file.owner.is_none() || audience == Audience::Users)
    };
    if files.values().all(is_final) {
        return None;
    }
    let present = |name: &String| {
        let path = dir.join(name);
        // A container may have put a pipe there, and a read from it would not end.
        let is_file = fs::metadata(&path).is_ok_and(|found| found.is_file());
        if is_file { fs::read(&path).ok() } else { None }
    };
    let complete = files.iter().filter_map(|(name, file)| {
        let bytes = file.bytes.clone().or_else(|| present(name))?;
        let owner = file.owner.filter(|_| audience == Audience::Users);
        Some((name.clone(), VolumeFile { bytes: Some(bytes), mode: file.mode, owner }))
    });
    Some(complete.collect())
}

/// Whether the directory holds exactly these files, with these modes and owners.
fn holds(
    dir: &Path,
    files: &BTreeMap<String, VolumeFile>,
    mode: impl Fn(&VolumeFile) -> u32,
) -> io::Result<bool> {
    if count(dir)? != files.len() {
        return Ok(false);
    }
    for (name, file) in files {
        let path = dir.join(name);
        let is_same = match fs::metadata(&path) {
            // A container may have put a pipe there, and a read from it would not end.
            Ok(metadata) => {
                metadata.is_file()
                    && metadata.permissions().mode() & 0o777 == mode(file)
                    && file.owner.is_none_or(|owner| metadata.uid() == owner)
            }
            Err(_) => false,
        };
        // A mode may deny reading even to the owner: a file that cannot be read is written again.
        if !is_same || fs::read(&path).ok() != file.bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

fn count(dir: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in entries(dir)? {
        files += if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 };
    }
    Ok(files)
}

/// Checks a path of the host by its hostPath type, or makes it.
fn host_path(volume: &str, path: &Path, kind: &str) -> Result<(), RuntimeError> {
    let wrong = |what: &str| {
        let cause = format!("hostPath {} is not {what}", path.display());
        Err(RuntimeError::Volume { volume: volume.to_owned(), cause })
    };
    if !path.is_absolute() {
        return wrong("an absolute path");
    }
    let is_of =
        |of: fn(&FileType) -> bool| fs::metadata(path).is_ok_and(|found| of(&found.file_type()));
    match kind {
        "Directory" if !path.is_dir() => wrong("a directory"),
        "File" if !path.is_file() => wrong("a file"),
        "Socket" if !is_of(FileType::is_socket) => wrong("a socket"),
        "CharDevice" if !is_of(FileType::is_char_device) => wrong("a character device"),
        "BlockDevice" if !is_of(FileType::is_block_device) => wrong("a block device"),
        "DirectoryOrCreate" => Ok(create(path, 0o755)?),
        // Under a kubelet the runtime makes it.
        "" if !path.exists() => Ok(create(path, 0o755)?),
        // Opening a pipe would wait for its other end.
        "FileOrCreate" if path.exists() && !path.is_file() => wrong("a file"),
        "FileOrCreate" if path.exists() => Ok(()),
        "FileOrCreate" => {
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            file.map_err(FileError::new("create", path))?;
            Ok(set_mode(path, 0o644)?)
        }
        _ => Ok(()),
    }
}

/// Makes a directory and those above it, with this mode. A directory that exists keeps its mode.
pub(in crate::runtime) fn create(path: &Path, mode: u32) -> Result<(), FileError> {
    create_dirs(path, mode).map_err(FileError::new("create", path))
}

/// Makes a directory and those above it, with this mode whatever the process's mask. A directory that
/// exists keeps its mode.
fn create_dirs(path: &Path, mode: u32) -> io::Result<()> {
    let is_dir = |path: &Path| path.as_os_str().is_empty() || path.is_dir();
    let missing: Vec<_> = path.ancestors().take_while(|path| !is_dir(path)).collect();
    for path in missing.into_iter().rev() {
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            made => {
                made?;
                fs::set_permissions(path, Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(FileError::new("protect", path))
}

/// Removes a directory of files, to make room for a link.
fn remove_files(path: &Path) -> Result<(), FileError> {
    if fs::symlink_metadata(path).is_ok_and(|present| present.is_dir()) {
        fs::remove_dir_all(path).map_err(FileError::new("replace", path))?;
    }
    Ok(())
}

/// Makes `path` a link to `target`. It replaces another link or an empty directory.
pub(in crate::runtime) fn link(path: &Path, target: &Path) -> Result<(), FileError> {
    if leads(path, target) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create(parent, 0o700)?;
    }
    let present = fs::symlink_metadata(path);
    if present.is_ok_and(|present| present.is_dir()) {
        fs::remove_dir(path).map_err(FileError::new("replace", path))?;
    } else {
        durable_file::remove(path).map_err(FileError::new("replace", path))?;
    }
    symlink(target, path).map_err(FileError::new("link", path))
}

#[cfg(test)]
mod tests;
