//! The program that developers run, and its end.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headwater_cluster::Part;
use headwater_daemon::free_ports;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The time limit of an end.
const END_WITHIN: Duration = Duration::from_secs(60);

/// The interval between two looks at what runs.
const POLL: Duration = Duration::from_millis(20);

/// The program in the foreground of a shell; it is killed when dropped.
struct Foreground {
    process: Child,
    data: PathBuf,
    _scratch: TempDir,
}

impl Foreground {
    /// Starts it, and returns when it has printed the path of its kubeconfig.
    fn start() -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        // As `/proc` shows it.
        let data = scratch.path().canonicalize().expect("a folder").join("data");
        let [port] = free_ports().expect("a port");
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-cluster"));
        command.arg("--port").arg(port.to_string()).arg("--data").arg(&data);
        let hints = scratch.path().join("hints");
        let file = File::create(&hints).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        // Neither is for it.
        command.env_remove("KUBECONFIG").env("HTTPS_PROXY", "http://127.0.0.1:1");
        let mut process = command.spawn().expect("it starts");
        let mut printed = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut printed).expect("its output");
        let kubeconfig = data.join("kubeconfig");
        let read = || fs::read_to_string(&hints).expect("a file");
        assert_eq!(Path::new(printed.trim_end()), kubeconfig, "{}", read());
        let export = format!("export KUBECONFIG={}\n", kubeconfig.display());
        wait_for("no export line", || read().contains(&export).then_some(()));
        Self { process, data, _scratch: scratch }
    }

    /// The processes that name its data, itself aside.
    fn parts(&self) -> Vec<String> {
        let data = self.data.display().to_string();
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let others = processes
            .filter(|process| *process.file_name() != *self.process.id().to_string())
            .filter_map(|process| fs::read_to_string(process.path().join("cmdline")).ok());
        others.filter(|command| command.contains(&data)).collect()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).expect("it runs");
    }

    fn ends(&mut self) -> ExitStatus {
        wait_for("it runs on", || self.process.try_wait().expect("a child"))
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_for<T>(otherwise: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + END_WITHIN;
    while Instant::now() < deadline {
        if let Some(value) = condition() {
            return value;
        }
        thread::sleep(POLL);
    }
    panic!("{otherwise} after {END_WITHIN:?}")
}

#[test]
fn the_death_of_the_starter_ends_every_part() {
    let mut program = Foreground::start();
    assert_eq!(program.parts().len(), Part::ALL.len(), "{:?}", program.parts());
    program.signal(Signal::SIGKILL);
    program.ends();
    wait_for("a part lives", || program.parts().is_empty().then_some(()));
}

#[test]
fn a_stop_signal_stops_every_part_and_leaves_the_data() {
    let mut program = Foreground::start();
    program.signal(Signal::SIGTERM);
    assert_eq!(program.ends().code(), Some(0));
    assert_eq!(program.parts(), [""; 0]);
    assert!(program.data.join("etcd/member").is_dir());
}

#[test]
fn a_port_that_is_taken_is_named_before_anything_starts() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater-cluster"));
    let output = command.args(["--port", &port]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr);
    let wanted = format!("headwater-cluster: port {port} of 127.0.0.1 is taken");
    assert!(complaint.contains(&wanted), "{complaint}");
}
