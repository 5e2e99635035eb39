//! The first files of the machine: a shell, the modules of the kernel, and a script that mounts the rest.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use headwater_daemon::{DaemonError, run};

use crate::error::EmulatorError;
use crate::kernel::Kernel;
use crate::program;

/// The script of the kernel's first process.
const FIRST: &str = include_str!("first.sh");

/// The modules of the kernel that the first script needs, and that of loop devices, which programs find by their files.
/// The machine's root has all modules, and the kernel loads others as they are asked for.
const MODULES: [&str; 7] =
    ["virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "virtiofs", "overlay", "loop"];

/// Writes them as an archive to `file`, by way of `scratch`.
///
/// # Errors
/// A program or a module is missing, or a file cannot be written.
pub(crate) fn write(kernel: &Kernel, scratch: &Path, file: &Path) -> Result<(), EmulatorError> {
    let (programs, modules) = (scratch.join("bin"), scratch.join("modules"));
    for folder in [&programs, &modules] {
        fs::create_dir_all(folder).map_err(DaemonError::file(folder))?;
    }
    copy(&program::find(program::BUSYBOX)?, &programs.join("busybox"))?;
    let mut names = Vec::<String>::new();
    for module in MODULES {
        for source in kernel.module_files(module)? {
            let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !names.contains(&name) {
                copy(&source, &modules.join(&name))?;
                names.push(name);
            }
        }
    }
    for (name, text) in [("modules.order", names.join("\n")), ("init", FIRST.to_owned())] {
        let path = scratch.join(name);
        fs::write(&path, text).map_err(DaemonError::file(&path))?;
    }
    let init = scratch.join("init");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&init, executable).map_err(DaemonError::file(&init))?;
    let program = program::find(program::CPIO)?;
    let mut packing = Command::new("sh");
    let script = "find . | \"$1\" --create --format newc --quiet >\"$2\"";
    packing.args(["-c", script, "sh"]).arg(&program).arg(file).current_dir(scratch);
    Ok(run("packing the first files", &mut packing)?)
}

fn copy(from: &Path, to: &Path) -> Result<(), EmulatorError> {
    fs::copy(from, to).map_err(DaemonError::file(from))?;
    Ok(())
}
