//! The answer to one request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headwater_edged::NodePods;
use headwater_edged::pod::{PodUid, every_container};
use headwater_edged::runtime::{CommandBounds, RunState, RuntimeError, StreamAddress};
use headwater_identity::{Certificate, PeerTrust};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::access::{Access, Denial, check_local};
use crate::metrics::ServerMetrics;
use crate::query::{self, LogOptions, QueryError};
use crate::response::{Body, json, text};
use crate::route::{ContainerPath, HealthCheck, Route, RouteError};
use crate::server::{Door, Server, serve};
use crate::stall::WriteTime;
use crate::usage::VolumeStatistics;
use crate::{container_logs, metrics, streams, usage};

/// How long the pod worker may take to answer before it counts as stuck: its longest step.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long a command of `/run` may take.
const RUN_WITHIN: Duration = Duration::from_mins(2);

/// The most output of a command of `/run`: an answer of a container runtime has no more.
const RUN_OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Commands of `/run` at a time: each may have its output several times in memory on the way.
const RUNS_MAX: usize = 4;

/// How long a client waits after a bound was reached.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct KubeletLimits {
    /// Connections of each door at a time; the next one waits. An API server keeps a few.
    pub connections: usize,
    /// Streams at a time; the next one is refused. Each is a process or a connection of a pod.
    pub streams: usize,
    /// Logs that are sent at a time; the next one is refused. Each has a file open.
    pub logs: usize,
    /// How long the head of a request may take, and how long a connection may idle between two.
    pub head_within: Duration,
    /// How long a client may take to read what was sent, logs aside.
    pub write_within: Duration,
    /// How long a stream may have nothing to move, and a client may not read its log.
    pub stream_idle: Duration,
}

impl Default for KubeletLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            streams: 50,
            logs: 100,
            head_within: Duration::from_secs(75),
            write_within: Duration::from_secs(60),
            // As a kubelet's streamingConnectionIdleTimeout.
            stream_idle: Duration::from_hours(4),
        }
    }
}

/// The server of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kubelet(Arc<ServerState>);

#[derive(Debug)]
struct ServerState {
    pods: NodePods,
    limits: KubeletLimits,
    metrics: ServerMetrics,
    volumes: VolumeStatistics,
    streams: Arc<Semaphore>,
    logs: Arc<Semaphore>,
    runs: Semaphore,
}

/// The client of a connection.
#[derive(Clone)]
pub(crate) enum Client {
    /// The door lets in only those that may ask.
    Local,
    /// A client with or without a certificate.
    Remote {
        peer: Option<(Arc<Certificate>, PeerTrust)>,
        access: Arc<Access>,
        /// The name by which the client knows the server.
        server_name: Option<Arc<str>>,
    },
}

/// Why a request has no answer but a refusal.
pub(crate) enum Refusal {
    Status(StatusCode, String),
    /// A bound is reached: the client comes again.
    Busy(String),
}

/// The answer to a request.
pub(crate) type Answer = Result<Response<Body>, Refusal>;

impl Kubelet {
    /// The server of these pods.
    pub fn new(pods: NodePods, limits: KubeletLimits) -> Self {
        Self(Arc::new(ServerState {
            pods,
            limits,
            metrics: ServerMetrics::new(),
            volumes: VolumeStatistics::default(),
            streams: Arc::new(Semaphore::new(limits.streams)),
            logs: Arc::new(Semaphore::new(limits.logs)),
            runs: Semaphore::new(RUNS_MAX),
        }))
    }

    /// Serves the clients of one door until `stop`. Streams end with it.
    pub async fn serve(self, door: Door, stop: CancellationToken) {
        serve(self, door, stop).await;
    }

