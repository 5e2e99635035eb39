//! Headwater between a real Kubernetes API and edges, as processes, and loads that enter through the API.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};
use headwater_e2e::fleet::Fleet;
use headwater_e2e::proxy::Proxy;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::inventory::Inventory;
use headwater_loadtest::kernel::{joint_bytes, processor_time};
use headwater_loadtest::latency::{Latency, Quantiles, histogram, record};
use headwater_loadtest::object::{NAMESPACE, ObjectSpec};
use headwater_loadtest::schedule::{Turn, at_once};
use headwater_loadtest::sightings::{Load, Sightings};
use headwater_loadtest::watching::{Group, watch_edge};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::api::{ApiClient, IN_FLIGHT_MAX, PodWatch, collection, node, path};
use crate::kafka::{PARTITIONS, runtime};
use crate::waiting::wait;

pub(crate) const CONTROLLER: &str = "controller";
pub(crate) const HUB: &str = "hub";

/// The one edge that is a process.
pub(crate) const NODE: &str = "node-1";

/// How long a load may take to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(180);

/// Between two looks at what was seen.
const POLL: Duration = Duration::from_millis(2);

/// A control plane without controllers and scheduler, Kafka, controller, hub, and an edge behind a hop.
pub(crate) struct ApiCluster {
    pub(crate) runtime: Runtime,
    pub(crate) api: ApiClient,
    pub(crate) watch: PodWatch,
    pub(crate) hop: Proxy,
    pub(crate) fleet: Fleet,
    inventory: Arc<Inventory>,
    sightings: Arc<Sightings>,
    /// The objects that the API has.
    made: Mutex<BTreeSet<u32>>,
    _cluster: ControlPlane,
}

/// What a load took.
pub(crate) struct Taken {
    /// From the intended moment of each change to the moment when the edge shows it.
    pub(crate) latency: Quantiles,
    /// From the intended moment of each change to the answer of the API server.
    pub(crate) answer_latency: Quantiles,
    /// When the API server answered the last request.
    pub(crate) answered: Instant,
    /// When the edge showed the last change.
    pub(crate) seen: Instant,
}

/// The answers of the API server to a load.
pub(crate) struct AnswerTimes {
    /// When it answered the last request.
    pub(crate) last: Instant,
    /// From the intended moment of each change.
    latency: Quantiles,
}

/// What one request does.
#[derive(Clone, Copy)]
enum Request {
    Create,
    Patch,
    Delete,
}

impl ApiCluster {
    /// Starts everything, and waits until the edge shows a first object.
    ///
    /// # Errors
    /// When a part does not start.
    pub(crate) fn start(objects: Vec<ObjectSpec>) -> Result<Self, Failure> {
        let runtime = runtime("api", 2)?;
        let (cluster, api) = control_plane(&runtime)?;
        runtime.block_on(api.create("/api/v1/nodes", &node(NODE)))?;
        let mut fleet = cloud(&cluster);
        let hop = Proxy::start(fleet.hub_address(HUB));
        fleet.add_edge_with(NODE, &[hop.address()], &["--insecure-loopback"]);
        let inventory = Inventory { nodes: vec![NODE.parse().tried("a name")?], objects, seed: 0 };
        let inventory = Arc::new(inventory);
        let sightings = Arc::new(Sightings::new(inventory.clone(), 0));
        let socket = edge_socket(&fleet);
        runtime.spawn(watch_edge(0, Group::Edged, socket, sightings.clone()));
        let (watch, made) = (PodWatch::start(&cluster)?, Mutex::default());
        let all =
            Self { runtime, api, watch, hop, fleet, inventory, sightings, made, _cluster: cluster };
        Ok(all)
    }

    /// Sends each change at its moment, and waits until the edge shows all of it.
    ///
    /// # Errors
    /// When a request is refused, or a change is not shown.
    pub(crate) fn load(&self, turns: &[Turn]) -> Result<Taken, Failure> {
        let latency = Arc::new(Latency::new(SEEN_WITHIN));
        let AnswerTimes { last: answered, latency: answer_latency } = self.send(turns, &latency)?;
        let seen = self.wait_seen()?;
        Ok(Taken { latency: latency.whole(), answer_latency, answered, seen })
    }

    /// Creates objects at once, or deletes them, and waits until the edge shows it.
    ///
    /// # Errors
    /// As [`ApiCluster::load`].
    pub(crate) fn all(&self, objects: Range<u32>, deletes: bool) -> Result<Taken, Failure> {
        self.load(&at_once(objects, deletes))
    }

