//! The task that owns the desired state and the set of pod workers.
//!
//! It folds the edge's watch, keeps one worker for every pod that is on the machine or should be,
//! and sends each worker its assignment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater_event::ResourceKey;
use headwater_object::host_ports::{HostPort, host_ports};
use headwater_proto::local::operation::Verb;
use headwater_proto::local::{Operation, WatchEvent};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};

use super::admission::{
    Load, Room, admit, admit_ports, admit_under_pressure, excess, given, missing,
};
use super::node_pods::{PodQuery, PodView, QueriedPods};
use super::pod_end::take_volumes_back;
use super::preemption::{Candidate, Missing, may_preempt, victims};
use super::stray_pods;
use super::worker_set::{self, WorkedPod, WorkerChange};
use super::{EVENTS_MAX, Ending};
use crate::api::client::EdgeClient;
use crate::boot_time::BootTime;
use crate::container::claim::ClaimView;
use crate::container::qos::QosClass;
use crate::container::requests::{Amounts, pod_requests};
use crate::desired::change_traces::ChangeTraces;
use crate::desired::compressed_object::CompressedObject;
use crate::desired::objects::Objects;
use crate::desired::{Change, DesiredPod, DesiredState};
use crate::eviction::Eviction;
use crate::node::pressure::Pressures;
use crate::pod::{self, PodRecord, PodUid};
use crate::static_pods::StaticPods;
use crate::worker::plan::FailReason;
use crate::worker::{
    AdmissionFailure, Assignment, SIGNALS_MAX, Signal, Signals, Worker, WorkerDependencies, status,
};
use headwater_telemetry::error_chain;

mod resizes;

use resizes::{kept_resources, stated_resources};

/// The words of the status of a pod that leaves its place, as a kubelet's.
const PREEMPTED: &str = "Preempted in order to admit critical pod";

/// Pods are killed at their deadline; this bounds the time that the kill takes.
const KILL_SLACK: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Supervisor {
    desired: DesiredState,
    workers: BTreeMap<PodUid, WorkerHandle>,
    tasks: JoinSet<()>,
    /// The pod of each worker's task.
    uids: HashMap<Id, PodUid>,
    /// Whether a listing of the watch has ended.
    is_listed: bool,
    /// Whether the pods that run without a record have one: before that each of them would be a new pod.
    has_recovered: bool,
    /// The time by which the pods must have ended, once the machine stops.
    shutdown: Option<Instant>,
    /// The end of the pods whose turn comes once the others have ended.
    next_end: Option<NextEnd>,
    /// The trace contexts of events since the workers last received assignments.
    traces: ChangeTraces,
    resend_node: Arc<Notify>,
    edge: EdgeClient,
    /// Receives the claims of the view.
    claims: watch::Sender<ClaimView>,
    /// The mirrors that the reporter has.
    mirrors: BTreeMap<PodUid, PodUid>,
    /// What the node lacks; `None`: it evicts no pods, and admits them whatever it lacks.
    pressures: Option<watch::Receiver<Pressures>>,
    /// The objects whose RuntimeClasses the runtime knows.
    runtime_classes_of: Objects,
    shared: Arc<WorkerDependencies>,
}

/// The supervisor's side of a worker.
struct WorkerHandle {
    pod: WorkedPod,
    /// What the node has given to the pod.
    requests: Amounts,
    /// The ports of the machine that the pod takes.
    ports: Vec<HostPort>,
    /// The pod's latest object. The assigned one has the resources that the node has given to it.
    desired: CompressedObject<Pod>,
    /// The pod with its latest spec and the resources that it has, where the spec asks for others.
    resized: Option<CompressedObject<Pod>>,
    assignments: watch::Sender<Assignment>,
    has_ended: Arc<AtomicBool>,
    /// It leaves its place to a critical pod.
    is_preempted: bool,
    signals: Signals,
}

/// The end of all pods, after that of the pods with volumes of storage drivers.
struct NextEnd {
    /// The longest time of a pod's end.
    within: Duration,
    /// The pods whose volumes are taken back before.
    users: Vec<PodRecord>,
}