    async fn of_route(
        &self,
        route: Route,
        request: Request<Incoming>,
        time: WriteTime,
        stop: CancellationToken,
    ) -> Answer {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let pods = &self.0.pods;
        match route {
            Route::Health(check) => self.health(check).await,
            Route::Pods => encoded(self.pods().await?),
            Route::RunningPods => {
                let pods = self.pods().await?.into_iter();
                encoded(pods.filter_map(|pod| self.running(pod)).collect())
            }
            Route::Metrics => {
                let listed = self.pods().await?;
                let volumes = self.0.volumes.latest(pods, &listed);
                Ok(metrics::answer(&self.0.metrics, pods, &listed, &volumes))
            }
            Route::ResourceMetrics => {
                usage::resource(pods, &self.pods().await?).await.map_err(of_runtime)
            }
            Route::Summary => {
                let listed = self.pods().await?;
                let volumes = self.0.volumes.latest(pods, &listed);
                usage::summary(pods, &listed, &volumes).await.map_err(of_runtime)
            }
            Route::ContainerMetrics => {
                usage::cadvisor(pods, &self.pods().await?).await.map_err(of_runtime)
            }
            Route::ProbeMetrics => Ok(metrics::of_probes(&pods.probes(), &self.pods().await?)),
            Route::ContainerLogs(path) => {
                // A person may stop a pager.
                time.set(self.0.limits.stream_idle);
                self.logs(&path, &query).await
            }
            Route::Run(path) => self.run(&path, &query).await,
            Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => {
                if !streams::is_upgrade(request.headers()) {
                    return Err(bad("Upgrade request required"));
                }
                let slot = self.0.streams.clone().try_acquire_owned().map_err(|_| {
                    let max = self.0.limits.streams;
                    Refusal::Busy(format!("this node has {max} streams open, which is its limit"))
                })?;
                let address = self.address(&route, &query, request.method()).await?;
                self.stream(request, &address, slot, &time, stop).await
            }
        }
    }

    async fn health(&self, check: HealthCheck) -> Answer {
        let is_alive = match check {
            HealthCheck::Ping => true,
            HealthCheck::All | HealthCheck::SyncLoop => {
                let answered = timeout(ANSWER_WITHIN, self.0.pods.wait_for_answer()).await;
                matches!(answered, Ok(Ok(())))
            }
        };
        if is_alive {
            return Ok(text(StatusCode::OK, "ok"));
        }
        let words = "[+]ping ok\n[-]syncloop failed: the pod worker does not answer\n\
                     healthz check failed\n";
        Ok(text(StatusCode::INTERNAL_SERVER_ERROR, words))
    }

    async fn pods(&self) -> Result<Vec<Pod>, Refusal> {
        let listed = timeout(ANSWER_WITHIN, self.0.pods.list()).await.map_err(|_| stuck())?;
        listed.map_err(|error| unavailable(error.to_string()))
    }

    /// The pod as `/runningpods/` shows it: names and images of what runs; `None` if nothing does.
    fn running(&self, pod: Pod) -> Option<Pod> {
        let uid = PodUid::try_from(pod.metadata.uid.clone()?).ok()?;
        let state = self.0.pods.runtime().pod(&uid);
        let runs = |name: &str| {
            let history = state.containers.get(name);
            history.is_some_and(|history| matches!(history.state, RunState::Running { .. }))
        };
        let containers: Vec<Container> = every_container(&pod)
            .filter(|container| runs(&container.name))
            .map(|container| Container {
                name: container.name.clone(),
                image: container.image.clone(),
                ..Container::default()
            })
            .collect();
        let ObjectMeta { name, namespace, uid, .. } = pod.metadata;
        (!containers.is_empty()).then(|| Pod {
            metadata: ObjectMeta { name, namespace, uid, ..ObjectMeta::default() },
            spec: Some(PodSpec { containers, ..PodSpec::default() }),
            status: None,
        })
    }

    /// The pod that a path names.
    async fn pod(&self, path: &ContainerPath, absent: String) -> Result<(Pod, PodUid), Refusal> {
        let found = timeout(ANSWER_WITHIN, self.0.pods.find(&path.namespace, &path.pod));
        let found = found.await.map_err(|_| stuck())?;
        let pod = found.map_err(|error| unavailable(error.to_string()))?;
        let missing = |words: String| Refusal::Status(StatusCode::NOT_FOUND, words);
        let pod = pod.ok_or_else(|| missing(absent))?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if path.uid.as_ref().is_some_and(|wanted| *wanted != uid) {
            return Err(missing("pod not found".to_owned()));
        }
        let uid = PodUid::try_from(uid).map_err(|error| bad(&error.to_string()))?;
        Ok((pod, uid))
    }

