//! Where things lie: the clone, and the cache outside it that holds everything built.
//!
//! The cache outlives a clone and serves all of them, so that RocksDB's C++ is compiled once for
//! each profile on a machine and not once for every clone.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::Failure;

/// The folder under the user's cache that is ours.
const CACHE_NAME: &str = "headwater";

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quickly, with line numbers: to try it, to change it and to test it.
    Dev,
    /// As it is deployed, and so as it is measured.
    Release,
}

impl Profile {
    /// What cargo calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }

    /// Its folder in what cargo builds into.
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
    /// Holds tools, and the build unless `CARGO_TARGET_DIR` says otherwise.
    pub(crate) cache: PathBuf,
    /// What cargo builds into.
    pub(crate) target: PathBuf,
}

impl Place {
    /// Finds both from where this program's source lies and from the environment.
    ///
    /// # Errors
    /// When the environment names no place for a cache.
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

    /// Whether RocksDB has been compiled into this cache before, with this profile.
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
        // `cargo run` sets these for this program; a build script that watches one of them
        // would run again for each difference.
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        command
    }
}