impl WorkerHandle {
    /// Whether the pod counts among those that the node has room for. A pod that ends does not: where
    /// all pods are replaced at once, the new ones come while the old ones end.
    fn takes_room(&self) -> bool {
        let assignment = self.assignments.borrow();
        assignment.is_desired
            && assignment.failure.is_none()
            && !self.is_preempted
            && !self.has_ended.load(Ordering::Relaxed)
    }
}

impl Supervisor {
    pub(super) fn new(
        dependencies: Arc<WorkerDependencies>,
        edge: EdgeClient,
        resend_node: Arc<Notify>,
        claims: watch::Sender<ClaimView>,
        pressures: Option<watch::Receiver<Pressures>>,
    ) -> Self {
        Self {
            desired: DesiredState::new(dependencies.node.clone(), dependencies.runtime.fields()),
            workers: BTreeMap::new(),
            tasks: JoinSet::new(),
            uids: HashMap::new(),
            is_listed: false,
            has_recovered: false,
            shutdown: None,
            next_end: None,
            traces: ChangeTraces::default(),
            resend_node,
            edge,
            claims,
            mirrors: BTreeMap::new(),
            pressures,
            runtime_classes_of: Objects::default(),
            shared: dependencies,
        }
    }

    /// Works until cancelled, or until the pods have stopped. Returns the number of pods that did
    /// not stop.
    pub(super) async fn run(
        mut self,
        mut watched: mpsc::Receiver<WatchEvent>,
        mut noticed: mpsc::Receiver<PodUid>,
        mut queried: mpsc::Receiver<PodQuery>,
        mut evicted: mpsc::Receiver<Eviction>,
        mut static_pods: watch::Receiver<StaticPods>,
        mut stop_pods: oneshot::Receiver<Duration>,
    ) -> usize {
        let cancel = self.shared.cancel.clone();
        let mut relist = tokio::time::interval(self.shared.settings.relist);
        relist.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut relists = JoinSet::new();
        let shared = self.shared.clone();
        relists.spawn(async move {
            stray_pods::recover_at_start(&shared.runtime, &shared.store).await;
        });
        loop {
            if self.shutdown.is_some() && self.tasks.is_empty() {
                if !self.end_next().await {
                    return 0;
                }
                continue;
            }
            let give_up = self.shutdown.map(|deadline| deadline + KILL_SLACK);
            tokio::select! {
                () = cancel.cancelled() => break,
                Some(event) = watched.recv(), if self.shutdown.is_none() => {
                    self.apply(event).await;
                    // A burst of events becomes one set of assignments, but it is bounded, so that
                    // the other branches have their turn.
                    for _ in 0..EVENTS_MAX {
                        let Ok(event) = watched.try_recv() else { break };
                        self.apply(event).await;
                    }
                    self.report_mirrors().await;
                    self.reconcile();
                }
                Ok(()) = static_pods.changed(), if self.shutdown.is_none() => {
                    self.desired.set_static(&static_pods.borrow_and_update());
                    self.reconcile();
                }
                Some(uid) = noticed.recv() => {
                    if let Some(worker) = self.workers.get(&uid) {
                        // A worker with a full inbox is about to observe its pod anyway.
                        let _ = worker.signals.try_send(Box::new(Signal::Runtime));
                    }
                }
                Some(ended) = self.tasks.join_next_with_id() => {
                    let id = match ended {
                        Ok((id, ())) => id,
                        Err(error) => {
                            tracing::error!(%error, "a pod's worker ended with an error");
                            error.id()
                        }
                    };
                    if let Some(uid) = self.uids.remove(&id) {
                        self.workers.remove(&uid);
                    }
                    self.reconcile();
                }
                // A runtime that hangs keeps the pods from nothing else.
                _ = relist.tick(), if relists.is_empty() => {
                    let shared = self.shared.clone();
                    relists.spawn(async move {
                        match shared.runtime.relist().await {
                            Ok(()) => {
                                stray_pods::recover_again(&shared.runtime, &shared.store).await;
                            }
                            Err(error) => {
                                let message = error_chain(&error);
                                tracing::warn!(message, "the runtime cannot be listed");
                            }
                        }
                    });
                }
                Some(_) = relists.join_next() => {
                    self.has_recovered = true;
                    self.reconcile();
                }
                Some(Eviction { pod, message, within, signal }) = evicted.recv() => {
                    if let Some(worker) = self.workers.get(&pod) {
                        // A worker with a full inbox works: the next measurement asks again.
                        let (reason, signal) = (FailReason::Evicted, Some(signal));
                        let evict = Signal::Evict { reason, message, within, signal };
                        let _ = worker.signals.try_send(Box::new(evict));
                    }
                }
                // A reader that gave up needs no answer.
                Some(PodQuery { pods, answer }) = queried.recv() => drop(answer.send(self.views(&pods))),
                Ok(grace) = &mut stop_pods, if self.shutdown.is_none() => self.stop(grace),
                () = sleep_until(give_up), if give_up.is_some() => if !self.end_next().await {
                    break;
                },
            }
        }
        // Workers observe the cancellation at their next step, and none of their steps waits long.
        cancel.cancel();
        let remaining = self.tasks.len();
        while self.tasks.join_next().await.is_some() {}
        remaining
    }

