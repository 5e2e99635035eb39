//! The programs in the user's cache: the parts of a control plane with kubectl, the suite of tests, and
//! the program of its pods.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use headwater_daemon::{CacheFolder, DaemonError};

use crate::go_build::GoBuild;
use crate::source::Source;

/// Its folder in the cache; below it, a folder for each key.
const CACHE: &str = "control-plane";

/// Its file, named after the module.
const NAME: &str = "control-plane";

/// The file of the suite, named after its package.
const SUITE: &str = "suite";

/// The file of the program in the suite's images, named after its package.
const AGNHOST: &str = "agnhost";

/// The folder beside it of links, for a search path.
const LINKS: &str = "bin";

/// The part that people use by name.
const KUBECTL: &str = "kubectl";

/// The program, ready to be started.
#[derive(Clone, Debug)]
pub struct Program {
    home: PathBuf,
    version: &'static str,
}

impl Program {
    /// Finds it in the cache, or builds it there, once on a machine: several processes may ask at
    /// the same time, and one builds.
    ///
    /// # Errors
    /// Go is missing, or the build fails.
    pub fn prepare() -> Result<Self, DaemonError> {
        let cache = CacheFolder::find("the control plane", CACHE)?;
        Self::prepare_in(&cache, &Source::control_plane(), "go".as_ref())
    }

    /// The same in another cache, of another source, by the program `go`.
    fn prepare_in(cache: &CacheFolder, source: &Source, go: &OsStr) -> Result<Self, DaemonError> {
        let key = source.key(&version_of(go)?);
        let program = Self { home: cache.path().join(&key), version: source.version() };
        let partial = cache.path().join(format!("{key}.partial"));
        if program.path().is_file() && !partial.exists() {
            return Ok(program);
        }
        let waiting =
            || eprintln!("waiting: another process builds Kubernetes {}", source.version());
        let _lock = cache.lock(waiting)?;
        if !program.path().is_file() {
            program.build(go, source, &partial)?;
        }
        // Also those of a process that was killed before it removed them.
        fs::remove_dir_all(&partial).or_else(absent).map_err(DaemonError::file(&partial))?;
        Ok(program)
    }

    /// Builds it in `partial`; it appears at its place when it is whole.
    fn build(&self, go: &OsStr, source: &Source, partial: &Path) -> Result<(), DaemonError> {
        let home = self.home.display();
        eprintln!("building Kubernetes {} into {home}, once on this machine", source.version());
        let output = partial.join("output");
        fs::remove_dir_all(&output).or_else(absent).map_err(DaemonError::file(&output))?;
        let links = output.join(LINKS);
        fs::create_dir_all(&links).map_err(DaemonError::file(&links))?;
        GoBuild { go, source, folder: partial }.run(&output)?;
        let link = links.join(KUBECTL);
        symlink(Path::new("..").join(NAME), &link).map_err(DaemonError::file(&link))?;
        fs::rename(&output, &self.home).map_err(DaemonError::file(&self.home))
    }

    /// Its file.
    pub fn path(&self) -> PathBuf {
        self.home.join(NAME)
    }

    /// The folder that has kubectl under its name.
    pub fn links(&self) -> PathBuf {
        self.home.join(LINKS)
    }

    /// The file of kubectl, for a program that runs it by its path.
    pub(crate) fn kubectl_path(&self) -> PathBuf {
        self.links().join(KUBECTL)
    }

    /// The version of Kubernetes, such as `v1.36.3`.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// A command that runs Kubernetes' own tests, see `suite`.
    pub(crate) fn suite(&self) -> Command {
        Command::new(self.home.join(SUITE))
    }

    /// The program that most pods of the suite run. Their images have it as `/agnhost`.
    pub fn agnhost(&self) -> PathBuf {
        self.home.join(AGNHOST)
    }

    /// A command that runs one of its parts.
    pub(crate) fn command(&self, part: &str) -> Command {
        let mut command = Command::new(self.path());
        command.arg(part);
        command
    }

    /// A command that runs kubectl, without the user's own preferences.
    pub(crate) fn kubectl(&self) -> Command {
        let mut command = self.command(KUBECTL);
        command.env("KUBERC", "off").stdin(Stdio::null());
        command
    }
}

/// The version that `go` reports.
fn version_of(go: &OsStr) -> Result<String, DaemonError> {
    // Not where a `go.mod` could choose another one.
    let output = Command::new(go).arg("version").current_dir("/").stdin(Stdio::null()).output();
    let program = go.display().to_string();
    let output = output.map_err(|source| DaemonError::Program { program, source })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests;
