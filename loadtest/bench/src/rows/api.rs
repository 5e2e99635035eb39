//! Row 20: Headwater between a Kubernetes API and an edge, beside what was measured of KubeEdge.
//!
//! etcd, API server, Kafka, controller, hub and edge (hollow pods) are processes. Objects enter through the API
//! server, and statuses come out of it. A hop between edge and hub counts bytes.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::fleet::Fleet;
use headwater_event::NodeName;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::inventory::Inventory;
use headwater_loadtest::latency::{Latency, Quantiles, histogram, record};
use headwater_loadtest::light::{LightEdges, LightSettings, Reports};
use headwater_loadtest::object::{Content, Kind, NAMESPACE, ObjectSpec};
use headwater_loadtest::schedule::{at_once, at_rate};
use headwater_loadtest::sightings::Sightings;
use headwater_loadtest::socket;
use headwater_loadtest::watching::Group;
use headwater_proto::local::Operation;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use crate::api::{ApiClient, node};
use crate::api_cluster::{
    ApiCluster, CONTROLLER, HUB, NODE, Taken, cloud, control_plane, processor_time_of, wait_leases,
};
use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::kafka::{runtime, topic};
use crate::pods::{PODS_PER_NODE, pods};
use crate::process::memory_at_rest;
use crate::rows::propagation::produce_and_consume;
use crate::run::Run;
use crate::samples::Samples;
use crate::waiting::{quiet, wait};

const OBJECT_BYTES: usize = 1_600;

/// The pods of the large figures.
const MANY: u32 = 1_000;

/// The samples behind a p99.
const P99_SAMPLES: u32 = 1_000;

/// Pods of a burst in whose midst the cloud is killed.
const BURST: u32 = 200;

/// Pods that are created while the cloud is down.
const ABSENT: u32 = 10;

/// Statuses of the figure of a status, and in how many pods.
const STATUSES: u32 = 500;
const STATUSES_PER_SECOND: u32 = 5;
const STATUSES_PER_BUSY_SECOND: u32 = 50;
const STATUS_PODS: u32 = 50;

/// ConfigMaps that no pod of an edge names, and as many Secrets.
const UNNAMED: usize = 10_000;
const UNNAMED_BYTES: usize = 4 << 10;

/// Light nodes, which have no pods.
const LIGHT_NODES: usize = 1_000;

/// A ConfigMap that a pod of the edge names.
const CONFIG: Content = Content { bytes: 700, fresh: 100, plain: 500 };

/// The wait for earlier changes to end, the writes of a Node's status too.
const REST: Duration = Duration::from_secs(12);

/// Measures it.
///
/// # Errors
/// When a part does not come so far, or something is lost.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let mut measured = RowResult::default();
    run.step("every part starts");
    let mut world = World::start(run)?;
    world.paced(run, &mut measured)?;
    run.step("a ConfigMap changes");
    world.config_map(run, &mut measured)?;
    run.step("pods are created at once");
    world.burst(&mut measured)?;
    run.step("statuses at the edge");
    world.statuses(run, &mut measured)?;
    run.step("the cloud is killed in a burst");
    world.killed(run, &mut measured)?;
    run.step("pods are created without a cloud");
    world.absent(run, &mut measured)?;
    run.step("objects that no pod names");
    world.unnamed(run, &mut measured)?;
    drop(world);
    run.step("light nodes");
    light_nodes(run, &mut measured)?;
    run.step("the end");
    measured
        .set("objects", format!("pods of about {OBJECT_BYTES} bytes of JSON, hollow; one node"));
    measured.set(
        "parts",
        "etcd, API server, Kafka, controller, hub, edge: a process each; no TLS \
                           but the API server's",
    );
    measured.set("floor", "what must be; loadtest/README.md has KubeEdge's own figures");
    measured.set("etcd", "syncs every write");
    measured.set("memory", "with files; what controller and hub have in common counts once");
    measured.set("latency", "from the intended moment of the request to the API server");
    Ok(measured)
}

/// Everything that runs, and the pods that were made so far: none is made twice.
struct World {
    cluster: ApiCluster,
    made: u32,
    config_map: u32,
}