    /// The desired pods that a query names, with the statuses that this node reported last.
    fn views(&self, queried: &QueriedPods) -> Vec<PodView> {
        let view = |pod: &DesiredPod| PodView {
            pod: pod.pod.clone(),
            status: self.shared.store.status(&pod.uid),
        };
        match queried {
            QueriedPods::None => Vec::new(),
            QueriedPods::One(key) => self.desired.pods().get(key).map(view).into_iter().collect(),
            QueriedPods::All => self.desired.pods().values().map(view).collect(),
        }
    }

    async fn apply(&mut self, event: WatchEvent) {
        self.traces.add(&event);
        match self.desired.apply(event) {
            Ok(Change::State | Change::Nothing) => {}
            Ok(Change::Listed) => {
                // Before the first listing nothing was reported that the edge could have lost.
                if std::mem::replace(&mut self.is_listed, true) {
                    self.shared.reporter.resend_all().await;
                    self.resend_node.notify_one();
                }
            }
            // The edge delivers an answer to the program that asked, and to the group of its object,
            // which receives the object itself from the watch.
            Ok(Change::Operation(operation)) if operation.verb() == Verb::Response => {}
            Ok(Change::Operation(operation)) => self.refuse(operation),
            Err(error) => {
                let message = error_chain(&error);
                tracing::warn!(message, "an event of the watch was ignored");
            }
        }
    }

    /// Gives the reporter the mirrors of static pods, where they have changed.
    async fn report_mirrors(&mut self) {
        let mirrors = self.desired.mirrors();
        if self.mirrors != mirrors {
            self.mirrors.clone_from(&mirrors);
            self.shared.reporter.mirrors(mirrors).await;
        }
    }

    /// Responds that this node executes no actions and volume operations.
    fn refuse(&self, operation: Operation) {
        let edge = self.edge.clone();
        let response = json!({
            "error": "no executor",
            "message": "edged executes no operations of this kind",
        });
        tokio::spawn(async move {
            let (id, verb) = (operation.id.clone(), operation.verb());
            match edge.respond(operation, response.to_string().into_bytes()).await {
                Ok(()) => {}
                // The program that asked does not wait for an answer.
                Err(error) if error.is_unexecutable() => {
                    tracing::debug!(id, ?verb, %error, "a response has no receiver");
                }
                Err(error) => {
                    tracing::warn!(id, ?verb, %error, "the edge did not accept a response");
                }
            }
        });
    }

