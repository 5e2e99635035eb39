//! A gateway of real processes: an edge and a pod worker, a container runtime, and its shims.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use headwater_cri_lab::{Containerd, ContainerdSettings};
use headwater_e2e::pressure::NO_DISK_PRESSURE;
use headwater_e2e::running::{WAIT, output};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::cloud::Cloud;
use crate::process::Process;
use crate::{NODE, edge};

/// The pod whose shims are killed.
pub(super) const VICTIM: &str = "victim";

const POLL: Duration = Duration::from_millis(50);

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Edge,
    Edged,
    Containerd,
    /// That of the victim: it holds all containers of its pod.
    Shim,
}

impl Part {
    pub(super) const ALL: [Self; 4] = [Self::Edge, Self::Edged, Self::Containerd, Self::Shim];
}

/// See the module.
pub(super) struct Gateway {
    pub(super) edged: Process,
    edge: Process,
    pub(super) cloud: Cloud,
    pub(super) containerd: Containerd,
    notes: TempDir,
}

impl Gateway {
    pub(super) fn start() -> Self {
        let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
        let cloud = Cloud::start("---\n");
        let edge = edge(&cloud, &["--no-edged"]);
        let socket = edge.data().join("nodes").join(NODE).join("edge.sock");
        let socket = socket.to_str().expect("UTF-8");
        let endpoint = containerd.endpoint();
        let notes = tempfile::tempdir().expect("a folder");
        let settings = notes.path().join("edged.toml");
        fs::write(&settings, NO_DISK_PRESSURE).expect("written");
        let settings = settings.display().to_string();
        let args = ["edged", "--config", &settings, "--edge", socket, "--node", NODE];
        let runtime = ["--runtime", "cri", "--cri-endpoint", &endpoint];
        let edged = Process::start(&[&args[..], &runtime].concat());
        Self { edged, edge, cloud, containerd, notes }
    }

    /// The folder in which containers write notes.
    pub(super) fn notes(&self) -> PathBuf {
        self.notes.path().to_owned()
    }

    /// The log files of a container's first run, oldest first.
    pub(super) fn log(&self, pod: &str, uid: &str, container: &str) -> Vec<PathBuf> {
        let logs = self.edged.data().join("nodes").join(NODE).join("edged/logs");
        let folder = logs.join(format!("default_{pod}_{uid}")).join(container);
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        files.reverse();
        files
    }

    pub(super) fn kill(&mut self, parts: &[Part]) {
        // Shims outlive the runtime that names them.
        let shims = if parts.contains(&Part::Shim) { self.shims(VICTIM) } else { Vec::new() };
        for part in parts {
            match part {
                Part::Edge => {
                    self.edge.end(Signal::SIGKILL);
                }
                Part::Edged => {
                    self.edged.end(Signal::SIGKILL);
                }
                Part::Containerd => self.containerd.server().kill().expect("it is killed"),
                Part::Shim => shims.iter().for_each(|pid| {
                    // It may have ended by itself.
                    let _ = kill(*pid, Signal::SIGKILL);
                }),
            }
        }
    }

    pub(super) fn start_again(&mut self, parts: &[Part]) {
        // A pod worker does not start without its runtime.
        if parts.contains(&Part::Containerd) {
            self.containerd.server().start().expect("it starts again");
        }
        if parts.contains(&Part::Edged) {
            self.edged.start_again();
        }
        if parts.contains(&Part::Edge) {
            self.edge.start_again();
        }
    }

    /// Waits until `look` finds something; else its words are why it failed.
    pub(super) fn wait_for<T>(&self, what: &str, look: impl Fn(&Self) -> Result<T, String>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            match look(self) {
                Ok(found) => return found,
                Err(why) if Instant::now() >= deadline => {
                    panic!("{what}: not in time: {why}\n--- edged\n{}", self.edged.output())
                }
                Err(_) => thread::sleep(POLL),
            }
        }
    }

    /// What `ctr` prints, line by line.
    pub(super) fn ctr(&self, args: &[&str]) -> Vec<String> {
        let listed = output(self.containerd.ctr().args(args));
        assert!(listed.status.success(), "{args:?}: {}", String::from_utf8_lossy(&listed.stderr));
        String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
    }

    /// The shims of a pod, or all of them for an empty name.
    pub(super) fn shims(&self, pod: &str) -> Vec<Pid> {
        let filter = format!("labels.\"io.kubernetes.pod.name\"=={pod}");
        let ids = if pod.is_empty() {
            Vec::new()
        } else {
            self.ctr(&["containers", "list", "--quiet", &filter])
        };
        let socket = self.containerd.socket().display().to_string();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_shim = |entry: &fs::DirEntry| {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words);
            let words: Vec<&str> = words.split('\0').collect();
            words.first().is_some_and(|name| name.contains("containerd-shim"))
                && words.contains(&socket.as_str())
                && (pod.is_empty() || ids.iter().any(|id| words.contains(&id.as_str())))
        };
        let pids = entries.filter(is_shim);
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
            .collect()
    }
}
