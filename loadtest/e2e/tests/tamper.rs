//! A replica that was changed behind the edge's back: `verify` names it, and a reachable hub repairs
//! it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater_e2e::running::Running;
use headwater_event::{ObjectHash, StreamId};
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{
    Batch, Durability, Engine, Range, Read, StreamCheckpoint, WriteBatch, schema,
};
use headwater_view::StreamReader;

const CONFIG: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: faithful}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  nodeName: node-1
  volumes: [{name: words, configMap: {name: words}}]
  containers: [{name: main, image: any}]
";

fn running() -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("all.yaml"), CONFIG).expect("written");
    let manifests = folder.path().to_str().expect("UTF-8");
    let running = Running::start(&[manifests, "--runtime", "hollow"]);
    running.wait_for_pods(1, |status| status == "Running");
    running.wait_until_in_step();
    (folder, running)
}

/// Changes a byte of the object that says `faithful`, in the replica of a node that does not run.
/// `hidden`: together with every hash beside it, so that the replica agrees with itself.
fn tamper(state: &Path, hidden: bool) {
    let memory = DatabaseMemory::new(Budget::EDGE);
    let engine: Arc<dyn Engine> = Arc::new(
        RocksEngine::open(state, Role::State, &memory, schema::NODE_STATE).expect("it opens"),
    );
    let rows = engine.scan(&Range::all(), 10_000).expect("readable");
    let word = b"faithful";
    let mut changed = WriteBatch::default();
    for (key, value) in rows {
        let Some(at) = value.windows(word.len()).position(|part| part == word) else { continue };
        let mut bytes = value.to_vec();
        if hidden {
            // Not the first brace: a hash before the object may have that byte.
            let start = br#"{"apiVersion""#;
            let object = value.windows(start.len()).position(|part| part == start);
            let object = object.expect("the object is JSON");
            let kept = ObjectHash::of(&value[object..]).0;
            bytes[at] = b'F';
            let hash = ObjectHash::of(&bytes[object..]).0;
            let place = bytes.windows(kept.len()).position(|part| *part == kept);
            let place = place.expect("the object's hash is kept beside it");
            bytes[place..place + hash.len()].copy_from_slice(&hash);
        } else {
            bytes[at] = b'F';
        }
        changed.put(key, bytes);
    }
    assert_eq!(changed.ops.len(), 1, "one object says so");
    engine.write(changed, Durability::Synced).expect("written");
    if hidden {
        let stream: StreamId = "node/node-1".parse().expect("a stream");
        let found = StreamReader::new(&*engine).verify(&stream).expect("readable");
        let found = found.expect("the node has its stream");
        assert!(!found.agrees(), "the object counts");
        let position =
            StreamCheckpoint { stream, checkpoint: found.checkpoint, hash: found.recomputed };
        Batch::new().commit(&*engine, &[position], Durability::Synced).expect("written");
    }
}

fn word(running: &Running) -> Option<String> {
    let config = running.json(&["get", "cm", "words", "--node", "node-1", "-o", "json"])?;
    config["data"]["word"].as_str().map(str::to_owned)
}

#[test]
fn what_was_changed_with_its_hashes_is_found_and_replaced() {
    let (_folder, mut running) = running();
    assert!(running.text(&["link", "cut", "node-1"]).is_some());
    assert!(running.interrupt().success());
    tamper(&running.data().join("nodes/node-1/state"), true);
    running.start_again();
    running
        .wait_for("the node's replica", |running| word(running).filter(|word| word == "Faithful"));
    // An edge that does not run yet is no verdict either.
    running.wait_for("the other node's replica", |running| {
        running.json(&["get", "cm", "--node", "node-2", "-o", "json"])
    });

    let verified = running.ask(&["verify"]);
    let table = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert_eq!(verified.status.code(), Some(3), "{table}");
    let wrong: Vec<&str> = table.lines().filter(|line| !line.ends_with("ok")).skip(1).collect();
    assert_eq!(wrong.len(), 1, "only what was changed: {table}");
    for named in ["node-1", "node/node-1", "snapshot"] {
        assert!(wrong[0].contains(named), "{named} in {table}");
    }

    assert!(running.text(&["link", "restore", "node-1"]).is_some());
    running.wait_for("the snapshot", |running| word(running).filter(|word| word == "faithful"));
    running.wait_until_in_step();
    assert_eq!(running.ask(&["verify"]).status.code(), Some(0));
}

#[test]
fn what_does_not_fit_its_hash_is_moved_aside_at_the_next_start() {
    let (_folder, mut running) = running();
    assert!(running.interrupt().success());
    tamper(&running.data().join("nodes/node-1/state"), false);
    running.start_again();
    running.wait_for("the replica built again", |running| {
        word(running).filter(|word| word == "faithful")
    });
    running.wait_until_in_step();
    assert_eq!(running.ask(&["verify"]).status.code(), Some(0));
    let status = running.json(&["status", "-o", "json"]).expect("a status");
    let node =
        status["nodes"].as_array().expect("nodes").iter().find(|one| one["name"] == "node-1");
    let disk = &node.expect("it is there")["disk"];
    assert_eq!(disk["state"], "moved aside", "{status:#}");
    assert!(disk["advice"].as_str().is_some_and(|text| text.contains("state.damaged-1")), "{disk}");
}
