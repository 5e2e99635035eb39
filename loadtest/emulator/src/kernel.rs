//! The kernel that is installed beside this machine's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::DaemonError;

use crate::error::EmulatorError;
use crate::program;

/// Where distributions put kernels.
const FOLDER: &str = "/boot";

/// The beginning and the end of the name of a kernel for emulated machines.
const NAME: (&str, &str) = ("vmlinuz-", "-cloud-amd64");

/// A kernel with its modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    version: String,
}

impl Kernel {
    /// The newest one that is installed.
    ///
    /// # Errors
    /// None is.
    pub(crate) fn find() -> Result<Self, EmulatorError> {
        Self::find_in(Path::new(FOLDER))
    }

    fn find_in(folder: &Path) -> Result<Self, EmulatorError> {
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let kernels = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(NAME.0)?;
            version.ends_with(NAME.1).then(|| version.to_owned())
        });
        let numbers = |version: &String| -> Vec<u64> {
            version.split(|c: char| !c.is_ascii_digit()).flat_map(str::parse).collect()
        };
        let newest = kernels.max_by_key(numbers);
        let version =
            newest.ok_or_else(|| EmulatorError::MissingKernel { folder: folder.to_owned() })?;
        Ok(Self { image: folder.join(format!("{}{version}", NAME.0)), version })
    }

    /// The files of a module and of those that it needs, in the order in which they are loaded. A part of the kernel
    /// itself has none.
    ///
    /// # Errors
    /// The kernel does not have it.
    pub(crate) fn module_files(&self, module: &'static str) -> Result<Vec<PathBuf>, EmulatorError> {
        let program = program::find(program::MODPROBE)?;
        let mut command = Command::new(&program);
        command.args(["--set-version", &self.version, "--show-depends", module]);
        let output = command.output().map_err(|source| DaemonError::Program {
            program: program.display().to_string(),
            source,
        })?;
        if !output.status.success() {
            let cause = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(EmulatorError::MissingModule {
                version: self.version.clone(),
                module,
                cause,
            });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let files = text.lines().filter_map(|line| line.strip_prefix("insmod "));
        Ok(files.map(|file| PathBuf::from(file.trim())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_kernel_is_found_by_its_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let none = Kernel::find_in(folder).expect_err("no kernel").to_string();
        assert!(none.contains("linux-image-cloud-amd64"), "{none}");
        for name in
            ["vmlinuz-6.1.0-9-cloud-amd64", "vmlinuz-6.1.0-56-cloud-amd64", "vmlinuz-7.0.0-1-amd64"]
        {
            fs::write(folder.join(name), "").expect("written");
        }
        let found = Kernel::find_in(folder).expect("a kernel");
        assert_eq!(found.version, "6.1.0-56-cloud-amd64");
        assert_eq!(found.image, folder.join("vmlinuz-6.1.0-56-cloud-amd64"));
    }
}
