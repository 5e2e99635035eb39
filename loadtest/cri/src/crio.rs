//! A real CRI-O, with namespaces and images of its own. It is built from Go modules, once on a machine; its monitor
//! (`conmon`) and runc are those that are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_daemon::{
    CacheFolder, DaemonError, DataFolder, GoPrograms, required_version, run, search_path,
};
use nix::unistd::geteuid;

use crate::config::{self, CrioFolders};
use crate::containerd::check_socket;
use crate::error::LabError;
use crate::image::{Image, PAUSE_IMAGE};
use crate::machine::{LogLine, Machine, Server};
use crate::program;

const GO_MOD: &str = include_str!("../cri-o/go.mod");

/// The module that provides CRI-O.
const MODULE: &str = "github.com/cri-o/cri-o";

/// The packages that are compiled.
const PACKAGES: usize = 1_150;

/// Compiles the program by which CRI-O keeps namespaces: it is C, and lies in the module. `$1` is the output.
const COMPILE_PINNS: &str = r#"
source=$(go list -m -f '{{.Dir}}' github.com/cri-o/cri-o)
exec gcc -std=c99 -Os -static -o "$1/pinns" "$source"/pinns/src/*.c
"#;

/// The last words of its log before it serves. Its monitors keep the socket of one that was killed.
const STARTED: &str = "No systemd watchdog enabled";

/// Where CRI-O keeps what goes with the machine, in the namespaces.
const RUN_ROOT: &str = "/run/containers/storage";

/// A running CRI-O. Everything in its namespaces ends when it is dropped.
#[derive(Debug)]
pub struct Crio {
    /// Dropped before the machine, which kills it too.
    server: Server,
    machine: Machine,
    socket: PathBuf,
    /// Dropped after the machine.
    folder: DataFolder,
}

impl Crio {
    /// Starts one; when this returns, it serves, and has the images for a pod's first process and with a shell.
    ///
    /// # Errors
    /// The user is not root, a program is missing, the build fails, or CRI-O is not ready in time.
    pub fn start() -> Result<Self, LabError> {
        if !geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        let cache = CacheFolder::find("CRI-O", "cri-o")?;
        let programs = programs().prepare(&cache, "go".as_ref(), compile_pinns)?;
        let path = search_path(Some(programs.clone()));
        program::require(&program::CRIO, &path)?;
        let folder = DataFolder::open(None)?;
        let data = folder.path();
        let socket = data.join("crio.sock");
        check_socket(&socket, "")?;
        let folders = CrioFolders {
            data,
            socket: &socket,
            cni_plugins: program::cni_folder()?,
            programs: &programs,
            run_root: RUN_ROOT,
        };
        config::write(&data.join("cni"), "10-headwater.conflist", &config::network())?;
        config::write(data, "policy.json", config::ANY_IMAGE)?;
        config::write(data, "crio.conf", &config::crio(&folders, PAUSE_IMAGE))?;
        let machine = Machine::start(data, path)?;
        let mut command = machine.command("crio");
        command.arg("--config").arg(data.join("crio.conf")).args(["--config-dir", ""]);
        let log = data.join("crio.log");
        let server = Server::new("CRI-O", command, log.clone(), LogLine::new(log, STARTED));
        let mut lab = Self { server, machine, socket, folder };
        // Before CRI-O opens its store.
        [Image::pause()?, Image::busybox()?].iter().try_for_each(|image| lab.import(image))?;
        lab.server.start()?;
        Ok(lab)
    }

    /// CRI-O alone: killed, frozen and started again, while its containers run on.
    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// The socket of CRI.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The namespaces, for what must run beside CRI-O.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Adds an image to the store, under its name.
    fn import(&self, image: &Image) -> Result<(), LabError> {
        let archive = image.write_into(&self.folder.path().join("images"))?;
        let root = self.folder.path().join("root");
        let store = format!("[overlay@{}+{RUN_ROOT}]", root.display());
        let mut copy = self.machine.command("skopeo");
        copy.args(["copy", "--quiet", "--insecure-policy"]);
        copy.arg(format!("oci-archive:{}", archive.display()));
        copy.arg(format!("containers-storage:{store}{}", image.name()));
        Ok(run(&format!("importing the image {}", image.name()), &mut copy)?)
    }
}

impl Drop for Crio {
    fn drop(&mut self) {
        // What cannot be killed has ended.
        let _ = self.server.kill();
        let _ = self.machine.kill();
    }
}

fn programs() -> GoPrograms {
    let version = required_version(GO_MOD, MODULE);
    GoPrograms {
        name: format!("CRI-O {version}"),
        files: vec![("go.mod", GO_MOD), ("go.sum", include_str!("../cri-o/go.sum"))],
        more: &[],
        // Signatures are checked by Go's own code: that of GnuPG is C.
        tags: "containers_image_openpgp",
        linker_flags: "-s -w".to_owned(),
        packages: PACKAGES,
        took: "some minutes on two cores",
    }
}

fn compile_pinns(output: &Path) -> Result<(), DaemonError> {
    let mut compile = Command::new("sh");
    compile.args(["-euc", COMPILE_PINNS, "pinns"]).arg(output);
    // The module's folder is known where it is required.
    compile.current_dir(output.with_file_name("source"));
    run("compiling CRI-O's pinns", &mut compile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_names_the_version() {
        assert!(programs().name.starts_with("CRI-O v1."), "{}", programs().name);
    }
}
