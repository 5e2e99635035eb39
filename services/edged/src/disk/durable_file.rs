//! Writes files and directories that survive a loss of power: a file is whole or absent.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Only the owner may read the files: they may contain secrets.
const MODE: u32 = 0o600;

/// The largest value: the status of a pod, which has at most 1.5 MiB in the cloud.
const BYTES_MAX: u64 = 4 << 20;

/// Files that were moved aside. More of them are a disk that damages files, and the last one is replaced.
const DAMAGED_MAX: u32 = 10;

/// Only the owner may enter the directories.
const DIR_MODE: u32 = 0o700;

/// Writes a value as JSON and syncs it. A reader sees the former content or the new one.
///
/// # Errors
/// The errors of the file system, and `InvalidData` for a value that is too large to be read again. The former content
/// stays.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(too_large());
    }
    let temporary = path.with_extension("tmp");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&temporary)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_parent(path)
}

/// Makes what was done to the name of a file durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Removes a file. Succeeds if there is none.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    or_absent(fs::remove_file(path))
}

/// [Removes](remove) a file, and syncs its directory: it does not come back after a loss of power. Does nothing if there is
/// no file.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn remove_durably(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_parent(path)),
    }
}

/// The result of a removal. It succeeds also if there was nothing to remove.
///
/// # Errors
/// Those of the removal.
pub fn or_absent(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Makes the directory `path` below the existing `base`, with all directories between them. Each is
/// synced in the one above it, because a file is lost with any directory above it.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn create_dir(base: &Path, path: &Path) -> io::Result<()> {
    let below = path.strip_prefix(base).map_err(io::Error::other)?;
    let mut above = base.to_owned();
    for name in below {
        let dir = above.join(name);
        match DirBuilder::new().mode(DIR_MODE).create(&dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            made => made?,
        }
        // Also if it existed: a crash may have interrupted its creation before this sync.
        let here = if above.as_os_str().is_empty() { Path::new(".") } else { &above };
        File::open(here)?.sync_all()?;
        above = dir;
    }
    Ok(())
}

/// Reads a value; `None` if there is no file. A container of this user may have put something else
/// in its place: this function neither waits for a pipe, nor follows a link, nor reads without end.
///
/// # Errors
/// The errors of the file system, and `InvalidData` for a file with other content.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let mut bytes = Vec::new();
    if file.take(BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > BYTES_MAX {
        return Err(too_large());
    }
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Renames a file that cannot be read, and returns its new name.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let name = |number: u32| path.with_extension(format!("{extension}.damaged-{number}"));
    let free = (1..DAMAGED_MAX).map(name).find(|aside| !aside.exists());
    let aside = free.unwrap_or_else(|| name(DAMAGED_MAX));
    fs::rename(path, &aside)?;
    Ok(aside)
}

fn too_large() -> io::Error {
    let what = format!("it has more than {BYTES_MAX} bytes");
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_file_of_bounded_size_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = |name: &str| dir.path().join(name);
        write(&of("value"), &7).expect("written");
        std::os::unix::fs::symlink(of("value"), of("link")).expect("a link");
        nix::unistd::mkfifo(&of("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        File::create(of("large")).and_then(|file| file.set_len(BYTES_MAX + 1)).expect("a hole");
        assert_eq!(read(&of("value")).expect("read"), Some(7));
        assert_eq!(read::<u32>(&of("absent")).expect("no file"), None);
        for name in ["link", "pipe", "large", "."] {
            read::<u32>(&of(name)).expect_err(name);
        }
        let large = "x".repeat(usize::try_from(BYTES_MAX).expect("small"));
        write(&of("value"), &large).expect_err("nothing reads it");
        assert_eq!(read(&of("value")).expect("read"), Some(7));
    }

    #[test]
    fn a_directory_is_made_with_all_directories_above_it() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("a/b/c");
        create_dir(base.path(), &path).expect("makes three");
        create_dir(base.path(), &path).expect("are there already");
        assert!(path.is_dir());
        create_dir(&path, base.path()).expect_err("not below it");
        fs::write(path.join("file"), "").expect("a file");
        create_dir(base.path(), &path.join("file")).expect_err("a file is no directory");
    }
}
