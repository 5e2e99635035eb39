//! A real `headwater up` with its own data directory, and the actions of its user.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headwater_daemon::{OutputLines, output_within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::containers::{Container, Tree, containers, kill_all};

/// The time limit of every condition: far more than it needs, because two cores may be busy with
/// other work.
pub const WAIT: Duration = Duration::from_secs(90);

/// The polling interval.
const POLL: Duration = Duration::from_millis(100);

/// The time, in seconds, in which a program that is to end ends; then it is killed.
const KILL_AFTER: &str = "--kill-after=10";

/// A data directory, and the process that owns it while it runs.
pub struct Running {
    folder: TempDir,
    data: PathBuf,
    log: PathBuf,
    process: Option<Child>,
    args: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Running {
    /// Starts `headwater up` with `args` on a fresh data directory.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn start(args: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let data = folder.path().join("data");
        Self::start_in(folder, data, args)
    }

    /// Starts `headwater up` with `args` on the data directory `data`, on a disk of its own.
    ///
    /// # Panics
    /// When it cannot be started at all.
    pub fn start_on(data: &Path, args: &[&str]) -> Self {
        Self::start_in(TempDir::new().expect("a temporary folder"), data.to_owned(), args)
    }

    fn start_in(folder: TempDir, data: PathBuf, args: &[&str]) -> Self {
        let log = folder.path().join("up.log");
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut running = Self { folder, data, log, process: None, args, variables: Vec::new() };
        running.start_again();
        running
    }

