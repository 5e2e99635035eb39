//! The build of the programs from their source.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::error::DaemonError;
use crate::go_programs::GoPrograms;
use crate::output::tail;
use crate::process::Process;

/// The time limit of a build: on two busy cores it takes a quarter of this.
const BUILD_WITHIN: Duration = Duration::from_secs(60 * 60);

/// The interval between two lines of progress.
const INTERVAL: Duration = Duration::from_secs(30);

/// A build in a folder of its own, which survives a kill and then shortens the next build.
#[derive(Debug)]
pub(crate) struct GoBuild<'a> {
    /// The program `go`.
    pub(crate) go: &'a OsStr,
    pub(crate) programs: &'a GoPrograms,
    pub(crate) folder: &'a Path,
}

impl GoBuild<'_> {
    /// Writes each program into the folder `output`, under the name of its package. Prints how far it
    /// is, because it takes minutes.
    ///
    /// # Errors
    /// The build fails; the failure has the end of its output.
    pub(crate) fn run(&self, output: &Path) -> Result<(), DaemonError> {
        let GoPrograms { name, packages, took, .. } = self.programs;
        let what = format!("building {name}");
        let log = self.folder.join("build.log");
        let command = self.command(output)?;
        // An earlier build's packages count no more.
        let _ = fs::remove_file(&log);
        let began = Instant::now();
        let process = Process::start(&command, &log)?;
        while began.elapsed() < BUILD_WITHIN {
            match process.ended_within(INTERVAL) {
                Some(Ok(status)) if status.success() => return Ok(()),
                Some(end) => {
                    let status = end.map_or_else(|error| error.to_string(), |end| end.to_string());
                    return Err(DaemonError::Failed { what, status, output: tail(&log) });
                }
                None => {
                    let text = fs::read_to_string(&log).unwrap_or_default();
                    let seconds = began.elapsed().as_secs();
                    let time = format!("{}:{:02}", seconds / 60, seconds % 60);
                    eprintln!("{what}: {} after {time} ({took})", progress(&text, *packages));
                }
            }
        }
        // It may have ended just now.
        let _ = process.signal(Signal::SIGKILL);
        Err(DaemonError::Late { what, seconds: BUILD_WITHIN.as_secs(), output: tail(&log) })
    }

    fn command(&self, output: &Path) -> Result<Command, DaemonError> {
        let source = self.folder.join("source");
        self.programs.write(&source)?;
        let mut command = Command::new(self.go);
        command.current_dir(source).args(["build", "-v", "-trimpath", "-buildvcs=false"]);
        command.arg("-tags").arg(self.programs.tags);
        command.arg("-ldflags").arg(&self.programs.linker_flags).arg("-o").arg(output);
        // The packages of the module, and the programs of others that its file names.
        command.args(["./...", "tool"]).args(self.programs.more);
        // Static programs; and no setting of the user's for other modules.
        command.env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOWORK", "off");
        // Gigabytes that no later build reads.
        command.env("GOCACHE", self.folder("cache")?).env("GOTMPDIR", self.folder("tmp")?);
        if env::var_os("HOME").is_none() {
            // Go has no place for modules then. Writable, so that it can be removed.
            command.arg("-modcacherw").env("GOPATH", self.folder("modules")?);
        }
        Ok(command)
    }

    fn folder(&self, name: &str) -> Result<PathBuf, DaemonError> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(DaemonError::file(&folder))?;
        Ok(folder)
    }
}

/// How far a build is by its output: a line for each download, then one for each package.
fn progress(output: &str, all: usize) -> String {
    let (downloads, packages): (Vec<_>, Vec<_>) =
        output.lines().partition(|line| line.starts_with("go: "));
    match packages.len() {
        0 => format!("{} modules downloaded", downloads.len()),
        count => format!("{count} of about {all} packages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downloads_are_no_packages() {
        let mut output = "go: downloading k8s.io/api v0.36.3\n".to_owned();
        assert_eq!(progress(&output, 9), "1 modules downloaded");
        output += "internal/abi\nk8s.io/api/core/v1\n";
        assert_eq!(progress(&output, 9), "2 of about 9 packages");
    }
}
