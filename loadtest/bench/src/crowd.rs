//! A controller, a hub and Kafka as processes, and light edges in this one: the code of real edges
//! over databases in memory, with a pod each.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headwater_e2e::fleet::Fleet;
use headwater_event::NodeName;
use headwater_loadtest::kernel::processor_time;
use headwater_loadtest::light::{LightEdges, LightSettings, Reports};
use headwater_loadtest::watching::{Group, Witness};
use headwater_proto::local::Object;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::failure::{Attempt, Failure};
use crate::kafka::{PARTITIONS, runtime};
use crate::link::wait;
use crate::pace::{Latency, Pace};
use crate::pods::{pod, turn_of};
use crate::process::say;
use crate::waiting::Waiting;

/// The parts, and the way in.
pub(crate) struct Crowd {
    /// Stopped first.
    edges: Vec<LightEdges>,
    runtime: Runtime,
    pub(crate) fleet: Fleet,
    source: UnixStream,
    seen: Arc<ShownPods>,
    pub(crate) nodes: u64,
    /// Turns sent so far: no pod ever has an earlier content again.
    said: u64,
    object_bytes: usize,
}

/// What one pace took.
pub(crate) struct Taken {
    pub(crate) latency: Latency,
    pub(crate) lag: Latency,
    /// Of the hub.
    pub(crate) processor: Duration,
    /// Events that edges showed.
    pub(crate) delivered: u64,
}

impl Crowd {
    /// Starts the parts and sends a pod for each of `nodes` nodes; no edge is connected yet.
    ///
    /// # Errors
    /// When a part does not do what it should.
    pub(crate) fn start(nodes: u64, object_bytes: usize) -> Result<Self, Failure> {
        let mut fleet = Fleet::on_one_broker(PARTITIONS);
        let socket = fleet.add_source("controller");
        fleet.add_hub("hub");
        let source = fleet.wait_for("the objects socket", |_| UnixStream::connect(&socket).ok());
        let seen = Arc::new(ShownPods::default());
        let runtime = runtime("light", 2)?;
        let edges = Vec::new();
        let mut crowd = Self { edges, runtime, fleet, source, seen, nodes, said: 0, object_bytes };
        for _ in 0..nodes {
            crowd.said += 1;
            crowd.say(crowd.said)?;
        }
        Ok(crowd)
    }

    /// Starts the edges of these nodes, by number, which connect at `hub`, or at the hub itself;
    /// returns when each shows its pod.
    ///
    /// # Errors
    /// When they do not come so far.
    pub(crate) fn connect(
        &mut self,
        nodes: impl IntoIterator<Item = u64>,
        hub: Option<SocketAddr>,
    ) -> Result<(), Failure> {
        let hub = match hub {
            Some(hub) => hub,
            None => self.hub_address()?,
        };
        let names = nodes.into_iter().map(node_name).collect::<Result<Vec<_>, _>>()?;
        let settings = LightSettings {
            nodes: names,
            hubs: vec![hub],
            hops: Vec::new(),
            reports: Reports::Running,
            groups: vec![Group::Edged, Group::Mesh],
        };
        let before = self.seen.count();
        let wanted = settings.nodes.len() as u64;
        let witness: Arc<dyn Witness> = self.seen.clone();
        let entered = self.runtime.enter();
        let edges = LightEdges::start(&settings, &witness).tried("starting light edges")?;
        drop(entered);
        self.edges.push(edges);
        let seen = &self.seen;
        wait("every light edge shows its pod", || (seen.count() >= before + wanted).then_some(()))
    }

