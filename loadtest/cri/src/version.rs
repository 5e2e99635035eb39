//! Which containerd a lab runs: the one that is installed, or containerd 2, built from Go modules.

use std::env;
use std::path::PathBuf;
use std::sync::OnceLock;

use headwater_daemon::{CacheFolder, DaemonError, GoPrograms, required_version};

use crate::error::LabError;

/// The variable that chooses containerd 2 for every lab of a process.
const VARIABLE: &str = "HEADWATER_CONTAINERD";

const GO_MOD: &str = include_str!("../containerd-2/go.mod");

/// The module that provides containerd 2.
const MODULE: &str = "github.com/containerd/containerd/v2";

/// The package that reports the version.
const VERSION_PACKAGE: &str = "github.com/containerd/containerd/v2/version";

/// The packages that are compiled.
const PACKAGES: usize = 1_500;

/// A containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerdVersion {
    /// The one that is installed: 1.6 or 1.7.
    Installed,
    /// Version 2.
    Two,
}

impl ContainerdVersion {
    /// The one that the environment chooses.
    ///
    /// # Errors
    /// It chooses none that there is.
    pub(crate) fn chosen() -> Result<Self, LabError> {
        match env::var(VARIABLE).as_deref() {
            Err(_) | Ok("") => Ok(Self::Installed),
            Ok("2") => Ok(Self::Two),
            Ok(other) => Err(LabError::Version { variable: VARIABLE, value: other.to_owned() }),
        }
    }

    /// The folder of its programs; `None`: they are on the search path. Builds them, once on a machine.
    ///
    /// # Errors
    /// Go is missing, or the build fails.
    pub(crate) fn folder(self) -> Result<Option<PathBuf>, DaemonError> {
        static TWO: OnceLock<PathBuf> = OnceLock::new();
        if self == Self::Installed {
            return Ok(None);
        }
        if let Some(folder) = TWO.get() {
            return Ok(Some(folder.clone()));
        }
        let cache = CacheFolder::find("containerd 2", "containerd-2")?;
        let folder = programs().prepare(&cache, "go".as_ref(), |_| Ok(()))?;
        Ok(Some(TWO.get_or_init(|| folder).clone()))
    }
}

/// containerd 2, its shim and its client.
fn programs() -> GoPrograms {
    let files = vec![("go.mod", GO_MOD), ("go.sum", include_str!("../containerd-2/go.sum"))];
    let version = version();
    GoPrograms {
        name: format!("containerd {version}"),
        files,
        more: &[],
        tags: "",
        linker_flags: format!("-s -w -X {VERSION_PACKAGE}.Version={version}"),
        packages: PACKAGES,
        took: "2 min on two cores",
    }
}

fn version() -> &'static str {
    required_version(GO_MOD, MODULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_names_the_version() {
        assert!(version().starts_with("v2."), "{}", version());
        let flags = programs().linker_flags;
        assert!(flags.ends_with(&format!(".Version={}", version())), "{flags}");
    }
}
