//! The failures of the emulator.

use std::path::PathBuf;

use headwater_daemon::DaemonError;

/// Why there is no machine, or no end of a script.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// A program fails, or a file cannot be used.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A program is not installed.
    #[error("{program} is not installed: install the package {package} (Debian, Ubuntu)")]
    MissingProgram {
        /// Its name.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// No kernel is installed.
    #[error(
        "{} has no kernel for emulated machines: install the package linux-image-cloud-amd64 (Debian)",
        folder.display()
    )]
    MissingKernel {
        /// Where it is looked for.
        folder: PathBuf,
    },
    /// A module of the kernel is not there.
    #[error("the kernel {version} has no module {module}: {cause}")]
    MissingModule {
        /// The kernel's version.
        version: String,
        /// The module.
        module: &'static str,
        /// The words of `modprobe`.
        cause: String,
    },
    /// The machine ended while it ran a script.
    #[error("the machine ended while it ran a script; its output so far:\n{output}")]
    MachineEnded {
        /// The end of what the script and the machine wrote.
        output: String,
    },
    /// A script did not end in time.
    #[error("the machine did not end a script within {seconds} s; its output so far:\n{output}")]
    Late {
        /// The limit.
        seconds: u64,
        /// The end of what it wrote.
        output: String,
    },
}
