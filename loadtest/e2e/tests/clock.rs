//! The wall clock jumps by years, both ways, while everything runs and between runs: no order
//! depends on it, and nothing is deleted for it.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_check::panic::check_words;
use headwater_e2e::invariants::Invariants;
use headwater_e2e::running::Running;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A year, near enough.
const YEAR_MS: i64 = 365 * 24 * 3_600_000;

/// Where `up` looks for a shift of its wall clock.
const SHIFT: &str = "HEADWATER_TEST_CLOCK_SHIFT";

/// ConfigMaps that every node has.
const MAPS: u64 = 6;

struct World {
    folder: TempDir,
    n: u64,
    removed: u64,
}

impl World {
    fn new() -> Self {
        let world = Self { folder: TempDir::new().expect("a folder"), n: 0, removed: 0 };
        fs::create_dir(world.manifests()).expect("a folder");
        world.shift(0);
        let volumes: Vec<Value> = (0..MAPS)
            .map(|map| {
                let source = json!({"name": format!("map-{map}"), "optional": true});
                json!({"name": format!("v{map}"), "configMap": source})
            })
            .collect();
        for node in ["node-1", "node-2"] {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{node}")},
                "spec": {
                    "nodeName": node, "volumes": volumes,
                    "containers": [{"name": "c", "command": ["sleep", "86400"]}],
                },
            });
            world.write(&format!("pod-{node}"), &pod);
        }
        world
    }

    fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    fn shifted_by(&self) -> PathBuf {
        self.folder.path().join("shift")
    }

    /// The clock jumps to so many years from now.
    fn shift(&self, years: i64) {
        fs::write(self.shifted_by(), (years * YEAR_MS).to_string()).expect("written");
    }

    /// Every map changes, and one goes for good.
    fn change(&mut self) {
        self.n += 1;
        for map in self.removed..MAPS {
            let data = json!({"n": self.n.to_string()});
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("map-{map}")}, "data": data,
            });
            self.write(&format!("map-{map}"), &object);
        }
        if self.n.is_multiple_of(2) && self.removed + 1 < MAPS {
            let name = format!("map-{}.json", self.removed);
            fs::remove_file(self.manifests().join(name)).expect("removed");
            self.removed += 1;
        }
    }

    fn write(&self, name: &str, object: &Value) {
        let beside = self.folder.path().join("beside");
        fs::write(&beside, object.to_string()).expect("written");
        fs::rename(&beside, self.manifests().join(format!("{name}.json"))).expect("renamed");
    }

    /// Waits until a node has what the source says, no more and no less.
    fn arrives(&self, running: &Running, node: &str) {
        let wanted: Vec<(String, String)> =
            (self.removed..MAPS).map(|map| (format!("map-{map}"), self.n.to_string())).collect();
        running.wait_for(&format!("change {} at {node}", self.n), |running| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let maps = running.items(&["get", "configmaps", "--node", node]);
            let mut found: Vec<(String, String)> = maps
                .iter()
                .map(|map| (text(&map["metadata"]["name"]), text(&map["data"]["n"])))
                .collect();
            found.sort();
            (found == wanted).then_some(())
        });
    }
}

/// The times of a stream's events never go back, and what people are shown is no nonsense.
fn sane(running: &Running) {
    for stream in ["node/node-1", "node/node-2"] {
        let events = running.history(stream);
        let times: Vec<&str> = events.iter().filter_map(|event| event["time"].as_str()).collect();
        assert!(!times.is_empty() && times.is_sorted(), "{stream}: {times:?}");
    }
    for table in [&["get", "pods", "-A"][..], &["get", "nodes"], &["status"]] {
        let text = running.text(table).expect("an answer");
        let negative = text.split_whitespace().any(|word| {
            word.strip_prefix('-')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        assert!(!negative, "{text}");
    }
}

fn looked_at(running: &mut Running, invariants: &mut Invariants, data: &Path) {
    running.kill();
    invariants.look(data).unwrap_or_else(|broken| panic!("{broken}"));
}

#[test]
fn a_clock_that_jumps_by_years_changes_no_order_and_removes_nothing() {
    let mut world = World::new();
    world.change();
    let manifests = world.manifests().to_str().expect("UTF-8").to_owned();
    let args = [&manifests, "--runtime", "hollow", "--nodes", "2", "--sync-interval", "1s"];
    let mut running = Running::start(&args);
    running.set(SHIFT, world.shifted_by().to_str().expect("UTF-8"));
    running.kill();
    running.start_again();
    let data = running.data();
    let mut invariants = Invariants::new("pod-");
    running.wait_for_pods(2, |status| status == "Running");

    // While it runs.
    for years in [10, -10, 3, 0] {
        world.shift(years);
        world.change();
        for node in ["node-1", "node-2"] {
            world.arrives(&running, node);
        }
        running.wait_until_in_step();
        sane(&running);
    }

    // Between runs, which compact the log by the clock they find; one node is away meanwhile.
    assert!(running.text(&["link", "cut", "node-2"]).is_some());
    for years in [10, -20, 0] {
        looked_at(&mut running, &mut invariants, &data);
        world.shift(years);
        running.start_again();
        world.change();
        world.arrives(&running, "node-1");
        sane(&running);
    }
    assert!(running.text(&["link", "restore", "node-2"]).is_some());
    world.arrives(&running, "node-2");
    running.wait_until_in_step();
    running.wait_for_pods(2, |status| status == "Running");
    sane(&running);
    assert_eq!(running.ask(&["verify"]).status.code(), Some(0));
    looked_at(&mut running, &mut invariants, &data);
    check_words("up", &running.output()).expect("no panic");
}
