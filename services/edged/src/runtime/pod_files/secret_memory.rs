//! The place of secret volumes: a file system in memory, where there is one.
//!
//! Its directory is named after the pod worker's directory, and a file in it has that path. What
//! another pod worker of this user left there without its directory is removed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use crate::disk::durable_file::or_absent;
use crate::disk::paths::entries;
use crate::pod::PodUid;

/// The file system in memory that Linux has for every user.
const MEMORY: &str = "/dev/shm";

/// The beginning of our directories' names.
const PREFIX: &str = "headwater-secrets-";

/// The file with the path of the pod worker's directory.
const OWNER: &str = "..owner";

/// The directory of secret volumes; `None` where no file system is in memory.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct SecretMemory(Option<PathBuf>);

impl SecretMemory {
    /// Makes the directory for the pod worker's directory `dir`, which it makes, too, at the first start. Where that fails, secret volumes lie
    /// on the disk, where only this user reads them.
    pub(in crate::runtime) fn open(dir: &Path) -> Self {
        let is_memory = statfs(MEMORY).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC);
        if !is_memory {
            return Self(None);
        }
        let opened = Self::open_in(Path::new(MEMORY), dir);
        if let Err(error) = &opened {
            tracing::info!(%error, "secret volumes lie on the disk: {MEMORY} cannot be used");
        }
        Self(opened.ok())
    }

    fn open_in(memory: &Path, dir: &Path) -> io::Result<PathBuf> {
        remove_orphans(memory)?;
        // The first start of a data directory comes before the first pod.
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let path = memory.join(name_of(dir)?);
        match DirBuilder::new().mode(0o700).create(&path) {
            // Everyone may make directories here: it counts only if it is ours and closed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_own(&path)? => {}
            made => made?,
        }
        fs::write(path.join(OWNER), dir.as_os_str().as_encoded_bytes())?;
        Ok(path)
    }

    /// The directory of a pod's secret volume.
    pub(in crate::runtime) fn volume(&self, pod: &PodUid, volume: &str) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(pod.as_str()).join(volume))
    }

    /// Removes the secret volumes of a pod.
    pub(in crate::runtime) fn remove(&self, pod: &PodUid) -> io::Result<()> {
        let Some(dir) = &self.0 else { return Ok(()) };
        or_absent(fs::remove_dir_all(dir.join(pod.as_str())))
    }

    /// Removes the secret volumes of pods that are not on this machine.
    pub(in crate::runtime) fn keep(&self, is_here: impl Fn(&str) -> bool) -> io::Result<()> {
        let Some(dir) = &self.0 else { return Ok(()) };
        for entry in entries(dir)? {
            let name = entry.file_name();
            if entry.file_type()?.is_dir() && !name.to_str().is_some_and(&is_here) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

/// The name for a pod worker's directory, which no other present directory has.
fn name_of(dir: &Path) -> io::Result<String> {
    let found = fs::metadata(dir)?;
    Ok(format!("{PREFIX}{}-{}", found.dev(), found.ino()))
}

/// Whether it is a directory of this user that no other user may enter.
fn is_own(path: &Path) -> io::Result<bool> {
    let found = fs::symlink_metadata(path)?;
    let own = nix::unistd::geteuid().as_raw();
    Ok(found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0)
}

/// Removes directories of this user whose pod worker's directory is gone.
fn remove_orphans(memory: &Path) -> io::Result<()> {
    for entry in entries(memory)? {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        // Another process may remove it just now.
        if !is_own(&path).unwrap_or(false) {
            continue;
        }
        let Ok(owner) = fs::read_to_string(path.join(OWNER)) else { continue };
        if name_of(Path::new(&owner)).ok().as_deref() != Some(name) {
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_directory_that_is_gone_are_removed_and_others_stay() {
        let (memory, home) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
        // As before the first start.
        let (a, b) = (home.path().join("a"), home.path().join("b"));
        let open = |dir| SecretMemory(SecretMemory::open_in(memory.path(), dir).ok());
        let (of_a, of_b) = (open(&a), open(&b));
        let pod = PodUid::try_from("u1".to_owned()).expect("a UID");
        let volume = |memory: &SecretMemory| memory.volume(&pod, "keys").expect("in memory");
        for memory in [&of_a, &of_b] {
            fs::create_dir_all(volume(memory)).expect("made");
        }
        assert_ne!(volume(&of_a), volume(&of_b));
        fs::remove_dir(&a).expect("removed");
        open(&b).keep(|name| name == "u1").expect("kept");
        assert!(!volume(&of_a).exists() && volume(&of_b).exists());
        of_b.keep(|_| false).expect("removed");
        of_b.remove(&pod).expect("removed again");
        assert!(!volume(&of_b).exists());
    }

    #[test]
    fn a_directory_that_others_may_enter_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let (memory, dir) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
        let path = memory.path().join(name_of(dir.path()).expect("it exists"));
        fs::create_dir(&path).expect("made beforehand");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("opened");
        SecretMemory::open_in(memory.path(), dir.path()).expect_err("it is open");
    }
}
