//! A controller, a hub and edges on a real Kafka, their intended objects, and whether they have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use headwater_broker::ClusterSettings;
use headwater_check::panic::check_words;
use headwater_e2e::fleet::Fleet;
use headwater_e2e::part::Part;
use headwater_e2e::running::{headwater, output};
use serde_json::Value;

use crate::load::Load;

/// Few, so that a claim in each is quick, and more than one, so that they differ.
pub(crate) const PARTITIONS: u32 = 2;

/// The topics, as `topics create` names them.
pub(crate) const DOWNSTREAM: &str = "headwater.downstream.v1";
pub(crate) const UPSTREAM: &str = "headwater.upstream.v1";

/// The nodes.
pub(crate) const NODES: [&str; 2] = ["gw-1", "gw-2"];

/// The parts of the cloud.
pub(crate) const CONTROLLER: &str = "controller";
pub(crate) const HUB: &str = "hub";

/// The pod of each node that is never removed.
const ANCHOR: &str = "anchor";

/// A pod of a node, and the ConfigMap of the same name that it uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pod {
    node: &'static str,
    name: String,
}

/// The folder that controllers read.
#[derive(Clone)]
pub(crate) struct Manifests(PathBuf);

/// All of it.
pub(crate) struct Scene {
    pub(crate) fleet: Fleet,
    /// The round that the ConfigMap of each pod is to show.
    wanted: BTreeMap<Pod, u64>,
    /// The UID and the start time of each anchor when the fleet was first in step; none if its edge was
    /// killed, because hollow pods end with their edge.
    anchors: BTreeMap<String, (String, Option<String>)>,
    /// The parts that run.
    parts: BTreeSet<String>,
    /// Whether a record was written that does not count: the writer then appends its key again.
    is_repaired: bool,
}

impl Pod {
    /// One that is named so on a node.
    pub(crate) fn of(node: &'static str, name: &str) -> Self {
        Self { node, name: format!("{name}-{node}") }
    }

    /// The pod of the node that is never removed.
    pub(crate) fn anchor(node: &'static str) -> Self {
        Self::of(node, ANCHOR)
    }
}

impl Manifests {
    /// Says that `pod` is there, with what its ConfigMap shows.
    pub(crate) fn write(&self, pod: &Pod, round: u64) {
        let Pod { node, name } = pod;
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n\
             data: {{round: \"{round}\"}}\n---\n\
             apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: {node}\n  \
             containers:\n  - {{name: c, image: c, envFrom: [{{configMapRef: {{name: {name}}}}}]}}\n"
        );
        // The folder takes no notice of a name without an ending.
        let draft = self.0.join(format!("{name}.draft"));
        fs::write(&draft, text).expect("a draft");
        fs::rename(draft, self.file(pod)).expect("a manifest");
    }

    fn file(&self, pod: &Pod) -> PathBuf {
        self.0.join(format!("{}.yaml", pod.name))
    }
}

impl Scene {
    /// A cluster with `settings`, and with more Kafka settings beside the usual ones; a controller, a hub,
    /// an edge on each node with its anchor, all in step.
    pub(crate) fn begin(settings: ClusterSettings, kafka_settings: &[&str]) -> Self {
        Self::over(PARTITIONS, settings, kafka_settings)
    }

    /// The same, over so many partitions.
    pub(crate) fn over(
        partitions: u32,
        settings: ClusterSettings,
        kafka_settings: &[&str],
    ) -> Self {
        let fleet = Fleet::with_kafka_settings(settings, partitions, kafka_settings);
        let mut scene = Self {
            fleet,
            wanted: BTreeMap::new(),
            anchors: BTreeMap::new(),
            parts: BTreeSet::new(),
            is_repaired: false,
        };
        for node in NODES {
            scene.put(&Pod::anchor(node), 0);
        }
        scene.fleet.add_controller(CONTROLLER);
        scene.fleet.add_hub(HUB);
        for node in NODES {
            scene.fleet.add_edge(node, &[HUB]);
        }
        scene.parts = [CONTROLLER, HUB].into_iter().chain(NODES).map(str::to_owned).collect();
        scene.wait_until_settled();
        scene.anchors = scene.anchors_now().expect("everything is well");
        scene
    }

