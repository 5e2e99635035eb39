//! A node that is cut off: it goes on and changes, starts again from its own disk, and is one
//! with the cloud when the link is back, whatever happened on either side meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use headwater_check::panic::check_words;
use headwater_e2e::containers::{containers, kill_all};
use headwater_e2e::invariants::Invariants;
use headwater_e2e::running::{Running, processes_in};
use serde_json::Value;

const NODE: &str = "node-1";

/// Writes what its ConfigMap says, again and again.
const READER: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: anchor-reader}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  volumes: [{name: words, configMap: {name: words}}]
  containers:
  - name: read
    command: [sh, -c, 'while :; do cat \"$HEADWATER_VOLUME_WORDS/word\"; echo; sleep 0.2; done']
";

/// Ends when a file of the test is there.
const ENDING: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: ending}
spec:
  nodeName: node-1
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: wait
    command: [sh, -c, 'until test -e END; do sleep 0.1; done']
";

/// Is ready while a file of the test is there.
const READY: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: ready}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  containers:
  - name: serve
    command: [sleep, '86400']
    readinessProbe:
      exec: {command: [test, -e, READY]}
      periodSeconds: 1
      failureThreshold: 1
";

const GOING: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: going}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  containers: [{name: wait, command: [sleep, '86400']}]
";

fn words(word: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: words}}\ndata: {{word: {word}}}\n")
}

struct Bench {
    running: Running,
    /// Dropped last: stopping needs the manifests.
    folder: tempfile::TempDir,
}

impl Bench {
    /// Four pods on a node, all running, all known to the cloud.
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manifests = folder.path().join("manifests");
        fs::create_dir(&manifests).expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let ending = ENDING.replace("END", &at("end"));
        let ready = READY.replace("READY", &at("ready"));
        for (name, text) in
            [("reader", READER), ("ending", &ending), ("ready", &ready), ("going", GOING)]
        {
            fs::write(manifests.join(format!("{name}.yaml")), text).expect("written");
        }
        fs::write(manifests.join("words.yaml"), words("first")).expect("written");
        let running = Running::start(&[manifests.to_str().expect("UTF-8"), "--nodes", "1"]);
        running.wait_for_pods(4, |status| status == "Running");
        running.wait_until_in_step();
        Self { running, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.folder.path().join("manifests").join(name)
    }

    fn cut(&self) {
        assert!(self.running.ask(&["link", "cut", NODE]).status.success());
        self.running
            .wait_for("the end of the session", |running| (!connected(running)).then_some(()));
    }

    fn restore(&self) {
        assert!(self.running.ask(&["link", "restore", NODE]).status.success());
        self.running.wait_until_in_step();
    }

    /// Waits until the reader has written this word.
    fn wait_until_read(&self, word: &str) {
        self.running.wait_for(word, |running| {
            running.text(&["logs", "anchor-reader"])?.ends_with(&format!("{word}\n")).then_some(())
        });
    }

    /// Waits until the log ends with an event of this kind.
    fn wait_until_logged(&self, kind: &str) {
        self.running.wait_for(kind, |running| {
            let last = running.history("node/node-1").pop()?;
            (last["kind"] == kind).then_some(())
        });
    }

    /// Kills it, checks everything that must hold, starts it again.
    fn look(&mut self, invariants: &mut Invariants) {
        self.running.kill();
        let looked = invariants.look(&self.running.data());
        looked.unwrap_or_else(|broken| panic!("{broken}\n{}", self.running.output()));
        self.running.start_again();
    }

    fn stop(mut self) {
        self.running.wait_until_in_step();
        let status = self.running.interrupt();
        assert!(status.success(), "{status:?}\n{}", self.running.output());
        check_words("up", &self.running.output()).expect("no panic");
        let left = processes_in(&self.running.data());
        assert!(left.is_empty(), "Ctrl-C leaves no process behind: {left:?}");
    }
}

fn connected(running: &Running) -> bool {
    let status = running.json(&["status", "-o", "json"]).unwrap_or_default();
    status["nodes"][0]["connected"] == true
}

/// A pod as the cloud shows it.
fn pod(running: &Running, name: &str) -> Option<Value> {
    running.items(&["get", "pods"]).into_iter().find(|pod| pod["metadata"]["name"] == name)
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["ready"] == true
}

/// The UIDs of the pods that have containers, as the machine says.
fn run(data: &Path) -> BTreeSet<String> {
    containers(data).into_keys().map(|container| container.uid).collect()
}

