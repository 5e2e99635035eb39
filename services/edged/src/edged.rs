//! The pod worker as a whole: what it is made of, and the handle that others hold.
//!
//! One task owns the desired state and the set of pod workers. It folds the edge's watch, keeps
//! one worker for each pod that is here or should be, and tells each what it is to bring about.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use headwater_event::ResourceKey;
use headwater_proto::local::{Operation, WatchEvent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::{Id, JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::client::{EdgeClient, SocketPathTooLong};
use crate::api::pod_reporter::PodReporter;
use crate::config::{EdgedConfig, RuntimeKind};
use crate::desired::change_traces::ChangeTraces;
use crate::desired::compressed_object::CompressedObject;
use crate::desired::{Change, DesiredState};
use crate::error_chain::error_chain;
use crate::node::object::NodeFacts;
use crate::node::reporter;
use crate::pod::{PodRecord, PodUid};
use crate::runtime::hollow::HollowRuntime;
use crate::runtime::process::ProcessRuntime;
use worker_set::WorkerChange;

pub mod worker_set;
use crate::runtime::{Runtime, RuntimeError};
use crate::worker::{Assignment, SIGNALS_MAX, Signal, Signals, Worker, WorkerDependencies};

/// The pod worker of one node.
#[derive(Debug)]
pub struct Edged;

/// A running pod worker. Dropping it stops the worker and leaves its pods running.
#[derive(Debug)]
pub struct Handle {
    stop_pods: Option<oneshot::Sender<Duration>>,
    cancel: CancellationToken,
    task: Option<JoinHandle<usize>>,
}

/// The pod worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum EdgedError {
    /// No socket can have the given path.
    #[error(transparent)]
    Socket(#[from] SocketPathTooLong),
    /// Every pod's command would run as root.
    #[error(
        "the process runtime would run every pod's command as root: start as another user, or \
         allow root explicitly"
    )]
    Root,
    /// The process runtime was given no shim.
    #[error("the process runtime needs the shim's program and arguments")]
    NoShim,
    /// The runtime cannot look at what is there.
    #[error("the runtime cannot start")]
    Runtime(#[from] RuntimeError),
}

/// Events of the watch that may wait; past this the edge's stream is held back.
const EVENTS_MAX: usize = 256;

/// Notices of the runtime that may wait, as a kubelet's PLEG; a lost one is found by a relist.
const NOTICES_MAX: usize = 1000;

/// After their deadline pods are killed; this is how long that may take.
const KILL_SLACK: Duration = Duration::from_secs(10);

impl Edged {
    /// Starts a pod worker: it adopts what an earlier one left running, registers the node and
    /// follows the edge's view, whenever the edge is there.
    ///
    /// Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// See [`EdgedError`]; nothing runs then that did not run before.
    pub async fn spawn(config: EdgedConfig) -> Result<Handle, EdgedError> {
        let edge = EdgeClient::new(&config.edge_socket, &config.settings)?;
        let (notices, noticed) = mpsc::channel(NOTICES_MAX);
        let runtime: Arc<dyn Runtime> = match &config.runtime {
            RuntimeKind::Hollow => Arc::new(HollowRuntime::default()),
            RuntimeKind::Process(process) => {
                if process.shim.is_empty() {
                    return Err(EdgedError::NoShim);
                }
                if nix::unistd::geteuid().is_root() && !process.allow_root {
                    return Err(EdgedError::Root);
                }
                let runtime = ProcessRuntime::open(&config.dir, process, &config.settings, notices);
                Arc::new(runtime.await?)
            }
        };
        Ok(Self::start(config, edge, runtime, noticed))
    }

    fn start(
        config: EdgedConfig,
        edge: EdgeClient,
        runtime: Arc<dyn Runtime>,
        noticed: mpsc::Receiver<PodUid>,
    ) -> Handle {
        let EdgedConfig { node, node_address, settings, metrics, .. } = config;
        let cancel = CancellationToken::new();
        let (events, watched) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(edge.clone().watch(settings.clone(), events, cancel.clone()));
        let node_again = Arc::new(Notify::new());
        let gather = {
            let (node, version, pods_max) = (node.clone(), runtime.version(), settings.pods_max);
            move || NodeFacts::gather(node.clone(), node_address, pods_max, version.clone())
        };
        let (again, stop) = (node_again.clone(), cancel.clone());
        tokio::spawn(reporter::report(gather, edge.clone(), settings.clone(), again, stop));
        let reporter = PodReporter::start(edge.clone(), &settings, metrics.clone());
        let main = Main {
            desired: DesiredState::new(node.clone()),
            workers: BTreeMap::new(),
            tasks: JoinSet::new(),
            uids: HashMap::new(),
            listed: false,
            shutdown: None,
            causes: ChangeTraces::default(),
            node_again,
            edge,
            shared: Arc::new(WorkerDependencies {
                node,
                address: node_address,
                adding: Semaphore::new(settings.add_workers.max(1)),
                removing: Semaphore::new(settings.remove_workers.max(1)),
                settings,
                runtime,
                reporter,
                metrics,
                cancel: cancel.clone(),
            }),
        };
        let (stop_pods, stopped) = oneshot::channel();
        let task = tokio::spawn(main.run(watched, noticed, stopped));
        Handle { stop_pods: Some(stop_pods), cancel, task: Some(task) }
    }
}

impl Handle {
    /// Stops the pod worker; its pods run on, and the next one adopts them.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        self.finish().await;
    }

    /// Stops the pods, each within its own grace period but at most `grace`, then the worker.
    /// The next one starts them again. Returns how many pods had not ended.
    pub async fn stop_pods(mut self, grace: Duration) -> usize {
        if let Some(stop_pods) = self.stop_pods.take() {
            // The task has ended if nobody listens, and with it there is nothing to stop.
            let _ = stop_pods.send(grace);
        }
        let remaining = self.finish().await;
        self.cancel.cancel();
        remaining
    }

    async fn finish(&mut self) -> usize {
        match self.task.take() {
            Some(task) => task.await.unwrap_or_else(|error| {
                tracing::error!(%error, "the pod worker ended badly");
                0
            }),
            None => 0,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

struct Main {
    desired: DesiredState,
    workers: BTreeMap<PodUid, Entry>,
    tasks: JoinSet<()>,
    uids: HashMap<Id, PodUid>,
    listed: bool,
    shutdown: Option<Instant>,
    /// What brought the events since the workers were last told.
    causes: ChangeTraces,
    node_again: Arc<Notify>,
    edge: EdgeClient,
    shared: Arc<WorkerDependencies>,
}

/// A pod's worker, as seen from outside.
struct Entry {
    key: ResourceKey,
    intents: watch::Sender<Assignment>,
    signals: Signals,
}

impl Main {
    /// Works until cancelled, or until the pods have stopped; returns how many had not.
    async fn run(
        mut self,
        mut watched: mpsc::Receiver<WatchEvent>,
        mut noticed: mpsc::Receiver<PodUid>,
        mut stop_pods: oneshot::Receiver<Duration>,
    ) -> usize {
        let cancel = self.shared.cancel.clone();
        let mut relist = tokio::time::interval(self.shared.settings.relist);
        relist.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if self.shutdown.is_some() && self.tasks.is_empty() {
                return 0;
            }
            let give_up = self.shutdown.map(|deadline| deadline + KILL_SLACK);
            tokio::select! {
                () = cancel.cancelled() => break,
                Some(event) = watched.recv(), if self.shutdown.is_none() => {
                    self.take(event).await;
                    // Many events are one change of mind, but others are to have their turn.
                    for _ in 0..EVENTS_MAX {
                        let Ok(event) = watched.try_recv() else { break };
                        self.take(event).await;
                    }
                    self.reconcile();
                }
                Some(uid) = noticed.recv() => {
                    if let Some(entry) = self.workers.get(&uid) {
                        // A worker with a full inbox is about to look anyway.
                        let _ = entry.signals.try_send(Box::new(Signal::Runtime));
                    }
                }
                Some(ended) = self.tasks.join_next_with_id() => {
                    let id = match ended {
                        Ok((id, ())) => id,
                        Err(error) => {
                            tracing::error!(%error, "a pod's worker ended badly");
                            error.id()
                        }
                    };
                    if let Some(uid) = self.uids.remove(&id) {
                        self.workers.remove(&uid);
                    }
                    self.reconcile();
                }
                _ = relist.tick() => {
                    if let Err(error) = self.shared.runtime.relist().await {
                        let message = error_chain(&error);
                        tracing::warn!(message, "the runtime cannot be listed");
                    }
                    self.reconcile();
                }
                Ok(grace) = &mut stop_pods, if self.shutdown.is_none() => self.stop(grace),
                () = sleep_until(give_up), if give_up.is_some() => break,
            }
        }
        // Workers see the cancellation at their next step, and none of their steps waits long.
        cancel.cancel();
        let remaining = self.tasks.len();
        while self.tasks.join_next().await.is_some() {}
        remaining
    }

    async fn take(&mut self, event: WatchEvent) {
        self.causes.add(&event);
        match self.desired.apply(event) {
            Ok(Change::State | Change::Nothing) => {}
            Ok(Change::Listed) => {
                // After the first listing nothing was told yet that could be lost.
                if std::mem::replace(&mut self.listed, true) {
                    self.shared.reporter.resend_all().await;
                    self.node_again.notify_one();
                }
            }
            Ok(Change::Operation(operation)) => self.refuse(operation),
            Err(error) => {
                let message = error_chain(&error);
                tracing::warn!(message, "an event of the view was left out");
            }
        }
    }

    /// Nobody here executes actions or volume operations: who asks is told so.
    fn refuse(&self, operation: Operation) {
        let edge = self.edge.clone();
        let answer = json!({
            "error": "no executor",
            "message": "edged executes no operations of this kind",
        });
        tokio::spawn(async move {
            let (id, verb) = (operation.id.clone(), operation.verb());
            if let Err(error) = edge.respond(operation, answer.to_string().into_bytes()).await {
                tracing::warn!(id, ?verb, %error, "an operation could not be answered");
            }
        });
    }

    /// Brings the set of workers, and what each is told, in line with the desired state.
    fn reconcile(&mut self) {
        if self.shutdown.is_some() || self.shared.cancel.is_cancelled() {
            return;
        }
        let desired = self.desired.pods();
        let uids = desired.iter().map(|(key, pod)| (key.clone(), pod.uid.clone())).collect();
        let workers = self.workers.iter().map(|(uid, entry)| (uid.clone(), entry.key.clone()));
        let found = self.shared.runtime.pods();
        let is_complete = self.desired.is_complete();
        let steps = worker_set::changes(&uids, &workers.collect(), &found, is_complete);
        self.update();
        let causes = std::mem::take(&mut self.causes);
        for step in steps {
            match step {
                WorkerChange::Add(key) => self.add(&key, &found, causes.of(&key)),
                WorkerChange::Remove(uid) => {
                    if let Some(entry) = self.workers.get(&uid) {
                        entry.intents.send_if_modified(|intent| {
                            intent.cause = causes.of(&entry.key).or(intent.cause.take());
                            std::mem::replace(&mut intent.wanted, false)
                        });
                    }
                }
                WorkerChange::Orphan(record) => {
                    tracing::info!(pod = %record.key, uid = %record.uid, "an orphan is removed");
                    let intent = Assignment {
                        pod: remains(&record),
                        objects: self.desired.objects().clone(),
                        wanted: false,
                        shutdown: None,
                        cause: None,
                    };
                    self.spawn(record, intent);
                }
            }
        }
    }

    /// Tells the workers of desired pods what changed.
    fn update(&self) {
        let objects = self.desired.objects();
        for (uid, entry) in &self.workers {
            let desired = self.desired.pods().get(&entry.key).filter(|desired| desired.uid == *uid);
            let Some(desired) = desired else { continue };
            entry.intents.send_if_modified(|intent| {
                let is_same = intent.pod.same(&desired.pod) && intent.objects.same(objects);
                if is_same || !intent.wanted {
                    return false;
                }
                let cause = self.causes.of_pod(&entry.key, &desired.pod);
                intent.cause = cause.or(intent.cause.take());
                intent.pod = desired.pod.clone();
                intent.objects = objects.clone();
                true
            });
        }
    }

    fn add(&mut self, key: &ResourceKey, found: &[PodRecord], cause: Option<String>) {
        let Some(desired) = self.desired.pods().get(key) else { return };
        let known = found.iter().find(|record| record.uid == desired.uid);
        let now = Timestamp::now();
        let record = match known {
            Some(record) => record.clone(),
            None => PodRecord::of(key, &desired.uid, &desired.pod.decode(), now),
        };
        let intent = Assignment {
            pod: desired.pod.clone(),
            objects: self.desired.objects().clone(),
            wanted: true,
            shutdown: None,
            cause,
        };
        self.spawn(record, intent);
    }

    fn spawn(&mut self, record: PodRecord, intent: Assignment) {
        let (uid, key) = (record.uid.clone(), record.key.clone());
        let (intents, intended) = watch::channel(intent);
        let (signals, inbox) = mpsc::channel(SIGNALS_MAX);
        let shared = self.shared.clone();
        let mut worker = Worker::new(record, shared, intended, signals.clone(), inbox);
        let task = self.tasks.spawn(async move { worker.run().await });
        self.uids.insert(task.id(), uid.clone());
        self.workers.insert(uid, Entry { key, intents, signals });
    }

    /// The machine stops: every pod ends within its own grace period, but at most `grace`; so do
    /// pods that were found and that no view has named yet.
    fn stop(&mut self, grace: Duration) {
        let now = Instant::now();
        self.shutdown = Some(now + grace);
        for entry in self.workers.values() {
            entry.intents.send_modify(|intent| {
                intent.shutdown = Some(now + grace.min(crate::pod::grace(&intent.pod.decode())));
            });
        }
        for record in self.shared.runtime.pods() {
            if self.workers.contains_key(&record.uid) {
                continue;
            }
            let intent = Assignment {
                pod: remains(&record),
                objects: self.desired.objects().clone(),
                wanted: true,
                shutdown: Some(now + grace.min(record.grace())),
                cause: None,
            };
            self.spawn(record, intent);
        }
    }
}

/// What is left of a pod's object when only its record is.
fn remains(record: &PodRecord) -> CompressedObject<Pod> {
    let grace = i64::try_from(record.grace_seconds).unwrap_or(i64::MAX);
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(record.key.name().to_owned()),
            namespace: record.key.namespace().map(str::to_owned),
            uid: Some(record.uid.as_str().to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { termination_grace_period_seconds: Some(grace), ..PodSpec::default() }),
        status: None,
    };
    CompressedObject::encode(&pod).expect("no time in it")
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
