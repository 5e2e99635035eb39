//! The tours of the README, typed and compared: what a newcomer is promised is what happens.
//!
//! A command that ends with `&` runs in the background, and `kill %N; wait %N` ends the Nth of them. `cargo
//! xtask kafka` is a broker of the test's own, and the addresses of the README are free ones.
//!
//! `cargo xtask up` is typed as `headwater up ops/demo`, for everything has been built by then,
//! and on a copy of `ops/demo`, for the tour edits it. A command whose answer is in the README is
//! typed again until it answers so: what it shows takes a moment to come about.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use headwater_broker::{Cluster, ClusterSettings};
use headwater_daemon::free_ports;
use headwater_e2e::running::{output, processes_in, programs, root};
use headwater_e2e::transcript::{self, Input, Step};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// How long an answer may take to be the one in the README. Far more than it needs: two cores
/// may be busy with something else.
const WAIT: Duration = Duration::from_secs(90);

/// Between two tries.
const POLL: Duration = Duration::from_millis(200);

/// How long one command may take, in seconds as `timeout` takes them: none of the tour's follows.
const COMMAND_WAIT_SECONDS: &str = "60";

/// What the README has a person type where the test types something else.
const UP: &str = "cargo xtask up";

/// What the README has a person type for a broker.
const KAFKA: &str = "cargo xtask kafka &";

/// The address of that broker in the README.
const KAFKA_ADDRESS: &str = "127.0.0.1:9092";

/// The other addresses in the README.
const ADDRESSES: [&str; 2] = ["127.0.0.1:7301", "127.0.0.1:7443"];

/// The heading of the tour on Kafka.
const KAFKA_TOUR: &str = "## On Kafka, as processes of their own";

/// The exit status of `headwater diff` that found a difference.
const FOUND: i32 = 3;

#[test]
fn the_tour_of_the_readme_is_true() {
    let root = root();
    let readme = fs::read_to_string(root.join("README.md")).expect("the README is there");
    let steps = transcript::steps(&transcript::section(&readme, "## A tour of five minutes"));
    assert!(steps.len() > 10, "the tour is more than {} steps", steps.len());
    let mut tour = Tour::new(&root.join("ops/demo"));
    for step in &steps {
        tour.take(step);
    }
    assert!(tour.up.is_none(), "the tour ends with nothing left running");
}

#[test]
fn the_tour_on_kafka_is_true_and_leaves_nothing_running() {
    let root = root();
    let readme = fs::read_to_string(root.join("README.md")).expect("the README is there");
    let steps = transcript::steps(&transcript::section(&readme, KAFKA_TOUR));
    assert!(steps.len() > 10, "the tour is more than {} steps", steps.len());
    let mut tour = Tour::new(&root.join("ops/demo"));
    for step in &steps {
        tour.take(step);
    }
    assert!(tour.background.iter().all(Option::is_none), "the tour ends what it started");
    assert_eq!(processes_in(tour.folder.path()), [], "no pod runs");
    let left: Vec<_> = fs::read_dir(tour.folder.path()).expect("listed").flatten().collect();
    let names = left.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<_> = names.filter(|name| !name.ends_with(".log")).collect();
    assert_eq!(left, ["ops"], "the tour removes its files");
}

/// A folder that looks like the top of a clone, and what runs in it.
struct Tour {
    folder: TempDir,
    path: OsString,
    up: Option<Up>,
    /// The commands in the background, in the order of their starts.
    background: Vec<Option<Background>>,
    /// Texts of the README, and what the test types instead.
    replaced: Vec<(&'static str, String)>,
}

/// A command in the background.
enum Background {
    Broker(Cluster),
    Process(Up),
}

/// What `cargo xtask up` started.
struct Up {
    process: Child,
    log: PathBuf,
}

impl Tour {
    fn new(demo: &Path) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let copy = folder.path().join("ops/demo");
        fs::create_dir_all(&copy).expect("the copy's folder");
        for entry in fs::read_dir(demo).expect("the demo is there") {
            let entry = entry.expect("the demo can be listed");
            fs::copy(entry.path(), copy.join(entry.file_name())).expect("a manifest is copied");
        }
        let mut path = OsString::from(programs());
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let ports = free_ports::<{ ADDRESSES.len() }>().expect("free ports");
        let address = |port: u16| format!("127.0.0.1:{port}");
        let replaced = ADDRESSES.into_iter().zip(ports.map(address)).collect();
        Self { folder, path, up: None, background: Vec::new(), replaced }
    }

    fn take(&mut self, step: &Step) {
        match &step.typed {
            Input::Command(command) if command == UP => self.start(step),
            Input::Command(command) if command == KAFKA => {
                let broker = Cluster::start(ClusterSettings::default()).expect("Kafka starts");
                self.replaced.push((KAFKA_ADDRESS, broker.bootstrap()));
                self.background.push(Some(Background::Broker(broker)));
            }
            Input::Command(command) => {
                let replaced = self.replaced.iter();
                let command = replaced
                    .fold(command.clone(), |text, (of_readme, ours)| text.replace(of_readme, ours));
                if let Some(command) = command.strip_suffix(" &") {
                    self.start_in_background(step, command);
                } else if let Some(jobs) = command.strip_prefix("kill ") {
                    self.end(step, jobs);
                } else {
                    self.ask(step, &command);
                }
            }
            Input::Interrupt => self.interrupt(step),
        }
    }