    async fn logs(&self, path: &ContainerPath, query: &str) -> Answer {
        let options = LogOptions::parse(query, Timestamp::now()).map_err(Refusal::from)?;
        let name = &path.container;
        let (pod, uid) = self.pod(path, format!("pod {:?} does not exist", path.pod)).await?;
        if !every_container(&pod).any(|container| container.name == *name) {
            let words = format!("container {name:?} not found in pod {:?}", path.pod);
            return Err(Refusal::Status(StatusCode::NOT_FOUND, words));
        }
        let slot = self.0.logs.clone().try_acquire_owned().map_err(|_| {
            let max = self.0.limits.logs;
            Refusal::Busy(format!("this node sends {max} logs, which is its limit"))
        })?;
        container_logs::answer(&self.0.pods, path, &pod, &uid, options, slot)
            .await
            .map_err(|words| bad(&words))
    }

    async fn run(&self, path: &ContainerPath, query: &str) -> Answer {
        let (_, uid) = self.pod(path, "pod does not exist".to_owned()).await?;
        let command = query::words(query);
        if command.is_empty() {
            return Err(bad("name the command: cmd=COMMAND"));
        }
        self.container(&uid, &path.container)?;
        let _slot = self.0.runs.try_acquire().map_err(|_| {
            Refusal::Busy(format!("this node runs {RUNS_MAX} commands, which is its limit"))
        })?;
        let runtime = self.0.pods.runtime();
        let bounds = CommandBounds { within: RUN_WITHIN, output_bytes_max: RUN_OUTPUT_BYTES_MAX };
        let output = runtime.run(&uid, &path.container, &command, bounds).await;
        let output = output.map_err(of_runtime)?;
        match output.code {
            Some(0) => Ok(json(output.output)),
            Some(code) => Err(failed(format!(
                "command {:?} exited with {code}: {}",
                command.join(" "),
                String::from_utf8_lossy(&output.output)
            ))),
            None => Err(failed(format!(
                "command {:?} timed out after {} s",
                command.join(" "),
                RUN_WITHIN.as_secs()
            ))),
        }
    }

    /// The one-time address of the stream that a request names.
    async fn address(
        &self,
        route: &Route,
        query: &str,
        method: &Method,
    ) -> Result<StreamAddress, Refusal> {
        let absent = || "pod does not exist".to_owned();
        let streams = || {
            self.0.pods.runtime().streams().ok_or_else(|| {
                let version = &self.0.pods.runtime().features().version;
                let words = format!("the runtime {version} of this node has no streams");
                Refusal::Status(StatusCode::NOT_IMPLEMENTED, words)
            })
        };
        let address = match route {
            Route::Exec(path) => {
                let request = query::streams(query).map_err(Refusal::from)?;
                let command = query::command(query);
                if command.is_empty() {
                    return Err(bad("name the command: command=WORD"));
                }
                let (_, uid) = self.pod(path, absent()).await?;
                let streams = streams()?;
                self.container(&uid, &path.container)?;
                streams.exec(&uid, &path.container, &command, request).await
            }
            Route::Attach(path) => {
                let request = query::streams(query).map_err(Refusal::from)?;
                let (pod, uid) = self.pod(path, absent()).await?;
                let streams = streams()?;
                self.container(&uid, &path.container)?;
                // What the container has was decided when it started.
                let mut containers = every_container(&pod);
                let container = containers.find(|container| container.name == path.container);
                let tty = container.and_then(|container| container.tty).unwrap_or(false);
                let request = headwater_edged::runtime::StreamRequest { tty, ..request };
                streams.attach(&uid, &path.container, request).await
            }
            Route::PortForward(path) => {
                // A SPDY client names its ports in the streams.
                let ports = query::ports(query, *method == Method::GET).map_err(Refusal::from)?;
                let (_, uid) = self.pod(path, absent()).await?;
                streams()?.port_forward(&uid, &ports).await
            }
            _ => return Err(RouteError::NotFound.into()),
        };
        address.map_err(of_runtime)
    }