impl World {
    fn start(run: &Run) -> Result<Self, Failure> {
        let rounds = rounds(run) as u32;
        let paced = run.pick(PODS_PER_NODE, P99_SAMPLES);
        let count = 1 + paced + 2 * MANY + rounds * (BURST + ABSENT);
        let mut objects = pods(1, count, OBJECT_BYTES);
        let config_map = objects.len() as u32;
        let name = "config".to_owned();
        objects.push(ObjectSpec::new(config_map, Kind::ConfigMap, name, None, CONFIG));
        let cluster = ApiCluster::start(objects)?;
        names_config_map(&cluster)?;
        let mut world = Self { cluster, made: 0, config_map };
        let first = world.next(1);
        world.cluster.all(first, false)?;
        world.cluster.watch.wait_running(1)?;
        Ok(world)
    }

    /// Pods that are created one after the other, and fast.
    fn paced(&mut self, run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
        let created = self.next(run.pick(PODS_PER_NODE, P99_SAMPLES));
        run.step("pods, 5/s");
        let taken = self.cluster.load(&at_rate(5, created.clone()))?;
        measured.push_latency("create, 5/s", &taken.latency, [(11.7, 4.0), (23.0, 12.0)]);
        push_answer("create, 5/s", &taken, measured);
        run.step("their deletion");
        self.cluster.all(created, true)?;
        let created = self.next(MANY);
        let turns = at_rate(50, created.clone());
        run.step("pods, 50/s");
        let taken = self.cluster.load(&turns)?;
        let lag = taken.seen.saturating_duration_since(taken.answered).as_secs_f64();
        let what = "create, 50/s for 20 s: s after the last answer of the API";
        measured.push(Figure::alone(what, lag.into()).held_to(Bound::at_most(0.1, 0.05)));
        measured.push_latency(
            "create, 50/s for 20 s",
            &taken.latency,
            [(4_700.0, 4.0), (12_000.0, 12.0)],
        );
        run.step("their deletion");
        self.cluster.all(created, true).map(drop)
    }

    /// A ConfigMap changes, and is made again under its name.
    fn config_map(&mut self, run: &mut Run, measured: &mut RowResult) -> Result<(), Failure> {
        let config_map = self.config_map;
        self.cluster.all(config_map..config_map + 1, false)?;
        let count = run.pick(PODS_PER_NODE, P99_SAMPLES);
        let turns = at_rate(5, (0..count).map(|_| config_map));
        let taken = self.cluster.load(&turns)?;
        push_answer("ConfigMap update, 5/s", &taken, measured);
        run.step("Kafka alone");
        let brokers = self.cluster.fleet.kafka.bootstrap();
        let bare = topic(&brokers, 0, &self.cluster.runtime)?;
        let of_pod = pods(1, 1, OBJECT_BYTES);
        let turns = at_rate(5, (0..count).map(|_| 0));
        let raw = produce_and_consume(&bare, &of_pod, &turns, Duration::ZERO)?;
        let limit = "bare produce and consume";
        for (name, ours, limit_ms, (floor, target)) in [
            ("p50", taken.latency.p50_ms, raw.latency.p50_ms, (4.0, 3.0)),
            ("p99", taken.latency.p99_ms, raw.latency.p99_ms, (19.0, 10.0)),
        ] {
            if let (Some(ours), Some(raw)) = (ours, limit_ms) {
                let what = format!("ConfigMap update, 5/s: ms beyond Kafka's, {name}");
                let figure = Figure::excess(&what, ours.into(), limit, raw.into());
                measured.push(figure.held_to(Bound::at_most(floor, target)).latency());
            }
        }
        run.step("the ConfigMap is made again under its name");
        let mut again = Samples::default();
        for _ in 0..20 {
            self.cluster.all(config_map..config_map + 1, true)?;
            let taken = self.cluster.all(config_map..config_map + 1, false)?;
            again.push(taken.latency.max_ms.unwrap_or(f64::NAN));
        }
        let figure = Figure::alone("ConfigMap made again under its name: ms", again);
        measured.push(figure.held_to(Bound::at_most(100.0, 19.0)).latency());
        Ok(())
    }

