//! What an operator meets: secrets kept, slips of the finger named, databases lost, pipes closed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use headwater_check::positions::Positions;
use headwater_daemon::end_within;
use headwater_e2e::running::{Running, WAIT, headwater, output, processes_in};
use headwater_event::{Seq, StreamId};
use serde_json::Value;

/// What no output may hold: `canary-in-a-coal-mine`, and so in base64.
const CANARY: [&str; 2] = ["canary-in-a-coal-mine", "Y2FuYXJ5LWluLWEtY29hbC1taW5l"];

/// A pod that reads a Secret and a ConfigMap, and lives in its pod directory.
const MANIFESTS: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: hush}
stringData: {word: canary-in-a-coal-mine}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: first}
---
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 2
  volumes:
  - {name: hush, secret: {secretName: hush}}
  - {name: words, configMap: {name: words}}
  containers:
  - name: keep
    command: [sh, -c, 'while :; do sleep 1; done']
";

fn keeper() -> (tempfile::TempDir, PathBuf, Running) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests).expect("a folder");
    fs::write(manifests.join("all.yaml"), MANIFESTS).expect("written");
    let running = Running::start(&[manifests.to_str().expect("UTF-8")]);
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    (folder, manifests.join("all.yaml"), running)
}

#[test]
fn no_answer_holds_a_secret_unless_asked_for() {
    let (_folder, _file, running) = keeper();
    for args in [
        &["get", "secrets", "-o", "yaml"][..],
        &["get", "secrets", "-o", "json", "--node", "node-1"],
        &["get", "all", "-A", "-o", "json", "--node", "node-1", "--at", "4"],
        &["describe", "secret", "hush"],
        &["history", "node/node-1", "-o", "json"],
        &["diff", "node/node-1", "--from", "0"],
    ] {
        let output = running.ask(args);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(text.contains("hush"), "{args:?} speaks of the secret: {text}");
        assert!(!CANARY.iter().any(|canary| text.contains(canary)), "{args:?}: {text}");
        let shown = running.ask(&[args, &["--show-secrets"]].concat());
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(CANARY.iter().any(|canary| text.contains(canary)), "{args:?}: {text}");
    }
    assert!(!CANARY.iter().any(|canary| running.output().contains(canary)), "nor the output of up");
}

#[test]
fn a_slip_of_the_finger_is_named() {
    let (_folder, file, running) = keeper();
    let data = running.data();
    let data = data.to_str().expect("UTF-8");
    let folder = file.parent().and_then(Path::to_str).expect("UTF-8");
    for (args, code, named) in [
        (&["history", "node/node-9"][..], 1, "there is no stream node/node-9; there are"),
        (&["diff", "node/node-9", "--from", "0"], 1, "there is no stream node/node-9"),
        (&["get", "pod/keeper", "other"], 2, "other is not TYPE/NAME"),
        (&["describe", "deployments"], 2, "\"deployments\" is not replicated"),
        (&["describe", "ingresses"], 2, "there is no type"),
        (&["get", "pods", "--bogus"], 2, "--bogus"),
        (&["link", "cut", "node-9"], 1, "nodes \"node-9\" not found; there are node-1, node-2"),
        (&["node", "release", "node-1"], 1, "node node-1 is not held; this hub holds no node"),
        (&["up", folder], 1, "in use by another headwater"),
    ] {
        let refused = output(headwater().args(args).args(["--data", data]));
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
    let typo = output(headwater().args(["up", folder]).env("HEADWATER_NODEZ", "3"));
    let stderr = String::from_utf8_lossy(&typo.stderr).into_owned();
    assert_eq!(typo.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("HEADWATER_NODEZ: there is no such setting"), "{stderr}");
    assert!(running.text(&["get", "pod/keeper"]).is_some_and(|text| text.contains("keeper")));
    assert!(running.text(&["get", "nodes"]).is_some_and(|text| !text.contains("<unknown>")));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_folder, _file, running) = keeper();
    for args in [&["status"][..], &["verify"], &["get", "all"], &["completion", "bash"]] {
        let mut command = headwater();
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        if args[0] != "completion" {
            command.arg("--data").arg(running.data());
        }
        let mut process = command.spawn().expect("it starts");
        drop(process.stdout.take());
        let output = end_within(process, WAIT).expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{args:?}: {stderr}");
    }
}

#[test]
fn a_lost_replica_is_built_again_and_nothing_is_left_behind() {
    let (_folder, _file, mut running) = keeper();
    let before = running.history("node/node-1");
    running.kill();
    fs::remove_dir_all(running.data().join("nodes/node-1/state")).expect("it was there");
    running.start_again();
    running.wait_until_in_step();
    running.wait_for_pods(1, |status| status == "Running");
    let word = running.items(&["get", "cm", "--node", "node-1"])[0]["data"]["word"].clone();
    assert_eq!(word, "first");
    assert_eq!(running.ask(&["verify"]).status.code(), Some(0));
    assert_eq!(running.history("node/node-1").len(), before.len(), "nothing was appended");

    assert!(!processes_in(&running.data()).is_empty(), "the pod runs below the data directory");
    assert!(running.interrupt().success());
    let left = processes_in(&running.data());
    assert!(left.is_empty(), "Ctrl-C leaves no process behind: {left:?}");
}

#[test]
fn a_replica_is_a_prefix_of_its_history_and_positions_are_in_order() {
    let (_folder, file, running) = keeper();
    for word in ["second", "third"] {
        let count = running.history("node/node-1").len();
        fs::write(&file, MANIFESTS.replace("first", word)).expect("edited");
        running
            .wait_for(word, |running| (running.history("node/node-1").len() > count).then_some(()));
    }
    running.wait_until_in_step();
    let mut fold: BTreeMap<String, Value> = BTreeMap::new();
    for event in running.history("node/node-1") {
        let key = event["key"].as_str().unwrap_or_default().to_owned();
        match &event["object"] {
            Value::Null => drop(fold.remove(&key)),
            object => drop(fold.insert(key, object.clone())),
        }
    }
    fold.retain(|key, _| !key.starts_with('!'));
    let held = running.items(&["get", "pods,configmaps,secrets", "--node", "node-1"]);
    let held: BTreeMap<String, Value> = held
        .into_iter()
        .map(|mut object| {
            // The node reports the status; it is not part of the object that it received.
            object.as_object_mut().expect("an object").remove("status");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
            let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
            let key =
                format!("{}/{kind}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
            (key, object)
        })
        .collect();
    assert_eq!(held, fold, "I1");

    let status = running.json(&["status", "-o", "json"]).expect("a status");
    for stream in status["nodes"][0]["streams"].as_array().expect("streams") {
        let seq = |name: &str| Seq(stream[name].as_u64().expect(name));
        let id: StreamId = stream["stream"].as_str().expect("a name").parse().expect("a stream");
        let positions = Positions {
            acked: seq("acked"),
            durable: seq("durable"),
            applied: seq("applied"),
            received: seq("applied"),
            sent: seq("sent"),
            tail: seq("tail"),
        };
        positions.check(&id).expect("in order");
    }
}