    /// Checks that a container was started.
    fn container(&self, uid: &PodUid, name: &str) -> Result<(), Refusal> {
        let is_known = self.0.pods.runtime().pod(uid).containers.contains_key(name);
        if is_known { Ok(()) } else { Err(failed(format!("container not found ({name:?})"))) }
    }

    async fn stream(
        &self,
        request: Request<Incoming>,
        address: &StreamAddress,
        slot: OwnedSemaphorePermit,
        time: &WriteTime,
        stop: CancellationToken,
    ) -> Answer {
        let idle = self.0.limits.stream_idle;
        streams::hand_on(request, address, slot, time, idle, stop)
            .await
            .map_err(|error| failed(error.to_string()))
    }
}

impl Server for Kubelet {
    fn limits(&self) -> &KubeletLimits {
        &self.0.limits
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        client: Client,
        time: WriteTime,
        stop: CancellationToken,
    ) -> Answer {
        let method = request.method().clone();
        let route = Route::parse(&method, request.uri().path());
        let name = route.as_ref().map_or("other", Route::name);
        let _counted = self.0.metrics.begin(&method, name);
        client.check(request.headers(), &route)?;
        self.of_route(route?, request, time, stop).await
    }
}

impl Client {
    /// The name by which the client knows the server.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match self {
            Self::Local => None,
            Self::Remote { server_name, .. } => server_name.as_deref(),
        }
    }

    /// Whether the client may ask. A client that may not learns nothing of paths.
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        route: &Result<Route, RouteError>,
    ) -> Result<(), Denial> {
        let Self::Remote { peer, access, .. } = self else { return check_local(headers) };
        let (certificate, trust) = peer.as_ref().ok_or(Denial::Unauthorized)?;
        let is_valid = SystemTime::now() <= certificate.not_after;
        if !is_valid || trust.clone().check().is_err() {
            return Err(Denial::Unauthorized);
        }
        access.check(certificate, route.as_ref().unwrap_or(&Route::Pods))
    }
}

impl Refusal {
    pub(crate) fn response(self) -> Response<Body> {
        match self {
            Self::Status(status, words) => text(status, words),
            Self::Busy(words) => {
                let mut response = text(StatusCode::TOO_MANY_REQUESTS, words);
                response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
                response
            }
        }
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        let status = match denial {
            Denial::Unauthorized => StatusCode::UNAUTHORIZED,
            Denial::Forbidden { .. } | Denial::Browser | Denial::ForeignHost { .. } => {
                StatusCode::FORBIDDEN
            }
        };
        Self::Status(status, denial.to_string())
    }
}

impl From<RouteError> for Refusal {
    fn from(error: RouteError) -> Self {
        let status = match error {
            RouteError::NotFound => StatusCode::NOT_FOUND,
            RouteError::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            RouteError::Malformed => StatusCode::BAD_REQUEST,
        };
        Self::Status(status, error.to_string())
    }
}

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Self {
        let status = match error {
            QueryError::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::Status(status, error.to_string())
    }
}

/// A failure of the runtime: what it cannot do at all is apart from what it could not do now.
fn of_runtime(error: RuntimeError) -> Refusal {
    let status = match error {
        RuntimeError::Unsupported { .. } => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refusal::Status(status, error.to_string())
}

fn encoded(pods: Vec<Pod>) -> Answer {
    serde_json::to_vec(&List { items: pods, ..List::default() })
        .map(json)
        .map_err(|error| failed(error.to_string()))
}

pub(crate) fn bad(words: &str) -> Refusal {
    Refusal::Status(StatusCode::BAD_REQUEST, words.to_owned())
}

fn failed(words: String) -> Refusal {
    Refusal::Status(StatusCode::INTERNAL_SERVER_ERROR, words)
}

fn unavailable(words: String) -> Refusal {
    Refusal::Status(StatusCode::SERVICE_UNAVAILABLE, words)
}

fn stuck() -> Refusal {
    unavailable(format!("the pod worker did not answer within {} s", ANSWER_WITHIN.as_secs()))
}
