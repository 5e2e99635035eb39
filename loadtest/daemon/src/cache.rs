//! The folder in the user's cache that keeps what every clone and every process shares.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::error::DaemonError;

/// Our folder in the user's cache.
const CACHE_NAME: &str = "headwater";

/// The file that is locked.
const LOCK: &str = "lock";

/// A folder in the cache.
#[derive(Clone, Debug)]
pub struct CacheFolder {
    path: PathBuf,
}

/// The exclusive right to change a folder of the cache, until it is dropped.
#[derive(Debug)]
pub struct CacheLock {
    /// The kernel unlocks it when it is closed.
    _file: File,
}

impl CacheFolder {
    /// The folder `name` of the user's cache; it keeps `what`.
    ///
    /// # Errors
    /// The environment names no cache.
    pub fn find(what: &str, name: &str) -> Result<Self, DaemonError> {
        let wanted = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || wanted("HOME").map(|home| home.join(".cache"));
        let cache = wanted("XDG_CACHE_HOME").or_else(home);
        let cache = cache.ok_or_else(|| DaemonError::NoCache { what: what.to_owned() })?;
        Ok(Self { path: cache.join(CACHE_NAME).join(name) })
    }

    /// A folder at another place.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder and locks it. When another process holds the lock, it calls `waiting`
    /// and waits.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn lock(&self, waiting: impl FnOnce()) -> Result<CacheLock, DaemonError> {
        fs::create_dir_all(&self.path).map_err(DaemonError::file(&self.path))?;
        let lock = self.path.join(LOCK);
        let file = File::create(&lock).map_err(DaemonError::file(&lock))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock().map_err(DaemonError::file(&lock))?;
            }
            Err(TryLockError::Error(error)) => return Err(DaemonError::file(&lock)(error)),
        }
        Ok(CacheLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn the_second_lock_waits_for_the_first() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = CacheFolder::at(scratch.path().join("new"));
        let first = folder.lock(|| panic!("it is free")).expect("a lock");
        let (waits, waiting) = mpsc::sync_channel(1);
        let second = thread::spawn({
            let folder = folder.clone();
            move || folder.lock(|| waits.send(()).expect("a reader")).map(drop)
        });
        waiting.recv().expect("the second waits");
        drop(first);
        second.join().expect("no panic").expect("a lock");
    }
}
