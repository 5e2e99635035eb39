//! A containerd in namespaces of its own.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use headwater_daemon::{DaemonError, DataFolder, run, search_path};
use nix::unistd::geteuid;
use serde_json::Value;

use crate::cgroups::Cgroup;
use crate::config::{self, Folders};
use crate::error::LabError;
use crate::image::{Image, PAUSE_IMAGE};
use crate::machine::{LogLine, Machine, Server};
use crate::program;
use crate::registry::{Login, Registry};
use crate::version::ContainerdVersion;

/// The words of containerd's log when it serves; its CRI part does by then.
const STARTED: &str = "containerd successfully booted";

/// The greatest length of a socket's path; the kernel's 108 bytes end with a zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// containerd listens also at its socket's path with this ending.
const SECOND_SOCKET: &str = ".ttrpc";

/// The folders that containerd does not see as the machine does.
const HIDDEN: [&str; 4] = ["/run", "/var/run", "/proc", "/var/lib/cni"];

/// The folder of the bundles of running containers, as containerd sees it.
const BUNDLES: &str = "/run/containerd/io.containerd.runtime.v2.task/k8s.io";

/// The time limit until an imported image is in the runtime's list.
const LIST_WITHIN: Duration = Duration::from_secs(30);

/// The interval between two looks at the list.
const POLL: Duration = Duration::from_millis(20);

/// How a containerd is to be.
#[derive(Clone, Debug, Default)]
pub struct ContainerdSettings {
    /// The folder of the data; else one that goes with it. What is there already is started on as it
    /// is.
    pub data: Option<PathBuf>,
    /// Which containerd; else the one that the environment chooses, and otherwise the installed one.
    pub version: Option<ContainerdVersion>,
}

/// A running containerd. Everything in its namespaces ends when it is dropped.
#[derive(Debug)]
pub struct Containerd {
    /// Dropped before the machine, which kills it too.
    server: Server,
    machine: Machine,
    /// The search path of its programs.
    path: OsString,
    socket: PathBuf,
    /// Dropped after the machine: no process is in them then.
    cgroups: Cgroup,
    /// The kernel unlocks it when it is closed.
    _lock: File,
    folder: DataFolder,
}

impl Containerd {
    /// Whether containerd can run here: without root no test of it can. In CI it must.
    ///
    /// # Panics
    /// The variable `CI` is set, and the user is not root.
    pub fn is_possible() -> bool {
        if geteuid().is_root() {
            return true;
        }
        assert!(std::env::var_os("CI").is_none(), "{}", LabError::NotRoot);
        eprintln!("NOT RUN: {}", LabError::NotRoot);
        false
    }

    /// Starts one; when this returns, it serves, and lists the images for a pod's first process and
    /// with a shell.
    ///
    /// # Errors
    /// The user is not root, a program is missing, another containerd runs on the data, or this one
    /// is not ready in time.
    pub fn start(settings: ContainerdSettings) -> Result<Self, LabError> {
        if !geteuid().is_root() {
            return Err(LabError::NotRoot);
        }
        let version = settings.version.map_or_else(ContainerdVersion::chosen, Ok)?;
        let path = search_path(version.folder()?);
        program::require(&program::CONTAINERD, &path)?;
        let cni_plugins = program::cni_folder()?;
        let folder = DataFolder::open(settings.data)?;
        let data = folder.path();
        if HIDDEN.iter().any(|hidden| data.starts_with(hidden)) {
            return Err(LabError::Hidden { folder: data.to_owned() });
        }
        let socket = data.join("containerd.sock");
        check_socket(&socket, SECOND_SOCKET)?;
        let lock = lock(data)?;
        config::write(&data.join("cni"), "10-headwater.conflist", &config::network())?;
        let folders = Folders { data, socket: &socket, cni_plugins };
        config::write(data, "config.toml", &config::containerd(version, &folders, PAUSE_IMAGE))?;
        let cgroups = Cgroup::claim();
        let machine = Machine::start(data, path.clone())?;
        let server = server(&machine, data);
        let mut lab = Self { server, machine, path, socket, cgroups, _lock: lock, folder };
        lab.server.start()?;
        lab.import(&[Image::pause()?, Image::busybox()?])?;
        Ok(lab)
    }

    /// containerd alone: killed, frozen and started again, while its containers run on.
    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Ends every process at once and starts containerd again on its data, as a power cut does.
    ///
    /// # Errors
    /// It is not ready in time.
    pub fn cut_power(&mut self) -> Result<(), LabError> {
        let groups = self.groups();
        self.server.kill()?;
        self.machine.kill()?;
        Cgroup::remove(&groups);
        self.machine = Machine::start(self.folder.path(), self.path.clone())?;
        self.server = server(&self.machine, self.folder.path());
        self.server.start()
    }

    /// The namespaces, for what must run beside containerd.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The socket of CRI and of containerd's own API.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The socket as `--cri-endpoint` takes it.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// The folder of the data, which has the same path inside the namespaces.
    pub fn data(&self) -> &Path {
        self.folder.path()
    }

    /// A control group for the pods. The lab removes it, with all below it, at its end.
    pub fn cgroup_parent(&self) -> String {
        self.cgroups.parent()
    }

