//! The clone, and the cache outside it that holds every build.
//!
//! The cache outlives a clone and serves all clones: RocksDB's C++ is compiled once per profile on a
//! machine, not once per clone.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::Failure;

/// Our folder in the user's cache.
const CACHE_NAME: &str = "headwater";

/// The profile of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For development and tests: built quickly, with line numbers.
    Dev,
    /// For deployment and measurements.
    Release,
}

impl Profile {
    /// Cargo's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }

    /// Its folder in cargo's target directory.
    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// The clone and its cache.
pub(crate) struct Place {
    /// The top of the clone.
    pub(crate) root: PathBuf,
    /// Holds tools, and the build unless `CARGO_TARGET_DIR` is set.
    pub(crate) cache: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
}

impl Place {
    /// Finds both from the path of this program's source and from the environment.
    ///
    /// # Errors
    /// The environment names no place for a cache.
    pub(crate) fn find() -> Result<Self, Failure> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .ok_or_else(|| Failure::usage("start this as `cargo xtask`"))?;
        let root = Path::new(&manifest)
            .ancestors()
            .nth(2)
            .ok_or_else(|| Failure::usage("ops/xtask lies two folders below the clone's top"))?
            .to_path_buf();
        let wanted = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let target = env::var_os("CARGO_TARGET_DIR")
            .filter(|path| !path.is_empty())
            .map(|path| env::current_dir().unwrap_or_else(|_| root.clone()).join(path));
        let cache = wanted("XDG_CACHE_HOME")
            .or_else(|| wanted("HOME").map(|home| home.join(".cache")))
            .map(|cache| cache.join(CACHE_NAME))
            .or_else(|| target.clone());
        match (cache, target) {
            (Some(cache), Some(target)) => Ok(Self { root, cache, target }),
            (Some(cache), None) => Ok(Self { root, target: cache.join("target"), cache }),
            (None, _) => Err(Failure::usage(
                "no place for the build cache: set HOME, XDG_CACHE_HOME or CARGO_TARGET_DIR",
            )),
        }
    }

    /// The folder of the built programs.
    pub(crate) fn binaries(&self, profile: Profile) -> PathBuf {
        self.target.join(profile.folder())
    }

    /// Whether this cache has a compiled RocksDB of this profile.
    pub(crate) fn is_warm(&self, profile: Profile) -> bool {
        let Ok(builds) = self.binaries(profile).join("build").read_dir() else { return false };
        builds.flatten().any(|build| {
            build.file_name().to_string_lossy().starts_with("librocksdb-sys-")
                && build.path().join("out/librocksdb.a").is_file()
        })
    }

    /// A cargo command at the top of the clone that builds into the cache.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args).current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        // A clone that is built once reuses nothing of an incremental build, which costs it time and disk.
        if env::var_os("CI").is_some() {
            command.env("CARGO_INCREMENTAL", "0");
        }
        // `cargo run` sets these for this program. A build script that watches one of them would
        // run again after each difference.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }
}
