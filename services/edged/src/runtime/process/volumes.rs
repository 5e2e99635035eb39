//! Writes volumes to the disk, and links them into the root directories of containers.
//!
//! A process of the host has no mount namespace, so nothing is mounted. A container starts in its
//! own root directory, in which every mountPath is a link to its volume. A command reaches
//! `/etc/app` of its manifest as `etc/app` or `$HEADWATER_ROOT/etc/app`; the absolute path is the
//! host's.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::container::Mount;
use crate::container::volume::{Volume, VolumeContent, VolumeFile};
use crate::disk::file_error::FileError;
use crate::disk::paths::{Paths, entries};
use crate::pod::PodUid;
use crate::runtime::RuntimeError;

/// The link in a volume of files that points to its current files, as under a kubelet.
const DATA: &str = "..data";

/// Writes the pod's volumes, or brings them up to date.
pub(super) fn write(paths: &Paths, pod: &PodUid, volumes: &[Volume]) -> Result<(), RuntimeError> {
    for volume in volumes {
        let path = paths.volumes(pod).join(&volume.name);
        match &volume.content {
            VolumeContent::Files(files) => {
                replace_files(&path, files).map_err(FileError::new("write the files of", &path))?
            }
            VolumeContent::Empty => create(&path)?,
            VolumeContent::Host { path: host, kind } => {
                host_path(&volume.name, Path::new(host), kind)?;
                link(&path, Path::new(host))?;
            }
            VolumeContent::Claim { namespace, name } => {
                let claim = paths.claim(namespace, name);
                create(&claim)?;
                link(&path, &claim)?;
            }
            VolumeContent::Unsupported { kind } => {
                let cause = format!(
                    "the process runtime has no {kind}: use hostPath, emptyDir, a claim, \
                     configMap, secret, downwardAPI or projected"
                );
                return Err(RuntimeError::Volume { volume: volume.name.clone(), cause });
            }
        }
    }
    Ok(())
}

/// Makes a container's root directory with its mounts. Returns its working directory.
pub(super) fn root(
    root: &Path,
    volumes: &Path,
    mounts: &[Mount],
    working_dir: Option<&str>,
) -> Result<PathBuf, RuntimeError> {
    create(root)?;
    for mount in mounts {
        let volume = volumes.join(&mount.volume);
        if !volume.exists() {
            let cause = "a container mounts it, and the pod does not have it".to_owned();
            return Err(RuntimeError::Volume { volume: mount.volume.clone(), cause });
        }
        let target = match &mount.sub_path {
            None => volume,
            Some(sub_path) => {
                let target = volume.join(sub_path);
                let holds_files = volume.join(DATA).is_symlink();
                if !holds_files && !target.exists() {
                    create(&target)?;
                }
                target
            }
        };
        let path = root.join(&mount.path);
        if let Some(parent) = path.parent() {
            create(parent)?;
        }
        check_place(root, mount, &path, &target)?;
        link(&path, &target)?;
    }
    let start = root.join(working_dir.unwrap_or_default().trim_start_matches('/'));
    create(&start)?;
    Ok(start)
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

/// Replaces all files of a volume at once: it writes them beside the old ones, then replaces one
/// link. A reader sees all old files or all new files.
fn replace_files(dir: &Path, files: &BTreeMap<String, VolumeFile>) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let data = dir.join(DATA);
    let old = fs::read_link(&data).ok();
    if old.is_some() && holds(&data, files)? {
        return Ok(());
    }
    let stamp = format!("..{}", Timestamp::now().as_nanosecond());
    let new = dir.join(&stamp);
    fs::create_dir(&new)?;
    for (name, file) in files {
        let path = new.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &file.bytes)?;
        fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    }
    let swapped = dir.join("..data_tmp");
    remove_link(&swapped)?;
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
            remove_link(&entry.path())?;
        } else if name.starts_with("..") && name != DATA && name != stamp {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Whether the directory holds exactly these files.
fn holds(dir: &Path, files: &BTreeMap<String, VolumeFile>) -> io::Result<bool> {
    if count(dir)? != files.len() {
        return Ok(false);
    }
    for (name, file) in files {
        let path = dir.join(name);
        let is_same = match fs::metadata(&path) {
            // A container may have put a pipe there, and a read from it would not end.
            Ok(metadata) => {
                metadata.is_file() && metadata.permissions().mode() & 0o777 == file.mode
            }
            Err(_) => false,
        };
        // A mode may deny reading even to the owner: a file that cannot be read is written again.
        if !is_same || fs::read(&path).ok().as_ref() != Some(&file.bytes) {
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
    match kind {
        "Directory" if !path.is_dir() => wrong("a directory"),
        "File" if !path.is_file() => wrong("a file"),
        "Socket" | "CharDevice" | "BlockDevice" if !path.exists() => wrong("there"),
        "DirectoryOrCreate" => Ok(create(path)?),
        // Opening a pipe would wait for its other end.
        "FileOrCreate" if path.exists() && !path.is_file() => wrong("a file"),
        "FileOrCreate" => {
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            Ok(file.map(drop).map_err(FileError::new("create", path))?)
        }
        _ => Ok(()),
    }
}

fn create(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(FileError::new("create", path))
}

/// Makes `path` a link to `target`. It replaces another link or an empty directory.
fn link(path: &Path, target: &Path) -> Result<(), FileError> {
    if fs::read_link(path).is_ok_and(|present| present == target) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create(parent)?;
    }
    let present = fs::symlink_metadata(path);
    if present.is_ok_and(|present| present.is_dir()) {
        fs::remove_dir(path).map_err(FileError::new("replace", path))?;
    } else {
        remove_link(path).map_err(FileError::new("replace", path))?;
    }
    symlink(target, path).map_err(FileError::new("link", path))
}

fn remove_link(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
