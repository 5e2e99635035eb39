//! A block device of the machine whose content is a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::DaemonError;

use crate::error::LabError;

/// The program that makes one.
const LOSETUP: &str = "losetup";

/// See the module. It is detached when dropped; the file stays.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// The block device of a new file of this size, which holds zeros.
    ///
    /// # Errors
    /// The file cannot be made, or the kernel has no loop devices.
    pub fn create(file: &Path, bytes: u64) -> Result<Self, LabError> {
        let made = File::create_new(file).and_then(|made| made.set_len(bytes));
        made.map_err(DaemonError::file(file))?;
        let output = Command::new(LOSETUP).args(["--find", "--show"]).arg(file).output();
        let program = LOSETUP.to_owned();
        let output = output.map_err(|source| DaemonError::Program { program, source })?;
        if !output.status.success() {
            let failed = DaemonError::Failed {
                what: format!("make a block device of {}", file.display()),
                status: output.status.to_string(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            };
            return Err(failed.into());
        }
        Ok(Self { path: String::from_utf8_lossy(&output.stdout).trim().into() })
    }

    /// Its node on the machine.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // One that is still in use is detached with its last user.
        let _ = Command::new(LOSETUP).arg("--detach").arg(&self.path).status();
    }
}