#[test]
fn both_sides_go_on_and_are_one_again() {
    let mut bench = Bench::start();
    let mut invariants = Invariants::new("anchor");
    bench.look(&mut invariants);
    bench.running.wait_until_in_step();
    let uid = |name: &str| pod(&bench.running, name).expect("there")["metadata"]["uid"].clone();
    let (going, words_before) = (uid("going"), config_uid(&bench.running));
    bench.cut();

    // The node goes on: a pod ends, another becomes ready.
    fs::write(bench.file("end"), "").expect("written");
    fs::write(bench.file("ready"), "").expect("written");
    let data = bench.running.data();
    bench.running.wait_for("three that run", |_| (run(&data).len() == 3).then_some(()));
    // The cloud goes on: a pod is deleted, a ConfigMap deleted and made again under its name.
    fs::remove_file(bench.manifest("going.yaml")).expect("deleted");
    bench.wait_until_logged("PodRemoved");
    fs::remove_file(bench.manifest("words.yaml")).expect("deleted");
    bench.wait_until_logged("ConfigMapRemoved");
    fs::write(bench.manifest("words.yaml"), words("again")).expect("written");
    bench.wait_until_logged("ConfigMapApplied");

    // Neither knows of the other.
    assert!(run(&data).contains(going.as_str().expect("a UID")), "it runs until the node knows");
    assert!(bench.running.text(&["logs", "anchor-reader"]).expect("a log").ends_with("first\n"));
    assert_eq!(pod(&bench.running, "ending").expect("there")["status"]["phase"], "Running");
    assert!(!is_ready(&pod(&bench.running, "ready").expect("there")));

    bench.restore();
    bench.wait_until_read("again");
    bench.running.wait_for("the newest statuses", |running| {
        let ended = pod(running, "ending")?["status"]["phase"] == "Succeeded";
        (ended && is_ready(&pod(running, "ready")?) && pod(running, "going").is_none())
            .then_some(())
    });
    bench.running.wait_for("the end of the pod", |_| {
        (!run(&data).contains(going.as_str().expect("a UID"))).then_some(())
    });
    assert_ne!(config_uid(&bench.running), words_before, "another ConfigMap of the same name");
    assert_eq!(bench.running.ask(&["verify"]).status.code(), Some(0));
    bench.running.wait_until_in_step();
    bench.look(&mut invariants);
    bench.stop();
}

/// The UID of the ConfigMap, as the node has it.
fn config_uid(running: &Running) -> Value {
    let maps = running.items(&["get", "configmaps", "--node", NODE]);
    maps.first().map(|map| map["metadata"]["uid"].clone()).unwrap_or_default()
}

#[test]
fn an_edge_that_starts_cut_off_runs_what_it_ran_from_its_own_disk() {
    let mut bench = Bench::start();
    let mut invariants = Invariants::new("anchor");
    let data = bench.running.data();
    // What has ended for good does not run again.
    fs::write(bench.file("end"), "").expect("written");
    bench.running.wait_for("three that run", |_| (run(&data).len() == 3).then_some(()));
    bench.running.wait_until_in_step();
    let ran = run(&data);
    bench.cut();
    fs::write(bench.manifest("words.yaml"), words("later")).expect("edited");
    bench.wait_until_logged("ConfigMapApplied");

    // The machine goes down and comes up again: no process is left to be adopted.
    bench.running.kill();
    kill_all(&data);
    bench.running.wait_for("the end of all", |_| containers(&data).is_empty().then_some(()));
    let looked = invariants.look(&data);
    looked.unwrap_or_else(|broken| panic!("{broken}"));
    bench.running.start_again();
    bench.running.wait_for("the pods, from disk", |_| (run(&data) == ran).then_some(()));
    bench.wait_until_read("first");
    assert!(!connected(&bench.running), "the cut outlived the restart");
    let tail = bench.running.history("node/node-1").len();

    // The same with a stop that was meant.
    assert!(bench.running.interrupt().success());
    assert!(run(&data).is_empty(), "stopped");
    bench.running.start_again();
    bench.running.wait_for("the pods, from disk", |_| (run(&data) == ran).then_some(()));
    assert!(!connected(&bench.running), "the cut outlived the restart");
    assert_eq!(bench.running.history("node/node-1").len(), tail, "nothing is appended by it");

    bench.restore();
    bench.wait_until_read("later");
    let is_well = |status: &str| status == "Running" || status == "Completed";
    bench.running.wait_for_pods(4, is_well);
    assert_eq!(run(&data), ran, "the same pods");
    bench.look(&mut invariants);
    bench.running.wait_until_in_step();
    assert!(connected(&bench.running), "and so did the end of the cut");
    bench.stop();
}