    /// Brings the set of workers, and their assignments, in line with the desired state.
    fn reconcile(&mut self) {
        let stops = self.shutdown.is_some() || self.shared.cancel.is_cancelled();
        if stops || !self.has_recovered {
            return;
        }
        self.set_runtime_classes();
        let desired = self.desired.pods();
        let uids = desired.iter().map(|(key, pod)| (key.clone(), pod.uid.clone())).collect();
        let workers = self.workers.iter().map(|(uid, worker)| (uid.clone(), worker.pod.clone()));
        let found = self.shared.store.pods();
        let complete = self.desired.completeness();
        let changes = worker_set::changes(&uids, &workers.collect(), &found, &complete);
        self.update_assignments();
        let traces = std::mem::take(&mut self.traces);
        let mut added = Vec::new();
        for change in changes {
            match change {
                WorkerChange::Add(key) => added.push(key),
                WorkerChange::Remove(uid) => {
                    if let Some(worker) = self.workers.get(&uid) {
                        worker.assignments.send_if_modified(|assignment| {
                            assignment.trace =
                                traces.of(&worker.pod.key).or(assignment.trace.take());
                            std::mem::replace(&mut assignment.is_desired, false)
                        });
                    }
                }
                WorkerChange::Orphan(record) => {
                    tracing::info!(pod = %record.key, uid = %record.uid, "an orphan is removed");
                    let assignment = Assignment {
                        pod: self.remembered(&record),
                        findings: Arc::default(),
                        objects: self.desired.objects().clone(),
                        failure: None,
                        resize: None,
                        is_desired: false,
                        shutdown: None,
                        trace: None,
                    };
                    self.spawn(record, assignment, Amounts::default(), false);
                }
            }
        }
        self.add(added, &found, &traces);
        self.admit_resizes();
        let claims = self.desired.claims();
        self.claims.send_if_modified(|sent| {
            let has_changed = *sent != claims;
            *sent = claims;
            has_changed
        });
    }

    /// Gives the runtime the classes of the view, before a worker asks for the handler of one.
    fn set_runtime_classes(&mut self) {
        let objects = self.desired.objects();
        if !self.runtime_classes_of.same(objects) {
            self.runtime_classes_of = objects.clone();
            self.shared.runtime.set_runtime_classes(objects.runtime_classes());
        }
    }

    /// Sends changed objects to the workers of desired pods.
    fn update_assignments(&mut self) {
        let objects = self.desired.objects();
        let can_resize = self.shared.runtime.features().resize;
        for (uid, worker) in &mut self.workers {
            let desired = self.desired.pods().get(&worker.pod.key).filter(|pod| pod.uid == *uid);
            let Some(desired) = desired else { continue };
            let is_same = worker.desired.same(&desired.pod);
            worker.assignments.send_if_modified(|assignment| {
                if (is_same && assignment.objects.same(objects)) || !assignment.is_desired {
                    return false;
                }
                let trace = self.traces.of_pod(&worker.pod.key, &desired.pod);
                assignment.trace = trace.or(assignment.trace.take());
                if !is_same {
                    let kept = can_resize.then(|| kept_resources(&assignment.pod, &desired.pod));
                    worker.resized = kept.flatten();
                    worker.desired = desired.pod.clone();
                    // Other resources are admitted first: no status has the new generation without a word of them.
                    if worker.resized.is_none() {
                        assignment.pod = desired.pod.clone();
                        assignment.resize = None;
                    }
                }
                assignment.findings = desired.findings.clone();
                assignment.objects = objects.clone();
                true
            });
        }
    }

    /// What the node has for pods.
    fn room(&self) -> Room {
        Room { pods: self.shared.settings.pods_max.into(), amounts: self.shared.allocatable }
    }

