//! RocksDB's C++, which takes most of a first build: a release links the archive of the development build. Both
//! profiles compile it at the same level, and the link-time optimisation is Rust's alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate that compiles it.
const CRATE: &str = "librocksdb-sys";

/// What it makes.
const ARCHIVE: &str = "librocksdb.a";

/// The line of its build script that names its source.
const SOURCE: &str = "cargo:cargo_manifest_dir=";

/// The variables by which it links an archive instead of compiling one.
const LIB_DIR: &str = "ROCKSDB_LIB_DIR";
const STATIC: &str = "ROCKSDB_STATIC";

/// Lets a release build link the archive that the development builds in `binaries` have, if they have one of the version in
/// the lock file.
pub(super) fn reuse(command: &mut Command, binaries: &Path, lock: &str) {
    if let Some(folder) = archive(&binaries.join("build"), lock) {
        command.env(LIB_DIR, folder).env(STATIC, "1");
    }
}

/// The folder of the archive.
fn archive(builds: &Path, lock: &str) -> Option<PathBuf> {
    let source = format!("{CRATE}-{}", version(lock)?);
    let entries = fs::read_dir(builds).ok()?.flatten();
    let mut folders = entries.map(|entry| entry.path()).filter(|folder| {
        let output = fs::read_to_string(folder.join("output")).unwrap_or_default();
        let mut lines = output.lines().filter_map(|line| line.strip_prefix(SOURCE));
        let is_source = lines.any(|path| Path::new(path).ends_with(&source));
        is_source && folder.join("out").join(ARCHIVE).is_file()
    });
    folders.next().map(|folder| folder.join("out"))
}

/// The version of the crate in a lock file.
fn version(lock: &str) -> Option<&str> {
    let package = lock
        .split("[[package]]")
        .find(|package| package.lines().any(|line| line == format!("name = \"{CRATE}\"")))?;
    let line = package.lines().find_map(|line| line.strip_prefix("version = "))?;
    Some(line.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_of_the_locked_version_is_found_and_no_other() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1\"\n\n\
                    [[package]]\nname = \"librocksdb-sys\"\nversion = \"0.18.0+10.10.1\"\n";
        let builds = std::env::temp_dir().join(format!("headwater-builds-{}", std::process::id()));
        let make = |name: &str, version: &str| {
            let folder = builds.join(name);
            fs::create_dir_all(folder.join("out")).expect("folders");
            fs::write(folder.join("out").join(ARCHIVE), "").expect("written");
            let output = format!("cargo:rerun\n{SOURCE}/registry/{CRATE}-{version}\n");
            fs::write(folder.join("output"), output).expect("written");
            folder.join("out")
        };
        make("librocksdb-sys-1", "0.17.0+9.9.3");
        assert_eq!(archive(&builds, lock), None);
        let found = make("librocksdb-sys-2", "0.18.0+10.10.1");
        assert_eq!(archive(&builds, lock), Some(found));
        assert_eq!(archive(&builds, ""), None);
        fs::remove_dir_all(&builds).expect("removed");
    }
}
