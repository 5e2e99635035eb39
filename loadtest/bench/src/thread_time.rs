//! How long a thread has run on a processor: a witness that neighbours move less than they move
//! the clock.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A thread of this process, as the kernel accounts for it.
pub(crate) struct ThreadTime(PathBuf);

impl ThreadTime {
    /// Of the thread that asks.
    pub(crate) fn current() -> Self {
        Self(fs::canonicalize("/proc/thread-self").unwrap_or_default())
    }

    /// Of the thread of this name, as far as the kernel keeps names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let tasks = fs::read_dir("/proc/self/task").ok()?;
        let mut tasks = tasks.flatten().map(|task| task.path());
        let found = tasks.find(|task| {
            let comm = fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.starts_with(comm.trim_end()) && !comm.trim_end().is_empty()
        });
        found.map(Self)
    }

    /// How long so far; nothing once it has ended.
    pub(crate) fn taken(&self) -> Duration {
        let text = fs::read_to_string(self.0.join("schedstat")).unwrap_or_default();
        let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_found_by_its_name() {
        let thread = std::thread::Builder::new().name("busy bee of the test".to_owned());
        let found = thread.spawn(|| {
            let found = ThreadTime::named("busy bee of the test").map(|thread| thread.0);
            found.zip(fs::canonicalize("/proc/thread-self").ok())
        });
        let (found, is) = found.expect("starts").join().expect("ends").expect("Linux");
        assert_eq!(found.file_name(), is.file_name());
        assert!(ThreadTime::named("nobody").is_none());
    }
}
