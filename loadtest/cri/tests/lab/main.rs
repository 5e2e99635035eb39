//! What a lab promises: it starts, it is apart from the machine, and it leaves nothing behind.

mod bad_input;
mod registry;
mod traces;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings, Server};

use crate::traces::{Traces, until};

fn start() -> Option<Containerd> {
    let start = || Containerd::start(ContainerdSettings::default()).expect("containerd");
    Containerd::is_possible().then(start)
}

/// The output of a command that succeeds.
fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a container that runs until it is killed.
fn run(ctr: &mut Command, cgroup_parent: &str, name: &str) {
    let cgroup = format!("{cgroup_parent}/{name}");
    ctr.args(["run", "--detach", "--cgroup", &cgroup, BUSYBOX_IMAGE, name, "/bin/sleep", "100000"]);
    output(ctr);
}

/// The containers that run, each a name, a process and a state.
fn tasks(containerd: &Containerd) -> Vec<Vec<String>> {
    let list = output(containerd.ctr().args(["tasks", "list"]));
    let lines = list.lines().skip(1);
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Whether the server's process is stopped.
fn is_frozen(server: &Server) -> bool {
    let pid = server.pid().expect("it runs");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

#[test]
fn containers_run_on_while_containerd_is_killed_and_it_finds_them_again() {
    let Some(mut containerd) = start() else { return };
    run(&mut containerd.ctr(), &containerd.cgroup_parent(), "one");
    let before = tasks(&containerd);
    assert_eq!((before.len(), before[0][2].as_str()), (1, "RUNNING"), "{before:?}");
    let traces = Traces::of(&containerd);
    let sleeps = || traces.processes().iter().filter(|line| line.contains("100000")).count();
    assert_eq!(sleeps(), 1);
    let pid = containerd.server().pid().expect("it runs");
    containerd.server().kill().expect("it can be killed");
    let process = PathBuf::from(format!("/proc/{pid}"));
    until("the end of containerd", || (!process.exists()).then_some(()));
    assert_eq!(sleeps(), 1, "its container ended with it");
    containerd.server().start().expect("it starts again");
    assert_eq!(tasks(&containerd), before);
    containerd.server().freeze().expect("it can be frozen");
    until("a frozen containerd", || is_frozen(containerd.server()).then_some(()));
    containerd.server().thaw().expect("it can continue");
    assert_eq!(tasks(&containerd), before);
}

#[test]
fn two_labs_are_apart_and_leave_nothing_behind() {
    let (Some(first), Some(second)) = (start(), start()) else { return };
    let mut traces = Vec::new();
    for containerd in [&first, &second] {
        // The same name, and nothing in the way of each other.
        run(&mut containerd.ctr(), &containerd.cgroup_parent(), "one");
        assert_eq!(tasks(containerd).len(), 1);
        traces.push(Traces::of(containerd));
    }
    drop(first);
    assert_eq!(tasks(&second)[0][2], "RUNNING", "the other lab ended it");
    let data = second.data().to_owned();
    drop(second);
    assert!(!data.exists(), "its data stays");
    for traces in traces {
        assert_eq!(traces.left(), Vec::<String>::new());
    }
}

#[test]
fn a_power_cut_ends_every_container_and_containerd_starts_on_its_data() {
    let Some(mut containerd) = start() else { return };
    run(&mut containerd.ctr(), &containerd.cgroup_parent(), "one");
    let traces = Traces::of(&containerd);
    containerd.cut_power().expect("it starts again");
    assert_eq!(traces.processes(), Vec::<String>::new());
    assert_eq!(tasks(&containerd), Vec::<Vec<String>>::new());
    let containers = output(containerd.ctr().args(["containers", "list", "--quiet"]));
    assert_eq!(containers, "one\n", "the container is forgotten");
    output(containerd.ctr().args(["containers", "delete", "one"]));
    run(&mut containerd.ctr(), &containerd.cgroup_parent(), "one");
    assert_eq!(tasks(&containerd).len(), 1);
}

#[test]
fn a_killed_starter_takes_its_processes_along_and_the_next_one_cleans_up() {
    if !Containerd::is_possible() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let mut starter = Command::new(env!("CARGO_BIN_EXE_headwater-cri-lab"));
    starter.arg("--data").arg(scratch.path()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut starter = Starter(starter.spawn().expect("it starts"));
    let mut endpoint = String::new();
    let output = starter.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut endpoint).expect("a line");
    let socket = endpoint.trim().strip_prefix("unix://").expect("a socket").to_owned();
    let cgroup = format!("/headwater-lab-{}-0", starter.0.id());
    let first = first_process(starter.0.id());
    let mut ctr = Command::new("nsenter");
    ctr.args(["--target", &first.to_string(), "--pid", "--mount", "--net", "ctr"]);
    run(ctr.args(["--address", &socket, "--namespace", "k8s.io"]), &cgroup, "one");
    let traces = Traces::new(first, scratch.path(), &cgroup);
    assert!(!traces.cgroups().is_empty() && !traces.processes().is_empty(), "{traces:?}");
    drop(starter);
    until("the end of all", || traces.processes().is_empty().then_some(()));
    let settings = ContainerdSettings { data: Some(scratch.path().to_owned()), version: None };
    let containerd = Containerd::start(settings).expect("it starts on the data");
    assert_eq!(traces.left(), Vec::<String>::new());
    assert_eq!(tasks(&containerd), Vec::<Vec<String>>::new());
}

/// A starter, which is killed when dropped.
struct Starter(Child);

impl Drop for Starter {
    fn drop(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it ended");
    }
}

/// The first process of the namespaces that this starter made.
fn first_process(starter: u32) -> u32 {
    let child = |parent: u32, word: &str| {
        let list =
            output(Command::new("ps").args(["-o", "pid=,comm=", "--ppid", &parent.to_string()]));
        let line = list.lines().find(|line| line.contains(word)).expect("a child").to_owned();
        line.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a number")
    };
    child(child(starter, "unshare"), "sh")
}
