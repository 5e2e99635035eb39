//! The programs of the emulator.

use std::path::PathBuf;

use headwater_daemon::{find_program, search_path};

use crate::error::EmulatorError;

/// The folders of QEMU's own servers.
const QEMU_SERVERS: [&str; 2] = ["/usr/libexec", "/usr/lib/qemu"];

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
    let found = find_program(program, &search_path(QEMU_SERVERS.map(PathBuf::from)));
    found.ok_or(EmulatorError::MissingProgram { program, package })
}
