//! Two nodes whose databases are damaged, one fault at a time, and what must hold after each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use headwater_check::panic::check_words;
use headwater_e2e::chance::Chance;
use headwater_e2e::containers::{Container, Tree, containers};
use headwater_e2e::invariants::Invariants;
use headwater_e2e::running::{Running, processes_in};
use headwater_event::NodeName;
use serde_json::Value;

use crate::SEED;
use crate::fault::Fault;

const NODES: [&str; 2] = ["node-1", "node-2"];

/// One on each node, one that has ended, and one that has not been ready since it runs.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME-node-1}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 1
  volumes: [{name: words, configMap: {name: words}}]
  containers: [{name: c, command: [sleep, "86400"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: NAME-node-2}
spec:
  nodeName: node-2
  terminationGracePeriodSeconds: 1
  volumes: [{name: words, configMap: {name: words}}]
  containers: [{name: c, command: [sleep, "86400"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: NAME-ended}
spec:
  nodeName: node-1
  restartPolicy: Never
  containers: [{name: c, command: ["true"]}]
"#;

/// See the module.
pub(crate) struct Bench {
    running: Running,
    /// Dropped after it: stopping needs the manifests.
    folder: tempfile::TempDir,
    invariants: Invariants,
    chance: Chance,
    word: u64,
    faults: u64,
}

/// What must be the same behind a fault.
#[derive(Debug, PartialEq)]
struct Before {
    trees: BTreeMap<Container, Vec<Tree>>,
    statuses: BTreeMap<String, Value>,
    events: [usize; 2],
}

impl Bench {
    pub(crate) fn start(chance: Chance) -> Self {
        println!("again: {SEED}={}", chance.seed());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manifests = folder.path().join("manifests");
        fs::create_dir(&manifests).expect("a folder");
        fs::write(manifests.join("pods.yaml"), PODS.replace("NAME", "anchor")).expect("written");
        write_word(&manifests, 0);
        let running = Running::start(&[manifests.to_str().expect("UTF-8")]);
        let invariants = Invariants::new("anchor");
        let bench = Self { running, folder, invariants, chance, word: 0, faults: 0 };
        bench.wait_until_settled();
        bench
    }

    /// Damages the state of the first node.
    pub(crate) fn damage_state(&mut self, fault: Fault) {
        let node: NodeName = NODES[0].parse().expect("a node");
        self.damage("nodes/node-1/state", fault, |invariants| invariants.lost_state(&node));
    }

    /// Damages the outbox of the first node.
    pub(crate) fn damage_outbox(&mut self, fault: Fault) {
        let node: NodeName = NODES[0].parse().expect("a node");
        let boot = self.boot();
        self.damage("nodes/node-1/outbox", fault, |invariants| invariants.lost_outbox(&node));
        assert!(self.boot() > boot, "{fault:?}: boot {} after {boot}", self.boot());
    }

    /// Damages what the cloud has folded.
    pub(crate) fn damage_fold(&mut self, fold: &str, fault: Fault) {
        self.damage(fold, fault, |_| {});
    }

    /// Takes all folds of the cloud away at once.
    pub(crate) fn lose_folds(&mut self, folds: &[&str]) {
        let before = self.prepare();
        for fold in folds {
            fs::remove_dir_all(self.running.data().join(fold)).expect("it was there");
        }
        self.running.start_again();
        self.check("all folds lost", &before);
    }

    /// Damages the log and returns whether the damage was named; then restores everything.
    pub(crate) fn damage_log(&mut self, fault: Fault) -> bool {
        let before = self.prepare();
        let data = self.running.data();
        let kept = self.folder.path().join("kept");
        databases(&data).iter().for_each(|path| copy(&data.join(path), &kept.join(path)));
        let what = fault.happens_to(&data.join("cloud/log"), &mut self.chance);
        let what = format!("fault {}: {what:?} ({SEED}={})", self.faults, self.chance.seed());
        let printed = self.running.output().len();
        self.running.start_again();
        let refused = self.running.answers_or_ends();
        let output = self.running.output()[printed..].to_owned();
        if let Some(status) = refused {
            assert_eq!(status.code(), Some(1), "{what}: {output}");
            let names = output.contains("cloud/log") && output.contains("Restore a copy");
            assert!(names, "{what}: it says what is damaged and what to do:\n{output}");
        } else {
            // Nothing that counts was damaged, or what can pass for a torn last write.
            self.running.kill();
        }
        assert_eq!(containers(&data), before.trees, "{what}: no pod is touched");
        for path in databases(&data) {
            fs::remove_dir_all(data.join(&path)).expect("it was there");
        }
        databases(&kept).iter().for_each(|path| copy(&kept.join(path), &data.join(path)));
        fs::remove_dir_all(&kept).expect("it was there");
        self.running.start_again();
        self.check(&what, &before);
        refused.is_some()
    }

    /// The log is lost, and begins anew from what the manifests say: as the next life of the log,
    /// of which the controller knew, so that every node follows.
    pub(crate) fn lose_log(&mut self) {
        let before = self.prepare();
        fs::remove_dir_all(self.running.data().join("cloud/log")).expect("it was there");
        self.follow_another_history(&before);
    }

    /// Loses all of the cloud, which then has no record of the log. The nodes have one: they refuse a
    /// log that is not its successor and keep their state until an operator decides.
    pub(crate) fn lose_cloud(&mut self) {
        let before = self.prepare();
        fs::remove_dir_all(self.running.data().join("cloud")).expect("it was there");
        self.running.start_again();
        self.running.wait_for("the refusal of every node", |running| {
            let status = running.json(&["status", "-o", "json"])?;
            let named = |node: &Value| {
                let trouble = node["trouble"].as_str().unwrap_or_default();
                trouble.contains("follows only to a higher number") && trouble.contains("wipe")
            };
            status["nodes"].as_array()?.iter().all(named).then_some(())
        });
        assert_eq!(containers(&self.running.data()), before.trees, "no pod is touched");
        let held = self.running.items(&["get", "pods", "--node", NODES[0]]);
        assert_eq!(held.len(), 2, "the node keeps what it had");
        // The operator decides.
        self.running.kill();
        for node in NODES {
            let state = self.running.data().join("nodes").join(node).join("state");
            fs::remove_dir_all(state).expect("it was there");
        }
        self.follow_another_history(&before);
    }

    /// Starts, and waits until every node follows a log that is not the one it followed.
    fn follow_another_history(&mut self, before: &Before) {
        self.running.start_again();
        self.wait_until_settled();
        self.running.wait_for("the pods of the new log", |running| {
            let now = containers(&running.data());
            (now.len() == before.trees.len()).then_some(())
        });
        assert_eq!(self.running.ask(&["verify"]).status.code(), Some(0));
        // What was known of the former history says nothing of this one.
        self.invariants = Invariants::new("anchor");
    }

    /// Starts again, which leaves tables behind, not write-ahead logs alone.
    pub(crate) fn settle_in_tables(&mut self) {
        self.prepare();
        self.running.start_again();
        self.wait_until_settled();
    }

    /// Ctrl-C: nothing is left.
    pub(crate) fn stop(mut self) {
        self.faults += 1;
        self.kill_and_look();
        self.running.start_again();
        self.wait_until_settled();
        let status = self.running.interrupt();
        assert!(status.success(), "{status:?}\n{}", self.running.output());
        check_words("up", &self.running.output()).expect("no panic");
        let left = processes_in(&self.running.data());
        assert!(left.is_empty(), "Ctrl-C leaves no process behind: {left:?}");
    }

    fn damage(&mut self, database: &str, fault: Fault, lost: impl FnOnce(&mut Invariants)) {
        let mut before = self.prepare();
        let path = self.running.data().join(database);
        let aside = moved_aside(&path);
        let mut what = fault.happens_to(&path, &mut self.chance);
        if what.is_none() {
            // A young database has no table yet: a start makes one of what was written before.
            self.running.start_again();
            self.wait_until_settled();
            before = self.prepare();
            what = fault.happens_to(&path, &mut self.chance);
        }
        let what = what.expect("by now there is such a file");
        let what = format!("fault {}: {what} ({SEED}={})", self.faults, self.chance.seed());
        lost(&mut self.invariants);
        let printed = self.running.output().len();
        self.running.start_again();
        self.check(&what, &before);
        let now = moved_aside(&path);
        if let Some(new) = now.iter().find(|path| !aside.contains(path)) {
            let name = new.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let output = self.running.output()[printed..].to_owned();
            assert!(output.contains(&name), "{what}: the log says {name}:\n{output}");
            let status = self.running.json(&["status", "-o", "json"]).unwrap_or_default();
            let troubles = status["troubles"].to_string();
            assert!(troubles.contains(&name), "{what}: status says {name}: {troubles}");
        }
    }

    /// Changes something, so that every database has news, and kills when all know it.
    fn prepare(&mut self) -> Before {
        self.faults += 1;
        self.word += 1;
        write_word(&self.folder.path().join("manifests"), self.word);
        self.wait_until_settled();
        let before = self.before();
        self.kill_and_look();
        before
    }

    /// Kills it, and checks all that must hold of the disks when nothing was to be done.
    fn kill_and_look(&mut self) {
        self.running.kill();
        let looked = self.invariants.look(&self.running.data());
        let holds = looked.and_then(|evidence| self.invariants.converged(&evidence));
        holds.unwrap_or_else(|broken| {
            panic!("behind fault {}: {broken}\n{}", self.faults - 1, self.running.output())
        });
    }

    /// Behind a fault: all is as it was. What the disks hold is looked at before the next one.
    fn check(&self, what: &str, before: &Before) {
        println!("{what}");
        self.wait_until_settled();
        let running = &self.running;
        running.wait_for(what, |_| (self.before().statuses == before.statuses).then_some(()));
        assert_eq!(&self.before(), before, "{what}: nothing is appended, no pod noticed");
        let verified = running.ask(&["verify"]);
        let output = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert_eq!(verified.status.code(), Some(0), "{what}: {output}");
    }

    fn before(&self) -> Before {
        let pods = self.running.items(&["get", "pods"]);
        let status = |pod: &Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let containers = pod["status"]["containerStatuses"][0].clone();
            (name, containers)
        };
        Before {
            trees: self.running.wait_for_processes(),
            statuses: pods.iter().map(status).collect(),
            events: NODES.map(|node| self.running.history(&format!("node/{node}")).len()),
        }
    }

    /// Waits until all know the last word, and the cloud knows every pod.
    fn wait_until_settled(&self) {
        self.running.wait_until_in_step();
        let word = self.word.to_string();
        self.running.wait_for("the last word", |running| {
            let knows = |node: &&str| {
                let maps = running.items(&["get", "configmaps", "--node", node]);
                maps.iter().any(|map| map["data"]["word"] == word.as_str())
            };
            NODES.iter().all(knows).then_some(())
        });
        self.running.wait_for_pods(3, |status| status == "Running" || status == "Completed");
    }

    fn boot(&self) -> u64 {
        let status = self.running.json(&["status", "-o", "json"]).unwrap_or_default();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let node = nodes.iter().find(|node| node["name"] == NODES[0]).expect("the node");
        node["boot"].as_u64().expect("a number")
    }
}

fn write_word(manifests: &Path, word: u64) {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: words}}\ndata: {{word: \"{word}\"}}\n"
    );
    fs::write(manifests.join("words.yaml"), text).expect("written");
}

/// The databases that were moved aside beside `path`.
fn moved_aside(path: &Path) -> Vec<PathBuf> {
    let beside = fs::read_dir(path.parent().expect("a folder")).expect("a folder").flatten();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_of = |found: &PathBuf| {
        let found = found.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.starts_with(&format!("{name}.damaged-"))
    };
    beside.map(|entry| entry.path()).filter(is_of).collect()
}

/// The databases of a data directory, by their paths in it.
fn databases(data: &Path) -> Vec<PathBuf> {
    let cloud =
        ["cloud/log", "cloud/hub", "cloud/controller/published", "cloud/controller/picture"];
    let of_nodes = NODES
        .iter()
        .flat_map(|node| ["state", "outbox"].map(|name| Path::new("nodes").join(node).join(name)));
    let all = cloud.iter().map(PathBuf::from).chain(of_nodes);
    all.filter(|path| data.join(path).is_dir()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a database").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}
