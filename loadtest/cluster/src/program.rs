//! The programs in the user's cache: the parts of a control plane with kubectl, the suite of tests, and
//! the program of its pods.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use headwater_daemon::{CacheFolder, DaemonError};

use crate::source;

/// Its folder in the cache; below it, a folder for each key.
const CACHE: &str = "control-plane";

/// Its file, named after the module.
const NAME: &str = "control-plane";

/// The file of the suite, named after its package.
const SUITE: &str = "suite";

/// The file of the program in the suite's images, named after its package.
const AGNHOST: &str = "agnhost";

/// The folder in the cache of the programs of some images, and the file of one of them, named after its package.
const IMAGES_CACHE: &str = "image-programs";
const EFFECTIVE_USER: &str = "nonewprivs";

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
    /// Finds it in the cache, or builds it there, once on a machine.
    ///
    /// # Errors
    /// Go is missing, or the build fails.
    pub fn prepare() -> Result<Self, DaemonError> {
        let cache = CacheFolder::find("the control plane", CACHE)?;
        let home = source::control_plane().prepare(&cache, "go".as_ref(), link_kubectl)?;
        Ok(Self { home, version: source::version() })
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

/// Programs of some images of the suite, in the user's cache.
#[derive(Clone, Debug)]
pub struct ImagePrograms {
    home: PathBuf,
}

impl ImagePrograms {
    /// Finds them in the cache, or builds them there, once on a machine.
    ///
    /// # Errors
    /// Go is missing, or the build fails.
    pub fn prepare() -> Result<Self, DaemonError> {
        let cache = CacheFolder::find("the programs of images", IMAGES_CACHE)?;
        let home = source::image_programs().prepare(&cache, "go".as_ref(), |_| Ok(()))?;
        Ok(Self { home })
    }

    /// The program that prints its effective user. Its image has it with the bit that sets the user.
    pub fn effective_user(&self) -> PathBuf {
        self.home.join(EFFECTIVE_USER)
    }
}

/// Adds a folder with kubectl under its name.
fn link_kubectl(home: &Path) -> Result<(), DaemonError> {
    let links = home.join(LINKS);
    fs::create_dir_all(&links).map_err(DaemonError::file(&links))?;
    let link = links.join(KUBECTL);
    symlink(Path::new("..").join(NAME), &link).map_err(DaemonError::file(&link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_is_the_program_under_another_name() {
        let home = tempfile::tempdir().expect("a folder");
        let program = Program { home: home.path().to_owned(), version: "" };
        fs::write(program.path(), "").expect("written");
        link_kubectl(home.path()).expect("linked");
        let linked = program.kubectl_path().canonicalize().expect("a link");
        assert_eq!(linked, program.path().canonicalize().expect("a file"));
    }
}