    /// The folder that controllers read.
    pub(crate) fn manifests(&self) -> Manifests {
        Manifests(self.fleet.manifests())
    }

    /// Says that `pod` is to be there, with what its ConfigMap is to show.
    pub(crate) fn put(&mut self, pod: &Pod, round: u64) {
        self.manifests().write(pod, round);
        self.wanted.insert(pod.clone(), round);
    }

    /// Says that `pod` is to go.
    pub(crate) fn remove(&mut self, pod: &Pod) {
        fs::remove_file(self.manifests().file(pod)).expect("it was there");
        self.wanted.remove(pod);
    }

    /// The round that the ConfigMap of `pod` is to show.
    pub(crate) fn round(&self, pod: &Pod) -> u64 {
        self.wanted[pod]
    }

    /// Changes the anchors' objects in turn until [`Scene::end_load`].
    pub(crate) fn begin_load(&self) -> Load {
        let anchors: Vec<_> = NODES.into_iter().map(Pod::anchor).collect();
        let after = anchors.iter().map(|pod| self.round(pod)).max().unwrap_or_default();
        Load::start(self.manifests(), anchors, after)
    }

    /// Ends a load and expects its last objects.
    pub(crate) fn end_load(&mut self, load: Load) {
        let (round, pods) = load.stop();
        self.wanted.extend(pods.into_iter().map(|pod| (pod, round)));
    }

    /// Kills a part, which need not run afterwards.
    pub(crate) fn kill(&mut self, part: &str) {
        self.fleet.part_mut(part).kill();
        self.parts.remove(part);
        if let Some((_, since)) = self.anchors.get_mut(&format!("{ANCHOR}-{part}")) {
            *since = None;
        }
    }

    /// Stops a part in order.
    pub(crate) fn stop(&mut self, part: &str) {
        let status = self.fleet.part_mut(part).stop();
        assert!(status.is_some_and(|status| status.success()), "{}", self.fleet.outputs());
        self.parts.remove(part);
    }

    /// Starts a part again.
    pub(crate) fn start(&mut self, part: &str) {
        self.fleet.part_mut(part).start_again();
        self.parts.insert(part.to_owned());
    }

    /// Loses the data directory of a part that does not run.
    pub(crate) fn lose_disk(&mut self, part: &str) {
        fs::remove_dir_all(self.fleet.part(part).data()).expect("it was there");
    }

    /// Expects a repair: a record was written that does not count, so the writer appends its key
    /// again.
    pub(crate) fn expect_repair(&mut self) {
        self.is_repaired = true;
    }

    /// Waits until `look` gives something, and sees all the while that no edge drops its anchor.
    pub(crate) fn wait_for<T>(&self, what: &str, look: impl Fn(&Fleet) -> Option<T>) -> T {
        self.fleet.wait_for(what, |fleet| {
            for node in NODES.into_iter().filter(|node| self.parts.contains(*node)) {
                let Some(pods) = fleet.part(node).text(&["get", "pods", "-A", "-o", "name"]) else {
                    continue;
                };
                let is_there = pods.contains(&format!("pod/{ANCHOR}-{node}"));
                assert!(
                    is_there || self.anchors.is_empty(),
                    "{node} dropped its anchor\n{}",
                    fleet.outputs()
                );
            }
            look(fleet)
        })
    }

    /// Waits until `part` reports `words`, in its log or its status.
    pub(crate) fn wait_until_reported(&self, part: &str, words: &str) {
        self.wait_for(&format!("{part} reports {words:?}"), |fleet| {
            let part = fleet.part(part);
            let is_reported = part.output().contains(words)
                || part.text(&["status"]).is_some_and(|status| status.contains(words));
            is_reported.then_some(())
        });
    }