    /// Starts it on the same data directory.
    ///
    /// # Panics
    /// When it runs already, or cannot be started.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let mut command = headwater();
        command.arg("up").args(&self.args).arg("--data").arg(self.data());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let process = command.stdout(log.try_clone().expect("the same log")).stderr(log).spawn();
        self.process = Some(process.expect("headwater starts"));
    }

    /// Sets a variable of its environment from its next start on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// The process that runs, if one does.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Room for files of the test, gone with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The output of `up` so far, over all its starts.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it something.
    ///
    /// # Panics
    /// When the program cannot be started, or has not ended in [`WAIT`].
    pub fn ask(&self, args: &[&str]) -> Output {
        output(&mut self.command(args))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = headwater();
        command.args(args).arg("--data").arg(self.data()).stdin(Stdio::null());
        command
    }

    /// Asks it something that goes on for ever, and reads along until a line says what is wanted.
    ///
    /// # Panics
    /// When the program cannot be started, or ends before it says so.
    pub fn follow(&self, args: &[&str], act: impl FnOnce(), wanted: impl Fn(&str) -> bool) {
        // A test that waits for a line that never comes must end all the same.
        let mut command = without_settings(Command::new("timeout"));
        command.arg(KILL_AFTER).arg(WAIT.as_secs().to_string());
        command.arg(programs().join("headwater"));
        command.args(args).arg("--data").arg(self.data()).stdout(Stdio::piped());
        let mut following = command.spawn().expect("headwater starts");
        let output = following.stdout.take().expect("its output is piped");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let first = lines.next();
        act();
        let found = first.into_iter().chain(lines).any(|line| wanted(&line));
        // `timeout` passes SIGTERM on; a SIGKILL would leave what it runs behind.
        let id = i32::try_from(following.id()).expect("a process id");
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
        let _ = following.wait();
        assert!(found, "{args:?} ended without it");
    }

    /// Asks its server of metrics and health for `path`; returns the whole answer, if there is one.
    pub fn http_get(&self, path: &str) -> Option<String> {
        http_get(&self.data(), path)
    }

    /// Asks it something and gives what it printed, if it was done in [`WAIT`].
    pub fn text(&self, args: &[&str]) -> Option<String> {
        let output = output_within(&mut self.command(args), WAIT).ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Asks it something that answers in JSON.
    pub fn json(&self, args: &[&str]) -> Option<Value> {
        serde_json::from_str(&self.text(args)?).ok()
    }

    /// The objects that `get ... -o json` lists.
    pub fn items(&self, args: &[&str]) -> Vec<Value> {
        let list = self.json(&[args, &["-o", "json"]].concat()).unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The events of a stream.
    pub fn history(&self, stream: &str) -> Vec<Value> {
        let lines = self.text(&["history", stream, "-o", "json"]).unwrap_or_default();
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until `look` gives something.
    ///
    /// # Panics
    /// It does not in [`WAIT`]; the message names the condition and has the output of `up`.
    pub fn wait_for<T>(&self, what: &str, look: impl Fn(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: not within {WAIT:?}\n--- up\n{}\n--- status\n{}\n--- pods\n{}",
                self.output(),
                self.text(&["status"]).unwrap_or_default(),
                self.text(&["get", "pods", "-A"]).unwrap_or_default(),
            );
            thread::sleep(POLL);
        }
    }

    /// Waits until the port that a `port-forward` names in its first line serves something, and returns
    /// it whole. Between two clients, a pod has moments without a server.
    ///
    /// # Panics
    /// It does not in [`WAIT`].
    pub fn served_through(&self, forward: &OutputLines) -> String {
        let line = forward.next_within(WAIT).expect("a line");
        let address = line.split_whitespace().nth(2).expect("an address").to_owned();
        self.wait_for("the port", |_| {
            let mut served = String::new();
            let mut stream = TcpStream::connect(&address).ok()?;
            stream.set_read_timeout(Some(WAIT)).ok()?;
            stream.read_to_string(&mut served).ok()?;
            Some(served).filter(|served| !served.is_empty())
        })
    }

    /// Waits until every node is connected and has applied all there is.
    pub fn wait_until_in_step(&self) {
        self.wait_for("every node in step", |running| {
            let status = running.json(&["status", "-o", "json"])?;
            let nodes = status["nodes"].as_array()?;
            let in_step = |node: &Value| {
                let streams = node["streams"].as_array().cloned().unwrap_or_default();
                let own = format!("node/{}", node["name"].as_str().unwrap_or_default());
                node["connected"] == true
                    && node["outbox_depth"] == 0
                    && streams.iter().any(|s| s["stream"] == own && s["applied"] != 0)
                    && streams.iter().all(|s| s["lag_events"] == 0)
            };
            (!nodes.is_empty() && nodes.iter().all(in_step)).then_some(())
        });
    }

    /// Waits until each pod has this status, as `get pods` prints it.
    pub fn wait_for_pods(&self, count: usize, is: impl Fn(&str) -> bool) {
        self.wait_for("the pods", |running| {
            let table = running.text(&["get", "pods", "-A", "--no-headers"])?;
            let statuses: Vec<&str> =
                table.lines().filter_map(|line| line.split_whitespace().nth(3)).collect();
            (statuses.len() == count && statuses.iter().all(|status| is(status))).then_some(())
        });
    }

    /// Waits until every container that runs has its own process, and gives them all. A pod runs
    /// for the cloud from when its container's process is made, which is before it calls exec.
    ///
    /// # Panics
    /// When one does not in [`WAIT`].
    pub fn wait_for_processes(&self) -> BTreeMap<Container, Vec<Tree>> {
        self.wait_for("the containers' processes", |running| {
            let found = containers(&running.data());
            found.values().flatten().all(|tree| tree.process.is_some()).then_some(found)
        })
    }

    /// Types Ctrl-C and waits for the end.
    ///
    /// # Panics
    /// When it does not end in [`WAIT`].
    pub fn interrupt(&mut self) -> ExitStatus {
        self.signal(Signal::SIGINT);
        self.ended().unwrap_or_else(|| panic!("Ctrl-C does not end it\n{}", self.output()))
    }

    /// Waits until it answers (`None`), or has ended by itself.
    ///
    /// # Panics
    /// When it does neither in [`WAIT`].
    pub fn answers_or_ends(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + WAIT;
        while Instant::now() < deadline {
            let ended = self.process.as_mut().and_then(|p| p.try_wait().expect("our own child"));
            if ended.is_some() {
                self.process = None;
                return ended;
            }
            if self.text(&["status"]).is_some() {
                return None;
            }
            thread::sleep(POLL);
        }
        panic!("it neither answers nor ends\n{}", self.output())
    }

    /// Kills it as a power cut would, pods aside.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.ended().expect("what was killed ends");
    }

    /// Kills it, and waits for nothing: its disk may not let it end yet.
    pub fn strike(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Types Ctrl-C, and waits for nothing.
    pub fn tell_to_stop(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Whether the process is there.
    fn runs(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.try_wait(), Ok(None)))
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            let id = i32::try_from(process.id()).expect("a process id");
            // The process may have ended; its exit status shows that.
            let _ = kill(Pid::from_raw(id), signal);
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + WAIT;
        let process = self.process.as_mut()?;
        while Instant::now() < deadline {
            if let Some(status) = process.try_wait().expect("our own child") {
                self.process = None;
                return Some(status);
            }
            thread::sleep(POLL);
        }
        None
    }
}

