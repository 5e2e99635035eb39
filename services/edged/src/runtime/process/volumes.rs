//! Volumes on the disk, and how a container sees them.
//!
//! A process of the host has no mount namespace of its own, so nothing is mounted: a container
//! starts in a root directory of its own, in which every mountPath is a link to its volume. A
//! command reaches `/etc/app` of its manifest as `etc/app`, or as `$HEADWATER_ROOT/etc/app`; the
//! absolute path is the host's.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::container::Mount;
use crate::container::volume::{Volume, VolumeContent, VolumeFile};
use crate::disk::paths::{Paths, entries};
use crate::pod::PodRecord;
use crate::runtime::RuntimeError;

/// What a volume of files points at, as under a kubelet.
const DATA: &str = "..data";

/// Lays the pod's volumes out, or brings them up to date.
pub(super) fn write(
    paths: &Paths,
    pod: &PodRecord,
    volumes: &[Volume],
) -> Result<(), RuntimeError> {
    for volume in volumes {
        let path = paths.volumes(&pod.uid).join(&volume.name);
        match &volume.content {
            VolumeContent::Files(files) => replace_files(&path, files)
                .map_err(RuntimeError::file("write the files of", &path))?,
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
                let why = format!(
                    "the process runtime has no {kind}: use hostPath, emptyDir, a claim, \
                     configMap, secret, downwardAPI or projected"
                );
                return Err(RuntimeError::Volume { volume: volume.name.clone(), why });
            }
        }
    }
    Ok(())
}

/// Makes a container's root: its mounts, and the directory it starts in, which is returned.
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
            let why = "a container mounts it, and the pod does not have it".to_owned();
            return Err(RuntimeError::Volume { volume: mount.volume.clone(), why });
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
        spare(root, mount, &path, &target)?;
        link(&path, &target)?;
    }
    let start = root.join(working_dir.unwrap_or_default().trim_start_matches('/'));
    create(&start)?;
    Ok(start)
}

/// A mount below another lies in that other's volume, which may be a folder of the host or
/// outlive the pod: what is there is not ours to replace by a link.
fn spare(root: &Path, mount: &Mount, path: &Path, target: &Path) -> Result<(), RuntimeError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let real = |path: &Path| fs::canonicalize(path).map_err(RuntimeError::file("look at", path));
    let is_own = real(parent)?.starts_with(real(root)?);
    let is_link = fs::read_link(path).is_ok_and(|present| present == target);
    // A link that leads nowhere is what an earlier pod left.
    if is_own || is_link || !path.exists() {
        return Ok(());
    }
    let why = format!(
        "its mountPath /{} lies in another volume, which has something there: the process runtime \
         makes links, and would have to replace it",
        mount.path.display()
    );
    Err(RuntimeError::Volume { volume: mount.volume.clone(), why })
}

/// Replaces all files of a volume at once: they are written beside the old ones, then one link
/// is swapped. A reader sees all of the old or all of the new.
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
            // What a container has put there may be a pipe, whose reading would not end.
            Ok(metadata) => {
                metadata.is_file() && metadata.permissions().mode() & 0o777 == file.mode
            }
            Err(_) => false,
        };
        // A mode may deny reading even to the owner; what cannot be compared is written again.
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

/// Checks a path of the host as its hostPath type says, or makes it.
fn host_path(volume: &str, path: &Path, kind: &str) -> Result<(), RuntimeError> {
    let wrong = |what: &str| {
        let why = format!("hostPath {} is not {what}", path.display());
        Err(RuntimeError::Volume { volume: volume.to_owned(), why })
    };
    if !path.is_absolute() {
        return wrong("an absolute path");
    }
    match kind {
        "Directory" if !path.is_dir() => wrong("a directory"),
        "File" if !path.is_file() => wrong("a file"),
        "Socket" | "CharDevice" | "BlockDevice" if !path.exists() => wrong("there"),
        "DirectoryOrCreate" => create(path),
        // To open a pipe would wait for its other end.
        "FileOrCreate" if path.exists() && !path.is_file() => wrong("a file"),
        "FileOrCreate" => {
            let file = fs::OpenOptions::new().append(true).create(true).open(path);
            file.map(drop).map_err(RuntimeError::file("create", path))
        }
        _ => Ok(()),
    }
}

fn create(path: &Path) -> Result<(), RuntimeError> {
    fs::create_dir_all(path).map_err(RuntimeError::file("create", path))
}

/// Makes `path` a link to `target`, in place of another link or an empty directory.
fn link(path: &Path, target: &Path) -> Result<(), RuntimeError> {
    if fs::read_link(path).is_ok_and(|present| present == target) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create(parent)?;
    }
    let present = fs::symlink_metadata(path);
    if present.is_ok_and(|present| present.is_dir()) {
        fs::remove_dir(path).map_err(RuntimeError::file("replace", path))?;
    } else {
        remove_link(path).map_err(RuntimeError::file("replace", path))?;
    }
    symlink(target, path).map_err(RuntimeError::file("link", path))
}

fn remove_link(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