    /// A thousand pods at once, from their creation until the API shows them running.
    fn burst(&mut self, measured: &mut RowResult) -> Result<(), Failure> {
        self.rest()?;
        let created = self.next(MANY);
        let revision = self.revision()?;
        let passed = self.cluster.hop.traffic();
        let before = self.cluster.processor_time(CONTROLLER)?;
        let taken = self.cluster.all(created.clone(), false)?;
        let s = taken.seen.saturating_duration_since(taken.answered).as_secs_f64();
        self.cluster.watch.wait_running(MANY as usize)?;
        self.rest()?;
        let writes = (self.revision()? - revision) as f64 / f64::from(MANY);
        let passed = quiet(&self.cluster.hop)?.since(passed);
        let busy = self.cluster.processor_time(CONTROLLER)?.saturating_sub(before);
        let ms = busy.as_secs_f64() * 1e3 / f64::from(MANY);
        let each = |bytes: u64| bytes as f64 / f64::from(MANY);
        let memory = self.cluster.cloud_bytes()? as f64 / 1e6;
        for (what, value, must, goal) in [
            ("1000 creates at once: s after the last answer of the API", s, 1.0, 0.5),
            ("a pod, created to Ready: writes of the API's store", writes, 4.0, 3.0),
            ("a pod, created to Ready: bytes down", each(passed.down), 1_000.0, 400.0),
            ("a pod, created to Ready: ms of the controller", ms, 0.6, 0.3),
            ("controller and hub, 1000 pods: MB of memory", memory, 98.0, 40.0),
        ] {
            measured.push(Figure::alone(what, value.into()).held_to(Bound::at_most(must, goal)));
        }
        measured.push(Figure::alone("a pod, created to Ready: bytes up", each(passed.up).into()));
        Ok(())
    }

    /// Statuses from the edge's local API to a watch of the API server, at two rates: at the low one most of the
    /// controller's time is its idle work.
    fn statuses(&mut self, run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
        let count = run.pick(STATUSES / 5, STATUSES);
        let (latency, ms) = self.statuses_at(STATUSES_PER_SECOND, 0..count)?;
        for (name, ms, (must, goal)) in
            [("p50", latency.p50_ms, (15.0, 5.0)), ("max", latency.max_ms, (200.0, 50.0))]
        {
            let figure = Figure::alone(
                &format!("status at the edge to the API: ms, {name}"),
                ms.unwrap_or(f64::NAN).into(),
            );
            measured.push(figure.held_to(Bound::at_most(must, goal)).latency());
        }
        let figure =
            Figure::alone("a status: ms of the controller, all that it does by then", ms.into());
        measured.push(figure.held_to(Bound::at_most(0.6, 0.3)));
        let began = Instant::now();
        let (_, ms) = self.statuses_at(STATUSES_PER_BUSY_SECOND, count..2 * count)?;
        let rate = f64::from(count) / began.elapsed().as_secs_f64();
        let what = format!(
            "a status, {STATUSES_PER_BUSY_SECOND}/s: ms of the controller, all that it does by then"
        );
        measured.push(Figure::alone(&what, ms.into()));
        measured.set("statuses", format!("{count}, {STATUSES_PER_SECOND}/s; {count}, {rate:.0}/s"));
        Ok(())
    }

    /// Reports statuses at a rate, each when the one before it is in the API. Returns their latencies and the
    /// controller's processor time for each, in ms.
    fn statuses_at(
        &mut self,
        per_second: u32,
        numbers: Range<u32>,
    ) -> Result<(Quantiles, f64), Failure> {
        let mut edge = self.connect_edge()?;
        let uids = self.uids()?;
        let before = self.cluster.processor_time(CONTROLLER)?;
        let count = numbers.len();
        let mut latency = histogram();
        let mut at = Instant::now();
        for number in numbers {
            at += Duration::from_secs(1) / per_second;
            let pod = &uids[(number % STATUS_PODS) as usize];
            let message = format!("turn {number}");
            let reported = Instant::now();
            self.cluster.runtime.block_on(report(&mut edge, pod, &message))?;
            let shown = wait("a status in the API", || self.cluster.watch.message_at(&message))?;
            record(&mut latency, shown.saturating_duration_since(reported));
            thread::sleep(at.saturating_duration_since(Instant::now()));
        }
        let busy = self.cluster.processor_time(CONTROLLER)?.saturating_sub(before);
        Ok((Quantiles::of(&latency), busy.as_secs_f64() * 1e3 / count as f64))
    }

    /// Controller and hub are killed in the midst of a burst, and started again.
    fn killed(&mut self, run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
        let mut taken = Samples::default();
        for _ in 0..rounds(run) {
            self.begin_session()?;
            let pods = self.next(BURST);
            let (middle, latency) = (pods.start + BURST / 2, latency());
            self.cluster.send(&at_once(pods.start..middle, false), &latency)?;
            self.kill_cloud();
            self.cluster.send(&at_once(middle..pods.end, false), &latency)?;
            taken.push(self.start_cloud()?);
            self.cluster.all(pods, true)?;
        }
        let what = format!("cloud killed in a burst of {BURST} creates: s from its start to right");
        measured.push(Figure::alone(&what, taken).held_to(Bound::at_most(5.0, 3.0)));
        Ok(())
    }