impl Drop for Running {
    /// Leaves no pods behind, however the test ended: what a kill left is adopted and stopped, and
    /// what cannot be adopted any more is killed.
    fn drop(&mut self) {
        if self.process.is_none() && self.data().join("version").exists() {
            self.start_again();
            let deadline = Instant::now() + WAIT;
            while Instant::now() < deadline && self.runs() && self.text(&["status"]).is_none() {
                thread::sleep(POLL);
            }
        }
        self.signal(Signal::SIGINT);
        if self.process.is_some() && self.ended().is_none() {
            self.signal(Signal::SIGKILL);
            let _ = self.ended();
        }
        kill_all(&self.data());
    }
}

/// The built program, without settings from the tester's own environment.
///
/// # Panics
/// When it was not built: `cargo xtask test` does.
pub fn headwater() -> Command {
    without_settings(Command::new(programs().join("headwater")))
}

/// Asks the server of metrics and health of the process with this data directory for `path`; returns the whole
/// answer, if there is one.
pub fn http_get(data: &Path, path: &str) -> Option<String> {
    let address = fs::read_to_string(data.join("metrics.addr")).ok()?;
    let mut stream = TcpStream::connect(address.trim()).ok()?;
    stream.set_read_timeout(Some(WAIT)).ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: up\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Runs a command, which gets no input, to its end.
///
/// # Panics
/// When it cannot be started, or has not ended in [`WAIT`].
pub fn output(command: &mut Command) -> Output {
    let ended = output_within(command.stdin(Stdio::null()), WAIT);
    ended.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn without_settings(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HEADWATER_") {
            command.env_remove(name);
        }
    }
    command
}

/// The top of the clone whose tests these are. Asked of cargo when the test runs: clones share
/// what is built.
///
/// # Panics
/// When the test is not run by cargo.
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&here).join("../..")
}

/// The folder of the built programs: this program's own, or the one above that of a test.
///
/// # Panics
/// When the program is not there.
pub fn programs() -> PathBuf {
    built().unwrap_or_else(|at| panic!("{} is missing: run `cargo xtask test`", at.display()))
}

/// The folder of the built programs, if `headwater` is among them.
///
/// # Errors
/// Says where it is not.
///
/// # Panics
/// When this program is no file.
pub fn built() -> Result<PathBuf, PathBuf> {
    let me = std::env::current_exe().expect("this program is a file");
    let mut folder = me.parent().unwrap_or(Path::new("."));
    // Cargo puts tests into target/PROFILE/deps.
    if folder.ends_with("deps") {
        folder = folder.parent().unwrap_or(folder);
    }
    let headwater = folder.join("headwater");
    if headwater.is_file() { Ok(folder.to_path_buf()) } else { Err(headwater) }
}

/// The processes that were started in `folder`: pods, and the shims beside them.
pub fn processes_in(folder: &Path) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let starts =
            fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let names = String::from_utf8_lossy(&command).contains(&*folder.to_string_lossy());
        (starts || names).then_some(Pid::from_raw(id))
    });
    found.collect()
}