    /// Gives desired pods their workers. Pods that were here before come first: a new pod is admitted
    /// only if the node has room for it besides them.
    fn add(&mut self, keys: Vec<ResourceKey>, found: &[PodRecord], traces: &ChangeTraces) {
        let (mut adopted, mut new) = (Vec::new(), Vec::new());
        for key in keys {
            let Some(desired) = self.desired.pods().get(&key) else { continue };
            match found.iter().find(|record| record.uid == desired.uid) {
                Some(record) => {
                    // A record that was recovered does not state its origin.
                    let record = PodRecord { is_static: desired.is_static, ..record.clone() };
                    adopted.push((record, desired.clone()));
                }
                None => {
                    let pod = desired.pod.decode();
                    let record = PodRecord::of(&key, &desired.uid, &pod, Timestamp::now());
                    let (is_static, seen_in_boot) = (desired.is_static, BootTime::now());
                    let record = PodRecord { is_static, seen_in_boot, ..record };
                    new.push((record, desired.clone()));
                }
            }
        }
        let mut critical = Vec::new();
        for (record, desired) in adopted {
            let status = self.shared.store.status(&record.uid).unwrap_or_default();
            let has_ended = status::outcome(&status).is_some();
            let failure = AdmissionFailure::of_status(&status);
            let mut assignment = self.assignment(&record, &desired, failure, traces);
            let can_resize = self.shared.runtime.features().resize;
            let stated = can_resize.then(|| stated_resources(&desired.pod, &status)).flatten();
            assignment.pod = stated.clone().unwrap_or(assignment.pod);
            let pod = assignment.pod.decode();
            let requests = self.requests(&pod);
            let worker = self.spawn(record, assignment, requests, has_ended);
            worker.ports = ports_of(&pod);
            (worker.desired, worker.resized) = (desired.pod, stated);
            if pod::is_critical(&pod) && worker.takes_room() {
                critical.push(pod);
            }
        }
        let room = self.room();
        let mut taken = Load::default();
        let present = self.workers.values().filter(|worker| worker.takes_room());
        present.for_each(|worker| taken.add(worker.requests));
        // Pods that were leaving their places when the pod worker ended go on doing so.
        for pod in critical {
            let excess = excess(&taken, &room);
            if excess != Missing::default() {
                self.preempt(&pod, excess, &mut taken);
            }
        }
        for (record, desired) in new {
            let pod = desired.pod.decode();
            let requests = self.requests(&pod);
            let pressures = self.pressures.as_ref().map(|pressures| *pressures.borrow());
            let admitted = pressures.map_or(Ok(()), |it| admit_under_pressure(&pod, it));
            let admitted = admitted.and_then(|()| admit(requests, &taken, &room));
            let present = self.workers.values().filter(|worker| worker.takes_room());
            let (ports, taken_ports) = (ports_of(&pod), present.flat_map(|worker| &worker.ports));
            let admitted = admitted.and_then(|()| admit_ports(&ports, taken_ports));
            let failure = admitted.err();
            let failure = failure.filter(|failure| {
                let missing = missing(requests, &taken, &room);
                !failure.reason.is_of_room() || !self.preempt(&pod, missing, &mut taken)
            });
            // The node's own pods have room: a failure is final, and no cloud would make another one.
            let failure = failure.filter(|_| !record.is_static);
            match &failure {
                None => taken.add(requests),
                Some(AdmissionFailure { message, .. }) => {
                    tracing::warn!(pod = %record.key, %message, "a pod fails");
                }
            }
            let assignment = self.assignment(&record, &desired, failure, traces);
            self.spawn(record, assignment, requests, false).ports = ports;
        }
    }

    /// Makes room for a critical pod: others go, and it need not wait for their ends. Returns whether it has room.
    fn preempt(&mut self, critical: &Pod, missing: Missing, taken: &mut Load) -> bool {
        if !pod::is_critical(critical) {
            return false;
        }
        let candidates = self.workers.iter().filter(|(_, worker)| worker.takes_room());
        let candidates = candidates.filter_map(|(uid, worker)| {
            let pod = worker.assignments.borrow().pod.decode();
            let gives = given(1, worker.requests);
            let candidate = Candidate { pod: uid.clone(), class: QosClass::of(&pod), gives };
            may_preempt(critical, &pod).then_some(candidate)
        });
        let Some(going) = victims(missing, candidates.collect()) else { return false };
        let senders = going.iter().filter_map(|uid| Some(self.workers.get(uid)?.signals.clone()));
        let senders: Vec<_> = senders.collect();
        let permits: Result<Vec<_>, _> =
            senders.iter().map(|sender| sender.try_reserve()).collect();
        // A worker with a full inbox keeps its place, and so do the others.
        let Ok(permits) = permits else { return false };
        for (uid, permit) in going.iter().zip(permits) {
            let Some(worker) = self.workers.get_mut(uid) else { continue };
            permit.send(Box::new(Signal::Evict {
                reason: FailReason::Preempted,
                message: PREEMPTED.to_owned(),
                within: Duration::MAX,
                signal: None,
            }));
            tracing::warn!(pod = %worker.pod.key, "a pod leaves its place to a critical one");
            worker.is_preempted = true;
            taken.remove(worker.requests);
        }
        true
    }

    /// What a pod takes of the machine: nothing, where no process runs for it.
    fn requests(&self, pod: &Pod) -> Amounts {
        if self.shared.runtime.features().commands { pod_requests(pod) } else { Amounts::default() }
    }

