//! The demo as containers: `up --runtime cri`, two nodes on one real containerd, images from a registry.

use headwater_cri_lab::{Containerd, ContainerdSettings, Image};
use headwater_e2e::running::{Running, headwater, root};
use serde_json::Value;

/// A port of loopback in the network of containerd.
const REGISTRY_PORT: u16 = 5000;

/// Pods of the demo: two greeters, two pulses, the letter, and the countdown that ends.
const PODS: usize = 6;

/// What `ctr` prints, line by line.
fn ctr(containerd: &Containerd, args: &[&str]) -> Vec<String> {
    let output = containerd.ctr().args(args).output().expect("ctr starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
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
fn a_runtime_that_cannot_be_used_is_named_with_what_to_do() {
    if !Containerd::is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |socket: &str| {
        let data = folder.path().join("data").display().to_string();
        let demo = root().join("ops/demo").display().to_string();
        let args = ["up", &demo, "--runtime", "cri", "--cri-endpoint", socket, "--data", &data];
        let output = headwater().args(args).output().expect("headwater starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let socket = folder.path().join("none.sock").display().to_string();
    let text = refused(&socket);
    assert!(text.contains(&socket) && text.contains("--cri-endpoint"), "{text}");
    let text = refused("none.sock");
    assert!(text.contains("--cri-endpoint") && text.contains("absolute path"), "{text}");
}