    /// Sends each change at its moment, and waits for the answers.
    ///
    /// # Errors
    /// When a request is refused.
    pub(crate) fn send(
        &self,
        turns: &[Turn],
        latency: &Arc<Latency>,
    ) -> Result<AnswerTimes, Failure> {
        let began = Instant::now() + Duration::from_millis(100);
        let load = Load { began, measured_from: Duration::ZERO, latency: latency.clone() };
        let first = self.sightings.begin(turns, load);
        self.runtime.block_on(async {
            let mut under_way = JoinSet::new();
            let room = Arc::new(Semaphore::new(IN_FLIGHT_MAX));
            for (turn, number) in turns.iter().zip(first..) {
                tokio::time::sleep_until((began + turn.at).into()).await;
                let room = room.clone().acquire_owned().await.tried("a semaphore")?;
                let object = &self.inventory.objects[turn.object as usize];
                let value = object.value(&self.inventory.nodes, number, 0);
                let (api, object, request) = (self.api.clone(), object.clone(), self.request(turn));
                let intended = began + turn.at;
                under_way.spawn(async move {
                    let _room = room;
                    match request {
                        Request::Create => {
                            api.create(&collection(object.kind), &value).await.map(drop)
                        }
                        Request::Patch => api.patch(&path(&object), &value).await,
                        Request::Delete => api.delete(&path(&object)).await,
                    }
                    .map(|()| intended.elapsed())
                });
            }
            let mut answers = histogram();
            while let Some(sent) = under_way.join_next().await {
                record(&mut answers, sent.tried("a request")??);
            }
            Ok(AnswerTimes { last: Instant::now(), latency: Quantiles::of(&answers) })
        })
    }

    /// Waits until the edge shows every change that was sent, and returns when it showed the last one.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn wait_seen(&self) -> Result<Instant, Failure> {
        let deadline = Instant::now() + SEEN_WITHIN;
        loop {
            match self.sightings.restless(0..1) {
                0 => return Ok(self.sightings.last().unwrap_or_else(Instant::now)),
                missing if Instant::now() >= deadline => {
                    let seconds = SEEN_WITHIN.as_secs();
                    let what = format!("{missing} objects are not shown within {seconds} s");
                    return Err(Failure::of(what));
                }
                _ => thread::sleep(POLL),
            }
        }
    }

    fn request(&self, turn: &Turn) -> Request {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.deletes {
            made.remove(&turn.object);
            Request::Delete
        } else if made.insert(turn.object) {
            Request::Create
        } else {
            Request::Patch
        }
    }

    /// The edge's local API.
    pub(crate) fn edge_socket(&self) -> PathBuf {
        edge_socket(&self.fleet)
    }

    /// The time of a part on a processor.
    ///
    /// # Errors
    /// When it does not run.
    pub(crate) fn processor_time(&self, part: &str) -> Result<Duration, Failure> {
        processor_time_of(&self.fleet, part)
    }

    /// The memory of controller and hub together, in bytes.
    ///
    /// # Errors
    /// When one does not run.
    pub(crate) fn cloud_bytes(&self) -> Result<u64, Failure> {
        let process = |part| self.fleet.part(part).process_id();
        let processes = [CONTROLLER, HUB].map(process).into_iter().collect::<Option<Vec<u32>>>();
        joint_bytes(&processes.tried("a part does not run")?).tried("a part does not run")
    }
}

/// A control plane of etcd and the API server, with the namespace of the objects.
///
/// # Errors
/// When it does not start.
pub(crate) fn control_plane(runtime: &Runtime) -> Result<(ControlPlane, ApiClient), Failure> {
    // As the API was under which KubeEdge was measured.
    let synced = vec!["--unsafe-no-fsync=false".to_owned()];
    let only_api = ControlPlaneSettings {
        parts: Vec::new(),
        flags: BTreeMap::from([(Part::Etcd, synced)]),
        ..ControlPlaneSettings::default()
    };
    let cluster = ControlPlane::start(only_api).tried("a control plane")?;
    let api = runtime.block_on(ApiClient::connect(&cluster))?;
    let name = json!({"name": NAMESPACE});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": name});
    runtime.block_on(api.create("/api/v1/namespaces", &namespace))?;
    Ok((cluster, api))
}

/// Kafka, a controller of this API, and a hub.
pub(crate) fn cloud(cluster: &ControlPlane) -> Fleet {
    let mut fleet = Fleet::on_one_broker(PARTITIONS);
    let listens = ["--listen", "127.0.0.1:0", "--insecure-loopback"].map(str::to_owned);
    fleet.add_kubernetes_controller(CONTROLLER, cluster.kubeconfig(), &listens);
    fleet.add_hub(HUB);
    fleet
}

/// The time of a part on a processor.
///
/// # Errors
/// When it does not run.
pub(crate) fn processor_time_of(fleet: &Fleet, part: &str) -> Result<Duration, Failure> {
    let id = fleet.part(part).process_id().tried("it does not run")?;
    processor_time(id).tried("it does not run")
}

fn edge_socket(fleet: &Fleet) -> PathBuf {
    fleet.part(NODE).data().join("nodes").join(NODE).join("edge.sock")
}

/// Waits until `count` nodes have a Lease.
///
/// # Errors
/// When they do not get one.
pub(crate) fn wait_leases(cluster: &ControlPlane, count: usize) -> Result<(), Failure> {
    let args = ["get", "leases", "--namespace", "kube-node-lease", "--output", "name"];
    wait("a Lease of each node", || {
        let output = cluster.kubectl().args(args).output().ok()?;
        let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        (lines >= count).then_some(())
    })
}
