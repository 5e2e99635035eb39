//! Headwater on Kafka as processes, on which the harness runs loads, and what each load takes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_e2e::proxy::Proxy;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::inventory::Inventory;
use headwater_loadtest::kernel::processor_time;
use headwater_loadtest::latency::{Latency, Quantiles};
use headwater_loadtest::light::Reports;
use headwater_loadtest::object::ObjectSpec;
use headwater_loadtest::pacer::Lag;
use headwater_loadtest::scenario::{Act, EdgeKind};
use headwater_loadtest::schedule::Turn;
use headwater_loadtest::sightings::Load;
use headwater_loadtest::target::{Place, StreamSettings};
use headwater_loadtest::testbed::{Testbed, TestbedSettings};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::kafka::runtime;

/// How long anything may take to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// From when on what is measured counts.
pub(crate) const BEGINS_IN: Duration = Duration::from_millis(100);

/// What this process is called among the others.
pub(crate) const GENERATOR: &str = "the generator";

/// The parts, with nodes of which the first are connected.
pub(crate) struct Cluster {
    pub(crate) testbed: Testbed,
    runtime: Runtime,
    connected: usize,
    /// How many of the first edges are not waited for.
    unmeasured: usize,
}

/// The nodes and their edges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes {
    pub(crate) count: usize,
    pub(crate) kind: EdgeKind,
    /// How many of the first are behind hops.
    pub(crate) behind_hops: usize,
    /// How many of the first are neither measured nor waited for.
    pub(crate) unmeasured: usize,
}

/// What a load took.
pub(crate) struct Taken {
    pub(crate) latency: Quantiles,
    pub(crate) lag: Lag,
    /// Of each process.
    pub(crate) processor: BTreeMap<String, Duration>,
    /// Changes that edges showed.
    pub(crate) delivered: u64,
    /// When the last line was written.
    pub(crate) written: Instant,
    /// When the last of it was seen.
    pub(crate) seen: Instant,
}

impl Cluster {
    /// Starts the parts; no edge is connected yet.
    ///
    /// # Errors
    /// When a part does not start.
    pub(crate) fn start(nodes: Nodes, objects: Vec<ObjectSpec>) -> Result<Self, Failure> {
        Self::start_with(nodes, objects, None)
    }

