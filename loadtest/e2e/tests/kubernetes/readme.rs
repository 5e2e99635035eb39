//! The README's commands from a cluster to a pod on an edge, run as they are written there.
//!
//! `cargo xtask cluster` is a control plane of the test's own in the folder that the command names, and
//! the second line has its `PATH`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_e2e::containers::{containers, kill_all};
use headwater_e2e::running::{WAIT, output, programs, root};
use headwater_e2e::transcript::section;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::world::stderr_of;

/// Between two tries of a command.
const POLL: Duration = Duration::from_millis(200);

/// The folder in which the commands run, and what runs in it.
struct Terminal {
    up: Option<Child>,
    cluster: ControlPlane,
    /// Settings of the shell that an earlier command made.
    exported: String,
    path: OsString,
    folder: TempDir,
}

/// The commands of the first block in a section of the README, a line each.
fn commands(heading: &str) -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README is there");
    let section = section(&readme, heading).replace("\\\n", "");
    let (_, block) = section.split_once("```sh\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    // A comment begins after three blanks.
    let without_comment = |line: &str| line.split("   #").next().unwrap_or(line).trim().to_owned();
    block.lines().map(without_comment).filter(|line| !line.is_empty()).collect()
}

impl Terminal {
    /// The first two commands.
    fn open(cluster: &str, export: &str) -> Self {
        assert_eq!(cluster, "cargo xtask cluster --data cluster &");
        let folder = TempDir::new().expect("a temporary folder");
        let data = Some(folder.path().join("cluster"));
        let settings = ControlPlaneSettings { data, ..ControlPlaneSettings::default() };
        let cluster = ControlPlane::start(settings).expect("a control plane");
        let mut path = OsString::from(cluster.program().links());
        for more in [Some(programs().into()), std::env::var_os("PATH")].into_iter().flatten() {
            path.push(":");
            path.push(more);
        }
        let exported = export.replace("PATH=\"...\"", "PATH=\"$PATH\"");
        assert_ne!(exported, export, "the second command sets PATH");
        Self { up: None, cluster, exported, path, folder }
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{}\n{command}", self.exported)]);
        shell.current_dir(self.folder.path()).env("PATH", &self.path);
        shell
    }

    /// A command that goes on in the background.
    fn start(&mut self, command: &str) {
        let command = command.strip_suffix(" &").expect("it goes on in the background");
        let output = File::create(self.log()).expect("a log");
        let error = output.try_clone().expect("the same log");
        let mut shell = self.shell(&format!("exec {command}"));
        let child = shell.stdout(output).stderr(error).spawn().expect("a shell starts");
        self.up = Some(child);
    }

    /// Runs a command until `found` finds something in what it prints.
    fn until<T>(&self, command: &str, found: impl Fn(&Output) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            let ended = output(&mut self.shell(command));
            if let Some(found) = found(&ended) {
                return found;
            }
            let up = fs::read_to_string(self.log()).unwrap_or_default();
            let printed = String::from_utf8_lossy(&ended.stdout);
            let complaint = stderr_of(&ended);
            assert!(Instant::now() < deadline, "{command}\n{printed}{complaint}--- up\n{up}");
            thread::sleep(POLL);
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("up.log")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("headwater-data")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(mut up) = self.up.take() {
            let _ = kill(Pid::from_raw(up.id().cast_signed()), Signal::SIGKILL);
            let _ = up.wait();
        }
        kill_all(&self.data());
        let _ = self.cluster.kill();
    }
}

/// Whether a process of a container runs below `data`.
fn runs_below(data: &Path) -> bool {
    containers(data).values().flatten().any(|tree| tree.process.is_some())
}

#[test]
fn five_commands_of_the_readme_bring_a_pod_to_an_edge() {
    let commands = commands("## On a Kubernetes cluster");
    let [cluster, export, up, run, get] = &commands[..] else {
        panic!("five commands: {commands:#?}");
    };
    assert!(up.starts_with("headwater up --kubeconfig ") && up.contains("--nodes gw-1,gw-2"));
    assert!(run.starts_with("kubectl run hello ") && !run.contains("overrides"), "{run}");
    let mut terminal = Terminal::open(cluster, export);
    terminal.start(up);
    terminal.until(run, |output| {
        let exists = stderr_of(output).contains("AlreadyExists");
        (output.status.success() || exists).then_some(())
    });
    let table = terminal.until(get, |output| {
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        table.contains(" Running ").then_some(table)
    });
    let pods: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(pods.len(), 1, "{table}");
    let columns: Vec<&str> = pods[0].split_whitespace().collect();
    assert_eq!(columns[..3], ["hello", "1/1", "Running"], "{table}");
    assert!(columns.iter().any(|column| ["gw-1", "gw-2"].contains(column)), "{table}");
    assert!(runs_below(&terminal.data()), "a process runs");
}
