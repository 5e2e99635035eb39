//! `headwater edge` and `headwater edged` as processes: pods outlive them, and each answers the
//! asking commands with what it has.

mod cloud;
mod full_disk;
mod process;
mod runtime_change;
mod survival;

use std::fs;
use std::path::Path;

use headwater_e2e::containers::containers;
use nix::sys::signal::Signal;
use serde_json::Value;

use cloud::Cloud;
use process::Process;

/// The node of these tests.
const NODE: &str = "gw-7";

/// A pod that says a word and lives, and a Secret that it names.
const MANIFESTS: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: hush}
stringData: {word: quiet}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  nodeName: gw-7
  terminationGracePeriodSeconds: 1
  containers:
  - name: keep
    command: [sh, -c, 'echo hello; while :; do sleep 1; done']
    env: [{name: WORD, valueFrom: {secretKeyRef: {name: hush, key: word}}}]
";

fn edge(cloud: &Cloud, more: &[&str]) -> Process {
    let hub = cloud.hub().to_string();
    let args = ["edge", "--node", NODE, "--hub", &hub, "--insecure-loopback"];
    Process::start(&[&args, more].concat())
}

fn edge_on(data: &Path, cloud: &Cloud, more: &[&str]) -> Process {
    let hub = cloud.hub().to_string();
    let args = ["edge", "--node", NODE, "--hub", &hub, "--insecure-loopback"];
    Process::start_on(data, &[&args, more].concat())
}

/// The tests may run as root; the edge needs an explicit permission.
const PODS: [&str; 3] = ["--runtime", "process", "--allow-root"];

fn node(process: &Process) -> Option<Value> {
    process.json(&["status", "-o", "json"])?["nodes"].get(0).cloned()
}

fn wait_for_link(process: &Process, connected: bool) {
    process.wait_for(if connected { "a hub" } else { "no hub" }, || {
        (node(process)?["connected"] == connected).then_some(())
    });
}

/// Waits until the pod runs, as its edge says, and its container has called exec.
fn wait_for_pod(edge: &Process, data: &Path) {
    edge.wait_for("the pod", || {
        let pods = edge.json(&["get", "pods", "-o", "json"])?;
        let runs = pods["items"].get(0)?["status"]["phase"] == "Running";
        let found = containers(data);
        let is_whole = found.values().flatten().all(|tree| tree.process.is_some());
        (runs && found.len() == 1 && is_whole).then_some(())
    });
}

#[test]
fn pods_outlive_their_edge_however_it_ends() {
    let cloud = Cloud::start(MANIFESTS);
    let mut edge = edge(&cloud, &PODS);
    wait_for_pod(&edge, &edge.data());
    let before = containers(&edge.data());
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let status = edge.end(signal);
        assert_eq!(status.code(), (signal == Signal::SIGTERM).then_some(0), "{}", edge.output());
        assert_eq!(containers(&edge.data()), before, "{signal}: the pod runs on");
        edge.start_again();
        wait_for_link(&edge, true);
        wait_for_pod(&edge, &edge.data());
        assert_eq!(containers(&edge.data()), before, "{signal}: the pod was adopted");
    }
    cloud.write("---\n");
    edge.wait_for("the pod's end", || containers(&edge.data()).is_empty().then_some(()));
}

#[test]
fn an_edge_answers_with_its_replica_and_names_the_part_that_has_the_rest() {
    let cloud = Cloud::start(MANIFESTS);
    let edge = edge(&cloud, &PODS);
    wait_for_pod(&edge, &edge.data());
    wait_for_link(&edge, true);

    let status = edge.json(&["status", "-o", "json"]).expect("it answers");
    assert_eq!(status["part"], "edge");
    assert!(status["writer_epoch"].is_null() && status["reconciled"].is_null(), "{status:#}");
    let own = edge.wait_for("the node in step", || {
        let node = node(&edge)?;
        (node["state"] == "in step" && node["outbox_depth"] == 0).then_some(node)
    });
    assert_eq!(own["hub"], cloud.hub().to_string());
    let stream = &own["streams"][0];
    assert_eq!(stream["stream"], format!("node/{NODE}"));
    assert_eq!(stream["tail"], stream["applied"]);
    assert!(stream["sent"].is_null() && stream["acked"].is_null(), "only a hub knows: {stream}");

    let named = edge.text(&["get", "pods", "--node", NODE, "-o", "json"]).expect("its replica");
    assert_eq!(named, edge.text(&["get", "pods", "-o", "json"]).expect("its replica"));
    let pods = edge.text(&["get", "pods"]).expect("its replica");
    assert!(pods.contains("Running"), "{pods}");
    let secret = edge.text(&["get", "secret", "hush", "-o", "yaml"]).expect("its replica");
    assert!(!secret.contains("cXVpZXQ="), "masked: {secret}");
    assert!(edge.text(&["describe", "pod", "keeper"]).expect("described").contains("Running"));
    // A pod runs before its process has called exec.
    edge.wait_for("its logs", || edge.text(&["logs", "keeper"]).filter(|log| log == "hello\n"));

    let verified = edge.json(&["verify", NODE, "-o", "json"]);
    let verified = verified.or_else(|| {
        let lines = edge.text(&["verify", "-o", "json"])?;
        serde_json::from_str(lines.lines().next()?).ok()
    });
    let verified = verified.expect("it compares what it can");
    assert_eq!(verified["agrees"], true);
    assert_eq!(verified["kept"], verified["recomputed"]);
    assert!(verified["log"].is_null(), "{verified}");

    for (args, named) in [
        (&["history", "node/gw-7"][..], "an edge keeps no log: ask"),
        (&["diff", "node/gw-7", "--from", "1"], "an edge keeps no log"),
        (&["get", "pods", "--node", NODE, "--at", "1"], "an edge keeps no log"),
        (&["get", "pods", "--node", "gw-8"], "this is the edge of gw-7"),
        (&["verify", "gw-8"], "this is the edge of gw-7"),
    ] {
        let error = edge.refused(args);
        assert!(error.contains(named), "{args:?}: {error}");
    }
}

