//! A cargo subcommand that the checks run: built once into the cache, by version.

use std::path::PathBuf;
use std::process::Command;

use crate::place::Place;
use crate::step::{self, Failure};

/// A program from crates.io at one version.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// A command that runs the tool at the top of the clone. It starts the tool's own program:
    /// `cargo NAME` would take any version that is on the path.
    pub(crate) fn command(&self, place: &Place) -> Command {
        let mut command = Command::new(self.home(place).join("bin").join(self.name));
        command.current_dir(&place.root);
        command
    }

    /// Builds the tool into the cache unless it is there.
    ///
    /// # Errors
    /// The tool does not build.
    pub(crate) fn install(&self, place: &Place) -> Result<(), Failure> {
        let home = self.home(place);
        if home.join("bin").join(self.name).is_file() {
            return Ok(());
        }
        let package = format!("{}@{}", self.name, self.version);
        eprintln!("xtask: building {package} into {}: about a minute", home.display());
        let build = home.join("build");
        // Unoptimised: the tool runs for a second, and optimising takes minutes.
        let mut command = place.cargo(&["install", "--locked", "--debug", "--quiet", &package]);
        command.arg("--root").arg(&home).arg("--target-dir").arg(&build);
        step::run(&mut command)?;
        // Half a gigabyte that no later build reads; a folder that stays does no harm.
        let _ = std::fs::remove_dir_all(&build);
        Ok(())
    }

    fn home(&self, place: &Place) -> PathBuf {
        place.cache.join("tools").join(format!("{}-{}", self.name, self.version))
    }
}
