//! The demo as containers: `up --runtime cri`, two nodes on one real containerd, images from a registry.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;

use headwater_cri_lab::{BUSYBOX_IMAGE, Containerd, ContainerdSettings, Image};
use headwater_daemon::{OutputLines, output_within};
use headwater_e2e::running::{Running, WAIT, headwater, root};
use serde_json::Value;

/// A port of loopback in the network of containerd.
const REGISTRY_PORT: u16 = 5000;

/// Pods of the demo: two greeters, two pulses, the letter, and the countdown that ends.
const PODS: usize = 6;

/// Runs a command to its end, with the time limit of every condition.
fn output(command: &mut Command) -> Output {
    output_within(command, WAIT).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What `ctr` prints, line by line.
fn ctr(containerd: &Containerd, args: &[&str]) -> Vec<String> {
    let listed = output(containerd.ctr().args(args).stdin(Stdio::null()));
    assert!(listed.status.success(), "{args:?}: {}", String::from_utf8_lossy(&listed.stderr));
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
}

/// The status of the one container of a pod of `app`, for each pod.
fn statuses(running: &Running, app: &str) -> Vec<Value> {
    let pods = running.items(&["get", "pods", "-l", &format!("app={app}")]);
    pods.iter().map(|pod| pod["status"]["containerStatuses"][0].clone()).collect()
}

#[test]
fn the_demo_runs_as_containers_restarts_and_ends() {
    if !Containerd::is_possible() {
        return;
    }
    let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
    let registry = containerd.registry(REGISTRY_PORT, None).expect("a registry");
    let busybox = Image::busybox().expect("an image");
    containerd.push(&registry, &busybox, "library/busybox:latest").expect("it is sent");
    containerd.mirror("docker.io", &registry).expect("a mirror");
    let demo = root().join("ops/demo").display().to_string();
    let socket = containerd.socket().display().to_string();
    let mut running = Running::start(&[&demo, "--runtime", "cri", "--cri-endpoint", &socket]);
    running.wait_for_pods(PODS, |status| status == "Running" || status == "Completed");
    running.wait_for("the letter", |running| {
        let log = running.text(&["logs", "letter"])?;
        log.contains("Dear edge, all is well. Yours, the cloud").then_some(())
    });
    running.wait_for("a greeting", |running| {
        running.text(&["logs", "deploy/greeter"]).filter(|log| log.contains("Good morning from"))
    });
    let pods = running.items(&["get", "pods"]);
    let addresses: std::collections::BTreeSet<_> =
        pods.iter().filter_map(|pod| pod["status"]["podIP"].as_str()).collect();
    assert_eq!(addresses.len(), PODS, "each pod has an address of its own: {pods:#?}");
    assert!(statuses(&running, "pulse").iter().all(|one| one["restartCount"] == 0));

    let pulses = "labels.\"io.kubernetes.container.name\"==pulse";
    let ids = ctr(&containerd, &["containers", "list", "--quiet", pulses]);
    assert_eq!(ids.len(), 2, "one on each node");
    ctr(&containerd, &["tasks", "kill", "--signal", "SIGKILL", &ids[0]]);
    running.wait_for("a restart", |running| {
        let restarted = |one: &Value| {
            one["restartCount"] == 1
                && one["lastState"]["terminated"]["exitCode"] == 137
                && one["state"]["running"].is_object()
        };
        let statuses = statuses(running, "pulse");
        let untouched = statuses.iter().filter(|one| one["restartCount"] == 0).count();
        (statuses.iter().any(restarted) && untouched == 1).then_some(())
    });

    let ended = running.interrupt();
    assert!(ended.success(), "{}", running.output());
    // The sandboxes stay for the next start.
    let kind = "labels.\"io.cri-containerd.kind\"==container";
    let containers = ctr(&containerd, &["containers", "list", "--quiet", kind]);
    let tasks = ctr(&containerd, &["tasks", "list"]);
    let runs =
        |id: &&String| tasks.iter().any(|line| line.contains(*id) && line.contains("RUNNING"));
    let left: Vec<_> = containers.iter().filter(runs).collect();
    assert!(!containers.is_empty() && left.is_empty(), "{left:?} run on");
}

#[test]
fn a_person_runs_commands_in_a_container_and_reaches_its_port() {
    if !Containerd::is_possible() {
        return;
    }
    let test = || {
        let containerd = Containerd::start(ContainerdSettings::default()).expect("containerd");
        // Its server of streams listens on the loopback of its own network.
        containerd.machine().enter_network().expect("the network is there");
        person(&containerd.socket().display().to_string());
    };
    if let Err(panic) = thread::spawn(test).join() {
        std::panic::resume_unwind(panic);
    }
}

fn person(socket: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let manifest = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    \
         image: {BUSYBOX_IMAGE}\n    command: [sh, -c, 'while :; do echo served | nc -l -p 8080; done']\n"
    );
    fs::write(folder.path().join("web.yaml"), manifest).expect("written");
    let manifests = folder.path().display().to_string();
    let args = [&manifests, "--nodes", "1", "--runtime", "cri", "--cri-endpoint", socket];
    let mut running = Running::start(&args);
    running.wait_for_pods(1, |status| status == "Running");
    let data = running.data();
    let command = |verb: &str| -> Command {
        let mut command = headwater();
        command.arg(verb).arg("--data").arg(&data);
        command
    };
    let exec = |args: &[&str]| {
        let output = output(command("exec").args(args).stdin(Stdio::null()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let (out, err, code) = exec(&["web", "--", "sh", "-c", "echo a; echo b >&2; exit 7"]);
    assert_eq!((out.as_str(), err.as_str(), code), ("a\n", "b\n", Some(7)));
    let (_, err, code) = exec(&["none", "--", "true"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("pods \"none\" not found"), "{err}");
    let (_, err, code) = exec(&["web", "-c", "none", "--", "true"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("container not found (\"none\")"), "{err}");
    let input = folder.path().join("input");
    fs::write(&input, "one\ntwo\n").expect("written");
    let mut head = command("exec");
    head.args(["-i", "pod/web", "--", "head", "-n", "2"]);
    let first = output(head.stdin(fs::File::open(&input).expect("a file")));
    assert_eq!(first.stdout, b"one\ntwo\n");
    // In a terminal of its own: `script` gives one, whose size reaches the container soon after the start.
    let typed = format!(
        "stty cols 77 rows 33; exec {} exec -it --data {} web -- \
         sh -c 'for i in $(seq 100); do [ \"$(stty size)\" = \"33 77\" ] && echo sized && exit 3; sleep 0.1; done'",
        head.get_program().display(),
        data.display()
    );
    let mut script = Command::new("script");
    let shown = output(script.args(["-qec", &typed, "/dev/null"]).stdin(Stdio::null()));
    let seen = String::from_utf8_lossy(&shown.stdout);
    assert!(seen.contains("sized") && shown.status.code() == Some(3), "{seen}: {shown:?}");

    let mut forward = command("port-forward");
    let mut forward =
        forward.args(["web", ":8080"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = OutputLines::of(forward.stdout.take().expect("piped"));
    let served = running.served_through(&lines);
    forward.kill().expect("it runs");
    forward.wait().expect("it ends");
    assert_eq!(served, "served\n");
    assert!(running.interrupt().success(), "{}", running.output());
}

#[test]
fn a_runtime_that_cannot_be_used_is_named_with_what_to_do() {
    if !Containerd::is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |socket: &str| {
        let data = folder.path().join("data").display().to_string();
        let demo = root().join("ops/demo").display().to_string();
        let args = ["up", &demo, "--runtime", "cri", "--cri-endpoint", socket, "--data", &data];
        let refused = output(headwater().args(args).stdin(Stdio::null()));
        assert!(!refused.status.success());
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let socket = folder.path().join("none.sock").display().to_string();
    let text = refused(&socket);
    assert!(text.contains(&socket) && text.contains("--cri-endpoint"), "{text}");
    let text = refused("none.sock");
    assert!(text.contains("--cri-endpoint") && text.contains("absolute path"), "{text}");
}