#[test]
fn a_link_that_was_cut_stays_cut_until_it_is_restored() {
    let cloud = Cloud::start(MANIFESTS);
    let mut edge = edge(&cloud, &["--runtime", "hollow"]);
    wait_for_link(&edge, true);
    edge.text(&["link", "cut", NODE]).expect("cut");
    wait_for_link(&edge, false);
    edge.end(Signal::SIGTERM);
    edge.start_again();
    wait_for_link(&edge, false);
    edge.text(&["link", "restore", NODE]).expect("restored");
    wait_for_link(&edge, true);
}

#[test]
fn a_pod_worker_of_its_own_runs_the_pods_over_the_local_api() {
    let cloud = Cloud::start(MANIFESTS);
    let mut edge = edge(&cloud, &["--no-edged"]);
    wait_for_link(&edge, true);
    let socket = edge.data().join("nodes").join(NODE).join("edge.sock");
    let socket = socket.to_str().expect("UTF-8");
    let args = ["edged", "--edge", socket, "--node", NODE];
    let mut edged = Process::start(&[&args[..], &PODS].concat());
    wait_for_pod(&edge, &edged.data());
    let before = containers(&edged.data());
    assert!(containers(&edge.data()).is_empty());
    // The edge does not have the output of its pods, and names the process that has it.
    let refusal = edge.refused(&["logs", "keeper"]);
    assert!(refusal.contains("`headwater edged`: name with --data"), "{refusal}");
    edged.wait_for("its logs", || edged.text(&["logs", "keeper"]).filter(|log| log == "hello\n"));
    assert!(edged.refused(&["logs", "-l", "app=keeper"]).contains("name one pod"));
    assert!(edged.data().join("nodes").join(NODE).join("edged/logs").is_dir());

    // The worker dies while its edge lives: the node is not present, and its hub still has it.
    let is_so = |is_present, status: &str| {
        let presence = cloud.presence(NODE);
        let (found, reason) = cloud.ready(NODE)?;
        let is_named = (reason == "WorkerNotRunning") != is_present;
        (presence.is_present == is_present && presence.has_drained && found == status && is_named)
            .then_some(())
    };
    edged.wait_for("a node that is present", || is_so(true, "True"));
    edged.end(Signal::SIGKILL);
    edge.wait_for("a node without a worker", || is_so(false, "Unknown"));
    assert_eq!(node(&edge).expect("it answers")["connected"], true);
    edged.start_again();
    edged.wait_for("a node that is present again", || is_so(true, "True"));

    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        edged.end(signal);
        edge.end(signal);
        assert_eq!(containers(&edged.data()), before, "{signal}: the pod runs on");
        edged.start_again();
        edge.start_again();
        wait_for_pod(&edge, &edged.data());
        assert_eq!(containers(&edged.data()), before, "{signal}: the pod was adopted");
    }
    cloud.write("---\n");
    edge.wait_for("the pod's end", || containers(&edged.data()).is_empty().then_some(()));
}

#[test]
fn a_data_directory_is_of_one_part_and_one_node() {
    let cloud = Cloud::start(MANIFESTS);
    let mut first = edge(&cloud, &["--runtime", "hollow"]);
    wait_for_link(&first, true);
    let data = first.data();
    let ends = |args: &[&str]| {
        let mut other = Process::start_on(&data, args);
        let status = other.ended();
        (status.code(), other.output())
    };
    let hub = cloud.hub().to_string();
    let of = |node| {
        let pods = ["--runtime", "hollow", "--insecure-loopback"];
        [&["edge", "--node", node, "--hub", &hub][..], &pods].concat()
    };
    let (code, output) = ends(&of(NODE));
    assert!(code == Some(1) && output.contains("in use"), "{output}");
    first.end(Signal::SIGTERM);
    let (code, output) = ends(&of("gw-8"));
    assert!(
        code == Some(1) && output.contains("`edge gw-7`") && output.contains("`edge gw-8`"),
        "{output}"
    );
    let (code, output) = ends(&["up", cloud.manifests().to_str().expect("UTF-8")]);
    assert!(code == Some(1) && output.contains("`edge gw-7`"), "{output}");
}

#[test]
fn a_setting_that_an_edge_needs_is_named() {
    for (args, named) in [
        (&["edge", "--check"][..], "--node"),
        (&["edge", "--check", "--node", NODE], "--hub"),
        (&["edge", "--check", "--node", NODE, "--hub", "127.0.0.1:1"], "--runtime"),
        (&["edged", "--check"], "--edge"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut process = Process::start_on(&folder.path().join("data"), args);
        assert_eq!(process.ended().code(), Some(2), "{args:?}: {}", process.output());
        assert!(process.output().contains(named), "{args:?}: {}", process.output());
        assert!(fs::metadata(process.data()).is_err(), "{args:?}: nothing was made");
    }
}