    fn start(&mut self, step: &Step) {
        let log = self.folder.path().join(format!("up-{}.log", step.line));
        let output = File::create(&log).expect("a log");
        let error = output.try_clone().expect("the same log");
        let mut command = self.command("headwater", &["up", "ops/demo"]);
        let process = command.stdout(output).stderr(error).spawn().expect("headwater starts");
        self.up = Some(Up { process, log: log.clone() });
        self.wait_until_agrees(step, || words(&fs::read_to_string(&log).unwrap_or_default()));
    }

    fn start_in_background(&mut self, step: &Step, command: &str) {
        let log = self.folder.path().join(format!("job-{}.log", step.line));
        let output = File::create(&log).expect("a log");
        let error = output.try_clone().expect("the same log");
        let mut shell = self.command("sh", &["-c", &format!("exec {command}")]);
        let process = shell.stdout(output).stderr(error).spawn().expect("a shell starts");
        self.background.push(Some(Background::Process(Up { process, log: log.clone() })));
        if !step.expected.is_empty() {
            self.wait_until_agrees(step, || words(&fs::read_to_string(&log).unwrap_or_default()));
        }
    }

    /// Ends commands in the background: `%2 %1; wait %2 %1`.
    fn end(&mut self, step: &Step, jobs: &str) {
        let (jobs, waited) = jobs.split_once("; wait ").expect("the tour waits for what it ends");
        assert_eq!(jobs, waited, "README.md:{}", step.line);
        for job in jobs.split_whitespace() {
            let number = job.strip_prefix('%').and_then(|number| number.parse::<usize>().ok());
            let job =
                number.and_then(|number| self.background.get_mut(number.checked_sub(1)?)?.take());
            match job.expect("a command of the tour that runs") {
                Background::Broker(broker) => drop(broker),
                Background::Process(mut process) => {
                    let status = process.end(Signal::SIGTERM);
                    assert!(
                        status.is_some_and(|status| status.success()),
                        "README.md:{}: it ends in {status:?}:\n{}",
                        step.line,
                        process.output(),
                    );
                }
            }
        }
    }

    fn ask(&self, step: &Step, command: &str) {
        let ask = || {
            let both = format!("exec 2>&1\n{command}");
            let mut shell = self.command("timeout", &[COMMAND_WAIT_SECONDS, "sh", "-c", &both]);
            // A process that a command leaves behind may keep the output open longer than `timeout` runs.
            let ended = output(&mut shell);
            let text = String::from_utf8_lossy(&ended.stdout).into_owned();
            (is_done(command, ended.status), text)
        };
        if step.expected.is_empty() {
            let (done, text) = ask();
            assert!(done, "README.md:{}: `{command}` failed:\n{text}", step.line);
            return;
        }
        self.wait_until_agrees(step, || match ask() {
            (true, text) => text,
            (false, text) => format!("{text}(the command failed)\n"),
        });
    }

    fn interrupt(&mut self, step: &Step) {
        let mut up = self.up.take().expect("something runs that Ctrl-C can stop");
        let before = fs::read(&up.log).expect("its log").len();
        let status = up.interrupt();
        assert!(
            status.is_some_and(|status| status.success()),
            "README.md:{}: Ctrl-C ends in {status:?}:\n{}",
            step.line,
            up.output(),
        );
        if !step.expected.is_empty() {
            self.wait_until_agrees(step, || words(up.output().get(before..).unwrap_or_default()));
        }
    }

    /// A program started in the tour's folder, with the binary on its path.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).env("PATH", &self.path);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HEADWATER_") {
                command.env_remove(name);
            }
        }
        command
    }

    fn wait_until_agrees(&self, step: &Step, output: impl Fn() -> String) {
        let deadline = Instant::now() + WAIT;
        loop {
            let seen = output();
            if transcript::agrees(&step.expected, &seen) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "README.md:{}: {:?} does not answer as the README says.\n\
                 --- README\n{}\n--- seen\n{seen}\n--- up\n{}{}",
                step.line,
                step.typed,
                step.expected.join("\n"),
                self.up.as_ref().map(Up::output).unwrap_or_default(),
                self.background.iter().flatten().map(Background::output).collect::<String>(),
            );
            thread::sleep(POLL);
        }
    }
}

impl Background {
    fn output(&self) -> String {
        match self {
            Self::Broker(_) => String::new(),
            Self::Process(process) => process.output(),
        }
    }
}

impl Up {
    fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Types Ctrl-C and waits for the end; `None` when it does not come.
    fn interrupt(&mut self) -> Option<ExitStatus> {
        self.end(Signal::SIGINT)
    }

    /// Sends a signal and waits for the end; `None` when it does not come.
    fn end(&mut self, signal: Signal) -> Option<ExitStatus> {
        let id = i32::try_from(self.process.id()).expect("a process id");
        // The process may have ended; its exit status shows that.
        let _ = kill(Pid::from_raw(id), signal);
        let deadline = Instant::now() + WAIT;
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().expect("our own child") {
                return Some(status);
            }
            thread::sleep(POLL);
        }
        None
    }
}

impl Drop for Tour {
    /// Leaves nothing running when the tour fails midway, whatever state that left it in.
    fn drop(&mut self) {
        drop(self.up.take());
        self.background.clear();
        for process in processes_in(self.folder.path()) {
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}

impl Drop for Up {
    /// Lets a tour that fails midway stop its pods as a person would.
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) && self.interrupt().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// The output for a person. Without a terminal, `up` also logs one JSON object a line.
fn words(output: &str) -> String {
    let words = output.lines().filter(|line| !line.starts_with('{'));
    words.fold(String::new(), |text, line| text + line + "\n")
}

fn is_done(command: &str, status: ExitStatus) -> bool {
    status.success() || command.starts_with("headwater diff") && status.code() == Some(FOUND)
}
