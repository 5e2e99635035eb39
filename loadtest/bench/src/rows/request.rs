//! Row 19: a `get` of a node over the request lane, against the same request of a client of the API server.
//!
//! Control plane, Kafka, controller, hub and edge are processes, with TLS between all of them. The object is
//! not there: the log has nothing under its key, so each request goes to the API server and comes back.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use headwater_cluster::{ControlPlane, ControlPlaneSettings};
use headwater_controller::Cloud as _;
use headwater_e2e::authority::Authority;
use headwater_e2e::fleet::Fleet;
use headwater_event::{NodeRequest, RequestError, RequestVerb};
use headwater_kubernetes::{Access, ActAs, KubernetesCloud};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_proto::local::failure::Code;
use headwater_proto::local::meta_client::MetaClient;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::{Failure as Refusal, Operation};
use serde_json::json;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::run::Run;
use crate::samples::Samples;
use crate::waiting::wait;

const NODE: &str = "gw-1";
const ABSENT: &str = "default/configmap/absent";
const PARTITIONS: u32 = 3;

/// Requests of one turn, one after the other.
const REQUESTS: usize = 100;

/// The time that each request has.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Which way a request goes.
#[derive(Clone, Copy)]
enum Way {
    Lane,
    Api,
}

/// Everything that runs, and a client at either end.
struct World {
    runtime: Runtime,
    edge: MetaClient<Channel>,
    api: KubernetesCloud,
    _fleet: Fleet,
    _cluster: ControlPlane,
    _authority: Authority,
}

/// Measures it.
///
/// # Errors
/// When a request has another answer than that the object is absent.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let rounds = run.pick(10, 50);
    let mut world = World::start()?;
    let taken = run.turns.take(rounds, [Way::Lane, Way::Api], |way| world.median_ms(way))?;
    let lane: Samples = taken.iter().map(|[lane, _]| *lane).collect();
    let api: Samples = taken.iter().map(|[_, api]| *api).collect();
    let mut measured = RowResult::default();
    let limit = "a client of the API server";
    let figure = Figure::excess("get: ms, p50, beyond the API's own", lane, limit, api);
    measured.push(figure.held_to(Bound::at_most(3.0, 1.0)).latency());
    measured.set("requests", format!("{rounds} turns of {REQUESTS} each way, one at a time"));
    measured.set("parts", "control plane, Kafka, controller, hub, edge; TLS between all of them");
    measured.set("object", "a ConfigMap that a pod names and the cluster does not have");
    Ok(measured)
}

impl World {
    fn start() -> Result<Self, Failure> {
        let only_api =
            ControlPlaneSettings { parts: Vec::new(), ..ControlPlaneSettings::default() };
        let cluster = ControlPlane::start(only_api).tried("a control plane")?;
        let labels = json!({"node-role.kubernetes.io/edge": ""});
        let meta = json!({"name": NODE, "labels": labels});
        create(&cluster, &json!({"apiVersion": "v1", "kind": "Node", "metadata": meta}))?;
        let from = json!([{"configMapRef": {"name": "absent", "optional": true}}]);
        let container = json!({"name": "main", "image": "example.invalid/main", "envFrom": from});
        create(
            &cluster,
            &json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
                "spec": {"nodeName": NODE, "containers": [container]},
            }),
        )?;

        let authority = Authority::new();
        let mut fleet = Fleet::on_one_broker(PARTITIONS);
        let mut more = authority.issue("controller", "controller");
        more.extend(["--listen", "127.0.0.1:0"].map(str::to_owned));
        fleet.add_kubernetes_controller("controller", cluster.kubeconfig(), &more);
        let tls = authority.issue("hub", "hub");
        fleet.add_hub_with("hub", &tls.iter().map(String::as_str).collect::<Vec<_>>());
        let tls = authority.issue("node", NODE);
        let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
        fleet.add_edge_with(NODE, &[fleet.hub_address("hub")], &tls);

        let runtime = Runtime::new().tried("a runtime")?;
        let file = cluster.kubeconfig().to_owned();
        let access = Access::Kubeconfig { file, context: None };
        let connection = runtime.block_on(access.connect()).tried("a client of the API server")?;
        let api = KubernetesCloud::new(connection, ActAs::Node);
        let socket = fleet.part(NODE).data().join("nodes").join(NODE).join("edge.sock");
        wait("the local API", || socket.exists().then_some(()))?;
        let path = format!("unix:{}", socket.display());
        let endpoint = Endpoint::from_shared(path).tried("the path of a socket")?;
        let edge = MetaClient::new(runtime.block_on(endpoint.connect()).tried("a local API")?);
        let mut world =
            Self { runtime, edge, api, _fleet: fleet, _cluster: cluster, _authority: authority };
        for way in [Way::Lane, Way::Api] {
            wait("an answer of the API server", || world.get(way).ok())?;
        }
        Ok(world)
    }

    /// The median of the requests of a turn, in milliseconds.
    fn median_ms(&mut self, way: Way) -> Result<f64, Failure> {
        let mut taken = Samples::default();
        for _ in 0..REQUESTS {
            let began = Instant::now();
            self.get(way)?;
            taken.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(taken.median())
    }

    fn get(&mut self, way: Way) -> Result<(), Failure> {
        match way {
            Way::Lane => self.by_lane(),
            Way::Api => self.by_api(),
        }
    }

    fn by_lane(&mut self) -> Result<(), Failure> {
        let operation = Operation {
            id: "1".to_owned(),
            source: "bench".to_owned(),
            verb: Verb::Query.into(),
            resource: ABSENT.to_owned(),
            ..Operation::default()
        };
        let answer = self.runtime.block_on(self.edge.operate(operation)).tried("the local API")?;
        match answer.into_inner().outcome {
            Some(Outcome::Failure(Refusal { code, .. })) if code == Code::NotFound as i32 => Ok(()),
            other => Err(Failure::of(format!("another answer: {other:?}"))),
        }
    }

    fn by_api(&self) -> Result<(), Failure> {
        let request = NodeRequest {
            node: NODE.parse().tried("a name")?,
            timeout: TIMEOUT,
            verb: RequestVerb::Get,
            key: ABSENT.parse().tried("a key")?,
            body: bytes::Bytes::new(),
        };
        match self.runtime.block_on(self.api.respond(request)) {
            Err(RequestError::NotFound) => Ok(()),
            other => Err(Failure::of(format!("another answer: {other:?}"))),
        }
    }
}

fn create(cluster: &ControlPlane, object: &serde_json::Value) -> Result<(), Failure> {
    let mut command = cluster.kubectl();
    command.args(["create", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().tried("kubectl")?;
    let mut input = child.stdin.take().tried("the input of kubectl")?;
    input.write_all(object.to_string().as_bytes()).tried("the input of kubectl")?;
    drop(input);
    let status = child.wait().tried("kubectl")?;
    if status.success() { Ok(()) } else { Err(Failure::of(format!("kubectl: {status}"))) }
}