    /// Where the hub listens.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn hub_address(&self) -> Result<SocketAddr, Failure> {
        let address = self.fleet.part("hub").address("hub.addr").tried("the hub's address")?;
        address.parse().tried("the hub's address")
    }

    /// Changes pods at a pace, node by node, and waits until the changes of the first `watched`
    /// nodes are seen.
    ///
    /// # Errors
    /// When they are not.
    pub(crate) fn drive(&mut self, pace: Pace, watched: u64) -> Result<Taken, Failure> {
        let (base, before) = (self.said, self.seen.count());
        let hub = self.fleet.part("hub").process_id().tried("the hub runs")?;
        let processor = processor_time(hub).tried("the hub runs")?;
        let pace = pace.again();
        self.seen.begin(Waiting::new(base, pace, self.nodes), watched);
        let lag = pace.drive(|turn| self.say(base + turn))?;
        self.said += pace.count;
        let seen = &self.seen;
        wait("every change is seen", || seen.is_over(base, &pace).then_some(()))?;
        let processor = processor_time(hub).tried("the hub runs")?.saturating_sub(processor);
        let latency = self.seen.end();
        Ok(Taken { latency, lag, processor, delivered: self.seen.count() - before })
    }

    fn say(&mut self, turn: u64) -> Result<(), Failure> {
        let node = turn % self.nodes;
        let object = pod(node_name(node)?.as_str(), 0, turn, self.object_bytes);
        self.line(&json!({ "object": object }))
    }

    /// Says a Service, which every edge gets.
    ///
    /// # Errors
    /// When the controller does not listen.
    pub(crate) fn broadcast(&mut self, turn: u64) -> Result<(), Failure> {
        let note = "x".repeat(self.object_bytes.saturating_sub(300));
        let object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "shop",
                "namespace": "default",
                "annotations": { "turn": turn.to_string(), "note": note },
            },
            "spec": { "ports": [{ "port": 80 }], "clusterIP": "10.43.0.7" },
        });
        self.line(&json!({ "object": object }))
    }

    fn line(&mut self, line: &serde_json::Value) -> Result<(), Failure> {
        say(&mut self.source, line)
    }

    /// How many objects were shown so far, by all edges.
    pub(crate) fn shown(&self) -> u64 {
        self.seen.count()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for edges in self.edges.drain(..) {
            self.runtime.block_on(edges.stop());
        }
    }
}

fn node_name(number: u64) -> Result<NodeName, Failure> {
    format!("light-{number}").parse().tried("a node's name")
}

/// What light edges show.
#[derive(Default)]
struct ShownPods(Mutex<Shown>);

#[derive(Default)]
struct Shown {
    count: u64,
    waiting: Option<Waiting>,
    watched: u64,
    nodes: u64,
}

impl ShownPods {
    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> u64 {
        self.shown().count
    }

    fn begin(&self, waiting: Waiting, watched: u64) {
        let mut shown = self.shown();
        shown.nodes = waiting.objects();
        shown.watched = watched;
        shown.waiting = Some(waiting);
    }

    /// Whether every change of the nodes that are watched is seen.
    fn is_over(&self, base: u64, pace: &Pace) -> bool {
        let shown = self.shown();
        let Some(waiting) = &shown.waiting else { return true };
        let last = base + pace.count;
        (0..shown.watched.min(shown.nodes)).all(|node| waiting.has_seen_all_of(node, last))
    }

    fn end(&self) -> Latency {
        self.shown().waiting.take().map_or_else(Latency::new, |waiting| waiting.latency)
    }
}

impl Witness for ShownPods {
    fn applied(&self, _edge: usize, object: &Object, _at: Instant) {
        let turn = turn_of(&object.object);
        let mut shown = self.shown();
        shown.count += 1;
        let (nodes, watched) = (shown.nodes, shown.watched);
        let is_pod = object.key.contains("/pod/");
        if let (Some(waiting), Some(turn)) = (&mut shown.waiting, turn.filter(|_| is_pod))
            && turn % nodes.max(1) < watched
        {
            waiting.see(turn);
        }
    }

    fn removed(&self, _edge: usize, _key: &str, _at: Instant) {}

    fn listed(
        &self,
        _edge: usize,
        _group: Group,
        _keys: &std::collections::BTreeSet<String>,
        _at: Instant,
    ) {
    }
}
