//! The programs of the emulator.

use std::env;
use std::path::{Path, PathBuf};

use crate::error::EmulatorError;

/// Folders of programs that a user's path may lack: of administrators, and of QEMU's own servers.
const MORE_FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/libexec", "/usr/lib/qemu"];

/// The emulator.
pub(crate) const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

/// The server of a folder to the machine.
pub(crate) const VIRTIOFSD: (&str, &str) = ("virtiofsd", "qemu-system-common");

/// It makes the file system of the disk.
pub(crate) const MKE2FS: (&str, &str) = ("mke2fs", "e2fsprogs");

/// It packs the first files of the machine.
pub(crate) const CPIO: (&str, &str) = ("cpio", "cpio");

/// It knows which modules a module needs.
pub(crate) const MODPROBE: (&str, &str) = ("modprobe", "kmod");

/// The only program in the first files.
pub(crate) const BUSYBOX: (&str, &str) = ("busybox", "busybox-static");

/// The path of a program.
///
/// # Errors
/// It is not installed.
pub(crate) fn find(
    (program, package): (&'static str, &'static str),
) -> Result<PathBuf, EmulatorError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(program));
    let found = files.find(|file: &PathBuf| Path::is_file(file));
    found.ok_or(EmulatorError::MissingProgram { program, package })
}