    /// Waits until every node holds what is wanted and nothing else, and the cloud knows of it.
    pub(crate) fn wait_until_settled(&self) {
        self.wait_for("everything in step", |fleet| {
            for part in [CONTROLLER, HUB] {
                (fleet.part(part).status()?["reconciled"] == true).then_some(())?;
            }
            for node in NODES {
                (held(fleet.part(node))? == self.wanted_at(node)).then_some(())?;
                is_in_step(&fleet.part(node).status()?).then_some(())?;
            }
            (running(fleet.part(CONTROLLER))? == self.wanted_pods()).then_some(())
        });
    }

    /// Waits until everything is in step, and checks what must then be so.
    pub(crate) fn check(&mut self) {
        self.wait_until_settled();
        for part in self.parts.clone() {
            let is_running = self.fleet.part_mut(&part).is_running();
            assert!(is_running, "{part} died\n{}", self.fleet.outputs());
            let output = self.fleet.part(&part).output();
            check_words(&part, &output).unwrap_or_else(|found| panic!("{found}\n{output}"));
        }
        self.check_anchors();
        self.check_hashes();
        for node in NODES {
            self.check_history(node);
        }
    }

    /// Each anchor is the pod that it was, and runs since it did.
    fn check_anchors(&mut self) {
        let now = self.anchors_now().expect("the controller answers");
        for (name, (uid, since)) in &self.anchors {
            let is = now.get(name);
            let is_same =
                is.is_some_and(|(is, runs)| is == uid && (since.is_none() || runs == since));
            assert!(
                is_same,
                "{name} was {uid} since {since:?}, is {is:?}\n{}",
                self.fleet.outputs()
            );
        }
        self.anchors = now;
    }

    /// Every fold and every replica holds what it says it does, and those of one stream agree.
    fn check_hashes(&self) {
        let mut hashes: BTreeMap<(String, u64), BTreeMap<String, String>> = BTreeMap::new();
        for part in &self.parts {
            let output = self.fleet.part(part).ask(&["verify", "-o", "json"]);
            assert!(output.status.success(), "{part}: {}\n{}", text(&output), self.fleet.outputs());
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let line: Value = serde_json::from_str(line).expect("JSON");
                let stream = line["stream"].as_str().expect("a stream").to_owned();
                let at = (stream, line["seq"].as_u64().expect("a seq"));
                let kept = line["kept"].as_str().expect("a hash").to_owned();
                hashes.entry(at).or_default().insert(part.clone(), kept);
            }
        }
        for (at, kept) in hashes {
            let differing: BTreeSet<&String> = kept.values().collect();
            assert_eq!(differing.len(), 1, "{at:?}: {kept:?}");
        }
    }

    /// What the log still has of a node's stream is in order, and says nothing twice.
    fn check_history(&self, node: &str) {
        let stream = format!("node/{node}");
        let events = self.wait_for("the history", |fleet| fleet.part(HUB).history(&stream));
        let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert!(seqs.windows(2).all(|two| two[0] < two[1]), "{stream}: {seqs:?}");
        let mut last: BTreeMap<&str, &Value> = BTreeMap::new();
        // A head says how far its stream went, over and over, and nothing of an object.
        for event in events.iter().filter(|event| event["kind"] != "Head") {
            let Some(key) = event["key"].as_str() else { continue };
            let before = last.insert(key, &event["object"]);
            let is_duplicate = before == Some(&event["object"]) && !self.is_repaired;
            assert!(!is_duplicate, "appended twice: {event}");
        }
    }

    /// Name and round of what a node is to hold.
    fn wanted_at(&self, node: &str) -> BTreeSet<(String, u64)> {
        let of_node = self.wanted.iter().filter(|(pod, _)| pod.node == node);
        of_node.map(|(pod, round)| (pod.name.clone(), *round)).collect()
    }

