//! A full disk of an edge, without room for the write-ahead log or a table. `status` reports it, pods
//! and other nodes continue, and the node resumes by itself when there is room, without a loss of
//! acknowledged reports.

use std::fs;
use std::path::Path;
use std::time::Instant;

use headwater_check::panic::check_words;
use headwater_e2e::containers::containers;
use headwater_e2e::running::Running;
use headwater_e2e::small_disk::SmallDisk;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The size of the small disk.
const DISK_MIB: u64 = 48;

/// ConfigMaps that the pods name besides their words. The rounds write one after the other. With [`NOISE_BYTES`]
/// each they exceed what is left of the small disk, whatever RocksDB compacts: the disk stays full.
const NOISE_MAPS: u64 = 40;

/// The data of one such ConfigMap, incompressible.
const NOISE_BYTES: usize = 200_000;

/// A folder of manifests: a pod and its words on each of two nodes.
struct Manifests(TempDir);

impl Manifests {
    fn new() -> Self {
        let manifests = Self(TempDir::new().expect("a folder"));
        for node in ["node-1", "node-2"] {
            let noise = (0..NOISE_MAPS).map(|n| {
                let name = format!("noise-{n}");
                json!({"name": name, "configMap": {"name": name, "optional": true}})
            });
            let words = json!({"name": "words", "configMap": {"name": "words"}});
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{node}")},
                "spec": {
                    "nodeName": node, "terminationGracePeriodSeconds": 1,
                    "volumes": noise.chain([words]).collect::<Vec<_>>(),
                    "containers": [{"name": "c", "command": ["sleep", "86400"]}],
                },
            });
            manifests.write(&format!("pod-{node}"), &pod);
        }
        manifests.write_map("words", json!({"word": "0"}));
        manifests
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Word `n`, after a ConfigMap of noise.
    fn write_round(&self, n: u64) {
        let mut state = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut noise = String::with_capacity(NOISE_BYTES);
        while noise.len() < NOISE_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.push_str(&format!("{state:016x}"));
        }
        self.write_map(&format!("noise-{}", n % NOISE_MAPS), json!({"noise": noise}));
        self.write_map("words", json!({"word": n.to_string()}));
    }

    fn write_map(&self, name: &str, data: Value) {
        self.write(
            name,
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}),
        );
    }

    fn write(&self, name: &str, object: &Value) {
        let beside = self.path().join(format!(".{name}"));
        fs::write(&beside, object.to_string()).expect("written");
        fs::rename(&beside, self.path().join(format!("{name}.json"))).expect("renamed");
    }
}

fn node(running: &Running, name: &str) -> Value {
    let status = running.json(&["status", "-o", "json"]).unwrap_or_default();
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    nodes.into_iter().find(|node| node["name"] == name).unwrap_or_default()
}

fn word(running: &Running, node: &str) -> Option<u64> {
    let maps = running.items(&["get", "configmaps", "--node", node]);
    let words = maps.iter().find(|map| map["metadata"]["name"] == "words")?;
    words["data"]["word"].as_str()?.parse().ok()
}

/// Starts on a fresh data directory and ends, so that there is one to mount a disk into.
fn once(manifests: &Manifests) -> Running {
    let path = manifests.path().to_str().expect("UTF-8");
    let mut running = Running::start(&[path, "--nodes", "2", "--sync-interval", "1s"]);
    running.wait_for("an answer", |running| running.text(&["status"]).map(drop));
    running.interrupt();
    running
}

/// Node 1 on a disk of its own, which is filled but for `left` bytes.
fn an_edge_whose_disk_is_full(left: u64) {
    let manifests = Manifests::new();
    let mut running = once(&manifests);
    let dir = running.data().join("nodes/node-1");
    fs::remove_dir_all(&dir).expect("a node that begins anew");
    let Some(disk) = SmallDisk::mount(&dir, DISK_MIB) else { return };
    running.start_again();
    running.wait_for_pods(2, |status| status == "Running");
    running.wait_until_in_step();
    let pods = running.wait_for_processes();

    disk.fill(left);
    let mut n = 0;
    let deadline = Instant::now() + headwater_e2e::running::WAIT;
    let status = loop {
        n += 1;
        manifests.write_round(n);
        // The other node, on another disk, goes on.
        running.wait_for("the other node", |running| (word(running, "node-2")? >= n).then_some(()));
        let status = node(&running, "node-1");
        // The file system is full before the first write fails, and the edge knows since when from then on.
        if status["state"] == "disk: full" && status["disk"]["since"].is_string() {
            break status;
        }
        assert!(Instant::now() < deadline, "never full: {status}\n{}", running.output());
    };
    println!("{left} bytes were full after {n} changes: {}", status["disk"]);
    assert_eq!(status["disk"]["state"], "full", "{status}");
    assert!(
        status["disk"]["advice"].as_str().is_some_and(|text| text.contains("room")),
        "{status}"
    );
    assert_eq!(node(&running, "node-2")["disk"]["state"], "ok");
    assert_eq!(containers(&running.data()), pods, "pods go on, the same processes");

    disk.make_room();
    let began = Instant::now();
    running.wait_for("it to go on", |running| (word(running, "node-1")? >= n).then_some(()));
    running.wait_until_in_step();
    println!("went on {:?} after there was room", began.elapsed());
    assert_eq!(node(&running, "node-1")["disk"]["state"], "ok");
    assert_eq!(running.ask(&["verify"]).status.code(), Some(0));
    assert_eq!(containers(&running.data()), pods, "the same processes still");
    check_words("up", &running.output()).expect("no panic");
    running.interrupt();
}

#[test]
fn an_edge_whose_log_does_not_fit_reports_it_and_continues_once_there_is_room() {
    an_edge_whose_disk_is_full(0);
}

#[test]
fn an_edge_whose_tables_do_not_fit_reports_it_and_continues_once_there_is_room() {
    an_edge_whose_disk_is_full(3 << 20);
}
