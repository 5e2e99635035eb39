//! What the nodes of a test are to have, and when they have it.

use std::collections::BTreeMap;

use headwater_e2e::chance::Chance;
use headwater_e2e::fleet::Fleet;
use headwater_e2e::invariants::Invariants;
use serde_json::{Value, json};

/// Words of which settings are made.
const WORDS: [&str; 24] = [
    "listen",
    "upstream",
    "timeout",
    "retries",
    "level",
    "metrics",
    "cache",
    "region",
    "sensor",
    "interval",
    "threshold",
    "gateway",
    "buffer",
    "enabled",
    "address",
    "policy",
    "window",
    "limit",
    "queue",
    "token",
    "schema",
    "storage",
    "backup",
    "profile",
];

/// The objects that there are to be, by kind and name.
pub(crate) struct Objects {
    objects: BTreeMap<String, Value>,
    chance: Chance,
}

impl Objects {
    pub(crate) fn new(seed: u64) -> Self {
        Self { objects: BTreeMap::new(), chance: Chance::of(seed) }
    }

    /// A pod on `node` that names these ConfigMaps.
    pub(crate) fn pod(&mut self, node: &str, name: &str, maps: &[String]) {
        let from: Vec<_> = maps.iter().map(|map| json!({"configMapRef": {"name": map}})).collect();
        let container = json!({"name": "main", "image": "registry.local/app:1.2", "envFrom": from});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "sensors"}},
            "spec": {"nodeName": node, "containers": [container]},
        });
        self.objects.insert(format!("pod/{name}"), pod);
    }

    /// A ConfigMap with about so many bytes of settings as people write them; again: with others.
    pub(crate) fn settings(&mut self, name: &str, bytes: usize) {
        let mut text = String::new();
        while text.len() < bytes {
            let [section, word] = [(); 2].map(|()| *self.chance.one_of(&WORDS));
            text.push_str(&format!("{section}.{word} = {}\n", self.chance.below(100_000)));
        }
        self.config_map(name, &text);
    }

    /// A ConfigMap of so many bytes that nothing makes smaller than half of them.
    pub(crate) fn noise(&mut self, name: &str, bytes: usize) {
        let mut text = String::new();
        while text.len() < bytes {
            text.push_str(&format!("{:016x}", self.chance.below(u64::MAX)));
        }
        self.config_map(name, &text);
    }

    /// No longer has the ConfigMap.
    pub(crate) fn remove(&mut self, name: &str) {
        self.objects.remove(&format!("configmap/{name}"));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Hands them to the controllers, all at once.
    pub(crate) fn write(&self, fleet: &Fleet) {
        let items: Vec<_> = self.objects.values().collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fleet.write("site.json", &list.to_string());
    }

    fn config_map(&mut self, name: &str, text: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": {"settings": text},
        });
        self.objects.insert(format!("configmap/{name}"), map);
    }
}

/// Waits until the log holds exactly so many events of the node's stream, and gives them. None is
/// there twice, and none is missing.
pub(crate) fn wait_until_logged(fleet: &Fleet, node: &str, count: usize) -> Vec<Value> {
    let stream = format!("node/{node}");
    let events = fleet.wait_for(&format!("{count} events of {stream}"), |fleet| {
        fleet.part("controller").history(&stream).filter(|events| events.len() >= count)
    });
    let seqs: Vec<_> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=count as u64).collect::<Vec<_>>(), "every event once");
    events
}

/// Whether the node has everything up to this event of its stream.
pub(crate) fn has(fleet: &Fleet, node: &str, seq: usize) -> Option<bool> {
    let status = fleet.part(node).status()?;
    let own = &status["nodes"][0];
    let stream = format!("node/{node}");
    let mut streams = own["streams"].as_array()?.iter();
    let own_stream = streams.find(|one| one["stream"] == stream.as_str());
    let applied = own_stream.is_some_and(|stream| stream["applied"] == seq as u64);
    Some(applied && own["connected"] == true)
}

/// Waits until the node has everything up to this event of its stream.
pub(crate) fn wait_until_has(fleet: &Fleet, node: &str, seq: usize) {
    fleet
        .wait_for(&format!("{node} has event {seq}"), |fleet| has(fleet, node, seq)?.then_some(()));
}

/// Waits until the hub has folded the log up to this event of the node's stream.
pub(crate) fn wait_until_folded(fleet: &Fleet, hub: &str, node: &str, seq: usize) {
    fleet.wait_for(&format!("{hub} has folded event {seq}"), |fleet| {
        let line = fleet.part(hub).text(&["verify", node, "-o", "json"])?;
        let line: Value = serde_json::from_str(line.lines().next()?).ok()?;
        (line["agrees"] == true && line["seq"] == seq as u64).then_some(())
    });
}

/// What must hold of a fleet in which each of these nodes has a pod of its own, `app-NODE`.
pub(crate) fn invariants(nodes: &[&str]) -> Invariants {
    let mut invariants = Invariants::new("anchor");
    for node in nodes {
        invariants.mark(node.parse().expect("a name"), &format!("app-{node}\""));
    }
    invariants
}

/// Waits until all is as it is to be, checks all that must hold, and that no process took more
/// memory than it may.
pub(crate) fn settle(fleet: &Fleet, invariants: &mut Invariants) {
    fleet.settle_and_check(invariants);
    fleet.check_memory();
}