    /// Pods are created while controller and hub are away.
    fn absent(&mut self, run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
        let mut taken = Samples::default();
        for _ in 0..rounds(run) {
            self.begin_session()?;
            let pods = self.next(ABSENT);
            self.kill_cloud();
            self.cluster.send(&at_once(pods.clone(), false), &latency())?;
            taken.push(self.start_cloud()?);
        }
        let what = "created while the cloud was down: s from its start to right, none lost";
        measured.push(Figure::alone(what, taken).held_to(Bound::at_most(5.0, 3.0)));
        Ok(())
    }

    /// ConfigMaps and Secrets that no edge names.
    fn unnamed(&mut self, run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
        let memory = || {
            let id = self.cluster.fleet.part(CONTROLLER).process_id().tried("it does not run")?;
            memory_at_rest(id)
        };
        let before = memory()?;
        let count = run.pick(UNNAMED / 10, UNNAMED);
        self.cluster.runtime.block_on(self.cluster.api.create_all(count, UNNAMED_BYTES))?;
        self.rest()?;
        let more = (memory()? - before) / 1e6;
        let what = format!("{count} ConfigMaps and {count} Secrets, unnamed: MB more");
        measured.push(Figure::alone(&what, more.into()).held_to(Bound::at_most(10.0, 10.0)));
        Ok(())
    }

    /// Starts the edge again. Its back-off grows with each session that lasts less than a minute, and the rounds
    /// are shorter: without this, a round would measure the rounds before it.
    fn begin_session(&mut self) -> Result<(), Failure> {
        let edge = self.cluster.fleet.part_mut(NODE);
        edge.kill();
        edge.start_again();
        wait("a session of the edge", || {
            let status = self.cluster.fleet.part(NODE).status()?;
            (status["summary"]["in_step"] == 1).then_some(())
        })
    }

    fn kill_cloud(&mut self) {
        for part in [CONTROLLER, HUB] {
            self.cluster.fleet.part_mut(part).kill();
        }
    }

    /// Starts both again, and returns the seconds until the edge shows everything.
    fn start_cloud(&mut self) -> Result<f64, Failure> {
        let began = Instant::now();
        for part in [CONTROLLER, HUB] {
            self.cluster.fleet.part_mut(part).start_again();
        }
        let seen = self.cluster.wait_seen()?;
        Ok(seen.saturating_duration_since(began).as_secs_f64())
    }

    fn next(&mut self, count: u32) -> Range<u32> {
        let first = self.made;
        self.made += count;
        first..self.made
    }

    fn rest(&self) -> Result<(), Failure> {
        thread::sleep(REST);
        quiet(&self.cluster.hop).map(drop)
    }

    fn revision(&self) -> Result<u64, Failure> {
        self.cluster.runtime.block_on(self.cluster.api.revision())
    }

    fn connect_edge(&self) -> Result<MetaClient<Channel>, Failure> {
        let channel = self.cluster.runtime.block_on(socket::connect(&self.cluster.edge_socket()));
        Ok(MetaClient::new(channel.tried("the local API")?))
    }

    /// Name and UID of pods that are there.
    fn uids(&self) -> Result<Vec<(String, String)>, Failure> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?limit={STATUS_PODS}");
        let list = self.cluster.runtime.block_on(self.cluster.api.get(&path))?;
        let items = list["items"].as_array().tried("a list")?;
        let of = |pod: &Value| {
            let word = |name: &str| Some(pod["metadata"][name].as_str()?.to_owned());
            Some((word("name")?, word("uid")?))
        };
        let found: Vec<_> = items.iter().filter_map(of).collect();
        (found.len() == STATUS_PODS as usize).then_some(found).tried("too few pods")
    }
}

/// Restarts of the cloud, of each kind.
fn rounds(run: &Run) -> usize {
    run.pick(2, 20)
}

/// The share of the API server in a latency: it syncs its store before it answers.
fn push_answer(what: &str, taken: &Taken, measured: &mut RowResult) {
    let ms = taken.answer_latency.p50_ms.unwrap_or(f64::NAN);
    measured.push(Figure::alone(&format!("{what}: ms to the API server's answer, p50"), ms.into()));
}

fn latency() -> Arc<Latency> {
    Arc::new(Latency::new(Duration::from_secs(60)))
}