    /// The first assignment of a desired pod.
    fn assignment(
        &self,
        record: &PodRecord,
        desired: &DesiredPod,
        failure: Option<AdmissionFailure>,
        traces: &ChangeTraces,
    ) -> Assignment {
        Assignment {
            pod: desired.pod.clone(),
            findings: desired.findings.clone(),
            objects: self.desired.objects().clone(),
            failure,
            resize: None,
            is_desired: true,
            shutdown: None,
            trace: traces.of(&record.key),
        }
    }

    fn spawn(
        &mut self,
        record: PodRecord,
        assignment: Assignment,
        requests: Amounts,
        has_ended: bool,
    ) -> &mut WorkerHandle {
        let uid = record.uid.clone();
        let pod = WorkedPod { key: record.key.clone(), is_static: record.is_static };
        let desired = assignment.pod.clone();
        let (assignments, assigned) = watch::channel(assignment);
        let (signals, inbox) = mpsc::channel(SIGNALS_MAX);
        let shared = self.shared.clone();
        let has_ended = Arc::new(AtomicBool::new(has_ended));
        let ended = has_ended.clone();
        let mut worker = Worker::new(record, shared, assigned, signals.clone(), inbox, ended);
        let task = self.tasks.spawn(async move { worker.run().await });
        self.uids.insert(task.id(), uid.clone());
        let handle = WorkerHandle {
            pod,
            requests,
            ports: Vec::new(),
            desired,
            resized: None,
            assignments,
            has_ended,
            is_preempted: false,
            signals,
        };
        self.workers.entry(uid).insert_entry(handle).into_mut()
    }

    /// What is on the disk of a pod whose object is gone or not known yet.
    fn remembered(&self, record: &PodRecord) -> CompressedObject<Pod> {
        let ending = self.shared.store.ending(&record.uid);
        let ending = ending.and_then(|pod| CompressedObject::encode(&pod).ok());
        ending.unwrap_or_else(|| {
            CompressedObject::encode(&record.object()).expect("the object contains no time")
        })
    }

    /// Ends every pod, and nothing else is done.
    pub(super) fn end(&mut self, ending: Ending) {
        let Ending { within, takes_volumes_back } = ending;
        let drivers = self.shared.runtime.drivers().filter(|_| takes_volumes_back);
        let records = self.shared.store.pods().into_iter();
        let users: Vec<PodRecord> = records
            .filter(|pod| drivers.is_some_and(|drivers| drivers.has_volumes(&pod.uid)))
            .collect();
        if users.is_empty() {
            return self.stop(within);
        }
        let now = Instant::now();
        self.shutdown = Some(now + within);
        self.end_unworked(users.clone(), now, within);
        self.next_end = Some(NextEnd { within, users });
    }

    /// Ends the pods whose turn has come, once the volumes of those before them are taken back. Returns whether there are any.
    async fn end_next(&mut self) -> bool {
        let Some(NextEnd { within, users }) = self.next_end.take() else { return false };
        take_volumes_back(&self.shared.runtime, &users).await;
        self.stop(within);
        true
    }

    /// Ends every pod within its own grace period, but at most `grace`, because the machine stops.
    /// This includes pods on the machine that the edge's view has not named yet.
    pub(super) fn stop(&mut self, grace: Duration) {
        let now = Instant::now();
        self.shutdown = Some(now + grace);
        for worker in self.workers.values() {
            worker.assignments.send_modify(|assignment| {
                let own_grace = pod::grace(&assignment.pod.decode());
                assignment.shutdown = Some(now + grace.min(own_grace));
            });
        }
        self.end_unworked(self.shared.store.pods(), now, grace);
    }

    /// Gives each of these pods a worker that ends it, unless it has a worker.
    fn end_unworked(&mut self, records: Vec<PodRecord>, now: Instant, grace: Duration) {
        for record in records {
            if self.workers.contains_key(&record.uid) {
                continue;
            }
            let assignment = Assignment {
                pod: self.remembered(&record),
                findings: Arc::default(),
                objects: self.desired.objects().clone(),
                failure: None,
                resize: None,
                is_desired: true,
                shutdown: Some(now + grace.min(record.grace())),
                trace: None,
            };
            self.spawn(record, assignment, Amounts::default(), false);
        }
    }
}

fn ports_of(pod: &Pod) -> Vec<HostPort> {
    pod.spec.as_ref().map(host_ports).unwrap_or_default()
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