    /// The same with a hub that reaches the pods of the edges, which are processes.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_with(
        nodes: Nodes,
        objects: Vec<ObjectSpec>,
        streams: Option<StreamSettings>,
    ) -> Result<Self, Failure> {
        let runtime = runtime("cluster", 2)?;
        let place = Place::Cluster;
        let Nodes { count, kind, behind_hops, unmeasured } = nodes;
        let nodes = place.nodes(count).tried("a node's name")?;
        let inventory = Inventory { nodes, objects, seed: 0 };
        let reports = Reports::Running;
        let settings = TestbedSettings {
            place,
            inventory,
            edges: kind,
            reports,
            behind_hops,
            unmeasured,
            streams,
        };
        let testbed = runtime.block_on(Testbed::start(settings)).tried("starting a cluster")?;
        Ok(Self { testbed, runtime, connected: 0, unmeasured })
    }

    /// Connects the next `count` edges, and waits until each has what it is to have.
    ///
    /// # Errors
    /// When they do not come so far.
    pub(crate) fn connect(&mut self, count: usize) -> Result<(), Failure> {
        self.runtime.block_on(self.testbed.connect(count)).tried("connecting edges")?;
        self.connected += count;
        self.wait(0..self.connected).map(drop)
    }

    /// Says these objects as they are before the first change, and waits until they are seen.
    ///
    /// # Errors
    /// When they are not.
    pub(crate) fn set_up(&self, objects: Range<u32>) -> Result<(), Failure> {
        self.runtime.block_on(self.testbed.set_up(objects)).tried("setting up")
    }

    /// Runs a load, and waits until all of it is seen; what comes before `measured_from` warms up.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn load(&self, turns: Vec<Turn>, measured_from: Duration) -> Result<Taken, Failure> {
        let (before, delivered) = (self.processor_times(), self.testbed.sightings().count());
        let latency = Arc::new(Latency::new(SEEN_WITHIN));
        let began = Instant::now() + BEGINS_IN;
        let load = Load { began, measured_from, latency: latency.clone() };
        let driving = self.testbed.drive(turns.into(), load);
        let lag = self.runtime.block_on(driving).tried("sending changes")?;
        let written = self.runtime.block_on(self.testbed.written());
        let seen = self.wait(self.unmeasured..self.connected)?;
        let processor = self.processor_times().into_iter().map(|(name, taken)| {
            let before = before.get(&name).copied().unwrap_or_default();
            (name, taken.saturating_sub(before))
        });
        let processor = processor.collect();
        let delivered = self.testbed.sightings().count() - delivered;
        Ok(Taken { latency: latency.whole(), lag, processor, delivered, written, seen })
    }

    /// Sends changes, and returns when the objects socket has them. Edges may not have them yet.
    ///
    /// # Errors
    /// When they cannot be sent.
    pub(crate) fn say(&self, turns: Vec<Turn>) -> Result<Instant, Failure> {
        let latency = Arc::new(Latency::new(SEEN_WITHIN));
        let load = Load { began: Instant::now(), measured_from: Duration::ZERO, latency };
        let driving = self.testbed.drive(turns.into(), load);
        self.runtime.block_on(driving).tried("sending changes")?;
        Ok(self.runtime.block_on(self.testbed.written()))
    }

    /// Waits until every change that was sent is visible, and returns when the last one was.
    ///
    /// # Errors
    /// When it is not.
    pub(crate) fn seen(&self) -> Result<Instant, Failure> {
        self.wait(self.unmeasured..self.connected)
    }

    fn wait(&self, edges: Range<usize>) -> Result<Instant, Failure> {
        let at_rest = self.testbed.at_rest(edges.clone(), SEEN_WITHIN);
        if !self.runtime.block_on(at_rest) {
            let missing = self.testbed.sightings().restless(edges);
            return Err(Failure::of(format!("{missing} objects are not seen as they were said")));
        }
        Ok(self.testbed.sightings().last().unwrap_or_else(Instant::now))
    }

    /// Does something to a part.
    ///
    /// # Errors
    /// When that cannot be done to it.
    pub(crate) fn act(&self, act: Act, part: &str) -> Result<(), Failure> {
        let acted = self.runtime.block_on(self.testbed.target()).act(act, part);
        acted.tried("doing something to a part")
    }

    /// Connects anew to a controller that was started again.
    ///
    /// # Errors
    /// When it does not listen.
    pub(crate) fn reconnect(&mut self) -> Result<(), Failure> {
        self.runtime.block_on(self.testbed.reconnect()).tried("the objects socket again")
    }

    /// The process of a part.
    ///
    /// # Errors
    /// When it does not run.
    pub(crate) fn process(&self, part: &str) -> Result<u32, Failure> {
        let processes = self.runtime.block_on(self.testbed.target()).processes();
        let found = processes.into_iter().find(|(name, _)| name == part);
        found.map(|(_, id)| id).tried("it does not run")
    }

    /// The time on a processor of each process so far.
    pub(crate) fn processor_times(&self) -> BTreeMap<String, Duration> {
        let processes = self.runtime.block_on(self.testbed.target()).processes();
        let me = (GENERATOR.to_owned(), std::process::id());
        let taken = |(name, id)| Some((name, processor_time(id)?));
        processes.into_iter().chain([me]).filter_map(taken).collect()
    }

    /// The hop of an edge.
    ///
    /// # Errors
    /// When it has none.
    pub(crate) fn hop(&self, edge: usize) -> Result<&Proxy, Failure> {
        self.testbed.hop(edge).tried("the edge has no hop")
    }

    /// Kafka's brokers.
    ///
    /// # Errors
    /// When there are none.
    pub(crate) fn brokers(&self) -> Result<String, Failure> {
        self.runtime.block_on(self.testbed.target()).brokers().tried("Kafka does not run")
    }

    /// What a part says of itself; nothing while it does not answer.
    pub(crate) fn status(&self, part: &str) -> Option<Value> {
        let asked = ["status", "-o", "json"];
        let output = self.runtime.block_on(self.testbed.target()).ask(part, &asked)?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// The socket that takes objects.
    pub(crate) fn objects_socket(&self) -> PathBuf {
        self.runtime.block_on(self.testbed.target()).objects().to_owned()
    }

    /// The data directory of a node.
    pub(crate) fn node_data(&self, node: usize) -> PathBuf {
        let node = &self.testbed.inventory().nodes[node];
        self.runtime.block_on(self.testbed.target()).node_data(node)
    }

    /// What it takes to wait for something of the testbed's.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Waits until every edge and the cloud have everything, stops all, and compares what they hold.
    ///
    /// # Errors
    /// When an edge, or the cloud, holds something else than was sent.
    pub(crate) fn end(self) -> Result<(), Failure> {
        self.wait(0..self.connected)?;
        let deadline = Instant::now() + SEEN_WITHIN;
        self.runtime.block_on(self.testbed.reported(deadline));
        let (found, _) = self.runtime.block_on(self.testbed.end(None)).tried("comparing")?;
        match found.findings.first.first() {
            Some(finding) => Err(Failure::of(format!("it was wrong: {finding}"))),
            None => Ok(()),
        }
    }
}