/// A pod of the edge names the ConfigMap, so that the edge gets it.
fn names_config_map(cluster: &ApiCluster) -> Result<(), Failure> {
    let from = json!([{"configMapRef": {"name": "config", "optional": true}}]);
    let container = json!({"name": "main", "image": "registry.example/main", "envFrom": from});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "names", "namespace": NAMESPACE},
        "spec": {"nodeName": NODE, "containers": [container]},
    });
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    cluster.runtime.block_on(cluster.api.create(&path, &pod)).map(drop)
}

/// Reports at the edge that a pod runs, with a message by which the status is known.
async fn report(
    edge: &mut MetaClient<Channel>,
    (name, uid): &(String, String),
    message: &str,
) -> Result<(), Failure> {
    let conditions: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True"}))
        .to_vec();
    let status = json!({"phase": "Running", "message": message, "conditions": conditions});
    let operation = Operation {
        id: "status".to_owned(),
        source: "edged".to_owned(),
        verb: Verb::Update.into(),
        resource: format!("{NAMESPACE}/podstatus/{name}"),
        content: json!({"uid": uid, "status": status}).to_string().into_bytes().into(),
        ..Operation::default()
    };
    let answer = edge.operate(operation).await.tried("the local API")?.into_inner();
    match answer.outcome {
        Some(Outcome::Failure(refused)) => Err(Failure::of(format!("refused: {refused:?}"))),
        None => Err(Failure::of("the edge says nothing")),
        Some(_) => Ok(()),
    }
}

/// Nodes without pods whose edges run in this process: what the cloud writes of them while nothing happens.
fn light_nodes(run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
    let runtime = runtime("light", 2)?;
    let (cluster, api) = control_plane(&runtime)?;
    let nodes = (1..=LIGHT_NODES).map(|number| format!("light-{number}").parse::<NodeName>());
    let nodes = nodes.collect::<Result<Vec<_>, _>>().tried("a name")?;
    runtime.block_on(create_nodes(&api, &nodes))?;
    let fleet = cloud(&cluster);
    let edges = connect_light(&runtime, &fleet, nodes)?;
    wait_leases(&cluster, LIGHT_NODES)?;
    thread::sleep(REST);
    idle(run, &runtime, &api, &fleet, measured)?;
    runtime.block_on(edges.stop());
    Ok(())
}

async fn create_nodes(api: &ApiClient, nodes: &[NodeName]) -> Result<(), Failure> {
    for name in nodes {
        api.create("/api/v1/nodes", &node(name.as_str())).await?;
    }
    Ok(())
}

fn connect_light(
    runtime: &Runtime,
    fleet: &Fleet,
    nodes: Vec<NodeName>,
) -> Result<LightEdges, Failure> {
    let _inside = runtime.enter();
    let inventory = Inventory { nodes: nodes.clone(), objects: Vec::new(), seed: 0 };
    let witness = Arc::new(Sightings::new(Arc::new(inventory), 0));
    let hubs = vec![fleet.hub_address(HUB)];
    let (count, groups) = (nodes.len(), vec![Group::Edged]);
    let settings =
        LightSettings { nodes, hubs, hops: Vec::new(), reports: Reports::Running, groups };
    let mut edges = LightEdges::new(settings, witness);
    edges.connect(count)?;
    Ok(edges)
}

fn idle(
    run: &Run,
    runtime: &Runtime,
    api: &ApiClient,
    fleet: &Fleet,
    measured: &mut RowResult,
) -> Result<(), Failure> {
    let watched = run.pick(Duration::from_secs(30), Duration::from_secs(300));
    let (before, revision) =
        (processor_time_of(fleet, CONTROLLER)?, runtime.block_on(api.revision())?);
    thread::sleep(watched);
    let writes = (runtime.block_on(api.revision())? - revision) as f64;
    let busy = processor_time_of(fleet, CONTROLLER)?.saturating_sub(before).as_secs_f64();
    let rate = writes / watched.as_secs_f64() / LIGHT_NODES as f64;
    for (what, value, must, goal) in [
        ("1000 light nodes, idle: writes a node and second", rate, 0.11, 0.1),
        ("a Lease: ms of the controller, all that it does by then", busy * 1e3 / writes, 0.5, 0.25),
    ] {
        measured.push(Figure::alone(what, value.into()).held_to(Bound::at_most(must, goal)));
    }
    measured.set("light nodes", format!("{LIGHT_NODES}, watched for {} s", watched.as_secs()));
    Ok(())
}