    fn wanted_pods(&self) -> BTreeSet<String> {
        self.wanted.keys().map(|pod| pod.name.clone()).collect()
    }

    /// UID and start of each anchor, as the cloud knows them.
    fn anchors_now(&self) -> Option<BTreeMap<String, (String, Option<String>)>> {
        let pods = items(self.fleet.part(CONTROLLER), "pods")?;
        let anchors = pods.iter().filter(|pod| name(pod).starts_with(ANCHOR)).map(|pod| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let since = text(&pod["status"]["startTime"]);
            (name(pod).to_owned(), (text(&pod["metadata"]["uid"]), Some(since)))
        });
        Some(anchors.collect())
    }
}

/// The pods that a node has, each with the round that its ConfigMap shows; a ConfigMap without a
/// pod, or a pod without one, is not left out.
pub(crate) fn held(edge: &Part) -> Option<BTreeSet<(String, u64)>> {
    let mut pods: BTreeSet<String> =
        items(edge, "pods")?.iter().map(|pod| name(pod).to_owned()).collect();
    let mut held = BTreeSet::new();
    for map in items(edge, "configmaps")? {
        let round = map["data"]["round"].as_str().and_then(|round| round.parse().ok());
        let has_pod = pods.remove(name(&map));
        held.insert((name(&map).to_owned(), round.filter(|_| has_pod).unwrap_or(u64::MAX)));
    }
    held.extend(pods.into_iter().map(|pod| (pod, u64::MAX)));
    Some(held)
}

/// The names of the pods that the cloud knows to run; a pod that does not makes it none.
fn running(controller: &Part) -> Option<BTreeSet<String>> {
    let pods = items(controller, "pods")?;
    let names = pods.iter().map(|pod| {
        let runs = pod["status"]["phase"] == "Running";
        runs.then(|| name(pod).to_owned())
    });
    names.collect()
}

/// Whether a node is at the end of its streams, by its own status.
fn is_in_step(status: &Value) -> bool {
    let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let is_well = |node: &Value| {
        let streams = node["streams"].as_array().map_or(&[][..], Vec::as_slice);
        node["connected"] == true
            && node["outbox_depth"] == 0
            && !streams.is_empty()
            && streams
                .iter()
                .all(|stream| stream["lag_events"] == 0 && stream["durable"] == stream["applied"])
    };
    nodes.len() == 1 && nodes.iter().all(is_well)
}

fn items(part: &Part, of: &str) -> Option<Vec<Value>> {
    part.json(&["get", of, "-A", "-o", "json"])?["items"].as_array().cloned()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// The first segment of a partition on the disk of the first broker.
pub(crate) fn segment(data: &Path, topic: &str, partition: u32) -> PathBuf {
    data.join(format!("broker-1/data/{topic}-{partition}/00000000000000000000.log"))
}

/// The brokers of a partition at present, by their numbers.
pub(crate) struct Place {
    pub(crate) leader: Option<u32>,
    pub(crate) replicas: Vec<u32>,
    pub(crate) in_sync: Vec<u32>,
}

impl Place {
    /// As `topics describe` says.
    pub(crate) fn of(fleet: &Fleet, topic: &str, partition: u32) -> Option<Self> {
        let mut command = headwater();
        command.args(["topics", "describe", "-o", "json", "--kafka", &fleet.kafka.bootstrap()]);
        let described = output(&mut command);
        let described: Value = serde_json::from_slice(&described.stdout).ok()?;
        let topics = described["topics"].as_array()?;
        let topic = topics.iter().find(|found| found["name"] == topic)?;
        let partitions = topic["partitions"].as_array()?;
        let found = partitions.iter().find(|found| found["partition"] == partition)?;
        let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let numbers =
            |value: &Value| value.as_array().into_iter().flatten().filter_map(number).collect();
        Some(Self {
            leader: number(&found["leader"]),
            replicas: numbers(&found["replicas"]),
            in_sync: numbers(&found["in_sync"]),
        })
    }
}