    /// containerd's own client, for the images and containers of CRI. It runs in the namespaces: it
    /// makes pipes in `/run`.
    pub fn ctr(&self) -> Command {
        let mut ctr = self.machine.command("ctr");
        ctr.arg("--address").arg(&self.socket).args(["--namespace", "k8s.io"]);
        ctr
    }

    /// Adds images under the names that they have.
    ///
    /// # Errors
    /// containerd does not take them.
    pub fn import(&self, images: &[Image]) -> Result<(), LabError> {
        for image in images {
            let file = image.write_into(&self.images())?;
            let task = format!("importing the image {}", image.name());
            let mut import = self.ctr();
            run(&task, import.args(["images", "import"]).arg(&file))?;
        }
        images.iter().try_for_each(|image| self.wait_for(image.name()))
    }

    /// Starts a registry on loopback of the namespaces.
    ///
    /// # Errors
    /// A program is missing, or it is not ready in time.
    pub fn registry(&self, port: u16, login: Option<Login>) -> Result<Registry, LabError> {
        Registry::start(&self.machine, self.folder.path(), port, login)
    }

    /// Sends an image to a registry, as `repository`, such as `team/web:1`; returns the name by which
    /// containerd pulls it.
    ///
    /// # Errors
    /// The registry does not take it.
    pub fn push(
        &self,
        registry: &Registry,
        image: &Image,
        repository: &str,
    ) -> Result<String, LabError> {
        let file = image.write_into(&self.images())?;
        registry.push(&self.machine, &file, repository)
    }

    /// From now on, containerd asks `registry` for the images of `host`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn mirror(&self, host: &str, registry: &Registry) -> Result<(), LabError> {
        self.set_server(host, &registry.address())
    }

    /// From now on, containerd asks the server at `host` for its images without TLS. containerd 2 tries TLS first.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn without_tls(&self, host: &str) -> Result<(), LabError> {
        self.set_server(host, host)
    }

    fn set_server(&self, host: &str, server: &str) -> Result<(), LabError> {
        let url = format!("http://{server}");
        let text = format!(
            "server = \"{url}\"\n[host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
        );
        let folder = self.folder.path().join("certs.d").join(host);
        Ok(config::write(&folder, "hosts.toml", &text)?)
    }

    /// The folder of the images' archives.
    fn images(&self) -> PathBuf {
        self.folder.path().join("images")
    }

    /// Waits until CRI lists the image: it learns of an import by an event.
    fn wait_for(&self, name: &str) -> Result<(), LabError> {
        let deadline = Instant::now() + LIST_WITHIN;
        while Instant::now() < deadline {
            let filter = r#"labels."io.cri-containerd.image"==managed"#;
            let listed = self.ctr().args(["images", "list", "--quiet", filter]).output();
            let listed = listed.map_err(|source| {
                let program = "ctr".to_owned();
                DaemonError::Program { program, source }
            })?;
            if String::from_utf8_lossy(&listed.stdout).lines().any(|line| line == name) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        let seconds = LIST_WITHIN.as_secs();
        Err(LabError::ImageLate { name: name.to_owned(), seconds })
    }

    /// The control groups of the containers that run. One without a parent lies outside of the
    /// lab's.
    fn groups(&self) -> Vec<String> {
        let bundles = self.machine.path(BUNDLES);
        let bundles = bundles.read_dir().into_iter().flatten().flatten();
        let group = |bundle: fs::DirEntry| {
            let text = fs::read(bundle.path().join("config.json")).ok()?;
            let spec: Value = serde_json::from_slice(&text).ok()?;
            spec["linux"]["cgroupsPath"].as_str().map(str::to_owned)
        };
        bundles.filter_map(group).collect()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let groups = self.groups();
        // The namespaces end when every process in them is reaped; a frozen one's parent reaps
        // nothing. What cannot be killed has ended.
        let _ = self.server.kill();
        let _ = self.machine.kill();
        Cgroup::remove(&groups);
    }
}

fn server(machine: &Machine, data: &Path) -> Server {
    let mut command = machine.command("containerd");
    command.arg("--config").arg(data.join("config.toml"));
    let log = data.join("containerd.log");
    Server::new("containerd", command, log.clone(), LogLine::new(log, STARTED))
}

/// Checks whether the kernel takes the path of a runtime's socket, with the longest `ending` that the runtime gives it.
///
/// # Errors
/// It is too long.
pub(crate) fn check_socket(socket: &Path, ending: &str) -> Result<(), LabError> {
    let bytes = socket.as_os_str().len();
    let bytes_max = SOCKET_PATH_BYTES_MAX - ending.len();
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(LabError::SocketPath { path: socket.to_owned(), bytes, bytes_max })
}

fn lock(data: &Path) -> Result<File, LabError> {
    let path = data.join("lock");
    let file = File::create(&path).map_err(DaemonError::file(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(LabError::InUse { folder: data.to_owned() }),
        Err(TryLockError::Error(error)) => Err(DaemonError::file(&path)(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_runtime_that_listens_twice_needs_room_for_a_second_socket() {
        let longest = PathBuf::from("/".repeat(SOCKET_PATH_BYTES_MAX));
        check_socket(&longest, "").expect("the kernel takes it");
        check_socket(&longest, SECOND_SOCKET).expect_err("the second one is too long");
        let longer = PathBuf::from("/".repeat(SOCKET_PATH_BYTES_MAX + 1));
        check_socket(&longer, "").expect_err("it is too long");
    }
}
