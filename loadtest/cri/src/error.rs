//! The failures of the lab.

use std::io;
use std::path::PathBuf;

use headwater_daemon::DaemonError;

/// Why there is no containerd.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A program fails, or a file cannot be used.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The environment chooses a containerd that there is not.
    #[error(
        "{variable}={value} names no containerd: set 2, or nothing for the one that is installed"
    )]
    Version {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The user is not root.
    #[error("containerd mounts and makes namespaces: only root may; run this as root")]
    NotRoot,
    /// A program is not installed.
    #[error("{program} is not installed: install the package {package} (Debian, Ubuntu)")]
    MissingProgram {
        /// Its name.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// The kernel takes no path of this length as a socket.
    #[error(
        "the socket {path} has a path of {bytes} bytes, and a socket's has {bytes_max} at most: \
         choose a folder with a shorter path"
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The greatest length.
        bytes_max: usize,
    },
    /// The namespaces hide the folder.
    #[error(
        "the data cannot lie in {folder}: containerd gets a /run of its own; choose a folder elsewhere"
    )]
    Hidden {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process uses the data.
    #[error("another containerd runs on {folder}: stop it, or choose another folder")]
    InUse {
        /// The folder of the data.
        folder: PathBuf,
    },
    /// A process of the namespaces is not there.
    #[error("{what} has no process: it ended")]
    NoProcess {
        /// Its name.
        what: String,
    },
    /// A thread cannot enter the namespace.
    #[error("the thread cannot enter the network namespace of {pid}")]
    Enter {
        /// A process in it.
        pid: i32,
        /// The cause.
        source: io::Error,
    },
    /// The images are not in the runtime's list in time.
    #[error("containerd did not list the image {name} within {seconds} s of its import")]
    ImageLate {
        /// Its name.
        name: String,
        /// The time limit.
        seconds: u64,
    },
}
