//! The progress of a first build. For a quarter of an hour cargo shows one line, that it builds
//! RocksDB; this counts the compiled files of its C++ meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::place::{Place, Profile};
use crate::step::{Failure, minutes};

/// The C++ files of RocksDB. The count is for display alone.
const FILES: usize = 343;

/// What they took on two cores, beside the Rust crates.
const TOOK: &str = "13 min on two cores";

/// The wait between two lines.
const INTERVAL: Duration = Duration::from_secs(30);

/// Runs `build`, and prints every half minute how far RocksDB is, if this cache has none of `profile`.
///
/// # Errors
/// Those of `build`.
pub(crate) fn watched(
    place: &Place,
    profile: Profile,
    build: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    if place.is_warm(profile) {
        return build();
    }
    let builds = place.binaries(profile).join("build");
    let (done, is_done) = mpsc::sync_channel::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            let began = Instant::now();
            let mut shown = 0;
            while is_done.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let files = compiled(&builds);
                if files > shown {
                    shown = files;
                    let so_far = minutes(began.elapsed());
                    eprintln!("xtask: RocksDB: {files} of {FILES} files after {so_far} ({TOOK})");
                }
            }
        });
        let result = build();
        drop(done);
        result
    })
}

/// The files of RocksDB that are compiled below cargo's folder of build scripts.
fn compiled(builds: &Path) -> usize {
    let folders = entries(builds).filter(|folder| {
        let name = folder.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("librocksdb-sys-")
    });
    let objects = folders.flat_map(|folder| entries(&folder.join("out")));
    objects.filter(|file| file.extension().is_some_and(|ending| ending == "o")).count()
}

/// The content of a folder; nothing if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiled_files_of_rocksdb_are_counted_and_no_others() {
        let folder = std::env::temp_dir().join(format!("headwater-xtask-{}", std::process::id()));
        let place = |path: &str| folder.join(path);
        for file in ["librocksdb-sys-0/out/a.o", "librocksdb-sys-0/out/a.cc", "lz4-sys-0/out/b.o"] {
            fs::create_dir_all(place(file).parent().expect("a folder")).expect("made");
            fs::write(place(file), "").expect("written");
        }
        let counted = compiled(&folder);
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(counted, 1);
        assert_eq!(compiled(&folder), 0, "a folder that is not there yet");
    }
}
