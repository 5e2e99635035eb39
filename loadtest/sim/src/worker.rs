//! A node's pod worker: edged's own worker set and planner over a runtime that is only pretended.
//!
//! What it does it does from the local API alone. Everything that it starts, ends and reports is
//! checked against what was durable at the edge (I8).

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use headwater_check::durable;
use headwater_edged::plan::{
    Action, ContainerFacts, Containers, Fate, FinalStep, PodFacts, Run, Sandbox, Stopping, outcome,
    plan,
};
use headwater_edged::pod::{PodRecord, PodUid, grace, is_deleting};
use headwater_edged::worker_set::{self, Completeness, WorkedPod, WorkerChange};
use headwater_event::{EntryKey, NodeName, ResourceKey, Seq, StreamId};
use headwater_object::{Object, ObjectType};
use headwater_proto::local::meta_server::Meta;
use headwater_proto::local::operation::Verb;
use headwater_proto::local::operation_result::Outcome;
use headwater_proto::local::watch_event::Kind;
use headwater_proto::local::{Operation, WatchEvent, WatchRequest};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tonic::Request;

use crate::audit::Auditor;
use crate::disk::Durable;
use crate::frame::{Frame, lock};

/// How often it looks at its pods though nothing happened.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a start, an end, a question takes at most.
const STEP_MS_MAX: u64 = 50;

/// The pods that run on a machine. They outlive the worker and the edge, not the machine.
pub(crate) type Machine = Arc<Mutex<Pods>>;

/// See [`Machine`].
#[derive(Default)]
pub(crate) struct Pods {
    pub(crate) pods: BTreeMap<PodUid, Running>,
    /// The newest status of each pod that the edge accepted.
    pub(crate) reported: BTreeMap<ResourceKey, (PodUid, String)>,
}

/// A pod on a machine.
#[derive(Clone)]
pub(crate) struct Running {
    record: PodRecord,
    containers: Containers,
    /// How often a container of it began.
    begun: u64,
    deadline: Option<Instant>,
    is_discarded: bool,
    /// Whether the edge took the word that it has ended.
    has_asked: bool,
    is_wanted: bool,
}

/// A pod worker.
pub(crate) struct Worker<M> {
    pub(crate) frame: Frame,
    pub(crate) node: NodeName,
    pub(crate) meta: M,
    pub(crate) machine: Machine,
    pub(crate) durable: Arc<Mutex<Durable>>,
    pub(crate) auditor: Arc<Mutex<Auditor>>,
}

/// The view as the worker knows it.
#[derive(Default)]
struct View {
    pods: BTreeMap<ResourceKey, (PodUid, Arc<Pod>)>,
    listed: Option<BTreeSet<ResourceKey>>,
    is_complete: bool,
}

impl<M: Meta> Worker<M> {
    /// Works until it is dropped.
    pub(crate) async fn run(self) {
        let mut view = View::default();
        loop {
            let request = WatchRequest {
                subscriber: "edged".to_owned(),
                types: Vec::new(),
                namespace: String::new(),
            };
            if let Ok(events) = self.meta.watch(Request::new(request)).await {
                let mut events = pin!(events.into_inner());
                // Earlier reports may be lost with the edge's power.
                lock(&self.machine).reported.clear();
                loop {
                    match timeout(LOOK_EVERY, events.next()).await {
                        Ok(Some(Ok(event))) => self.take(&mut view, event),
                        Ok(_) => break,
                        Err(_) => {}
                    }
                    if view.listed.is_none() {
                        self.bring_about(&view).await;
                    }
                }
            }
            sleep(self.frame.delay(STEP_MS_MAX)).await;
        }
    }

    fn take(&self, view: &mut View, event: WatchEvent) {
        let kind = event.kind();
        match kind {
            Kind::Init => view.listed = Some(BTreeSet::new()),
            Kind::InitDone => {
                let listed = view.listed.take().unwrap_or_default();
                if event.complete {
                    view.pods.retain(|key, _| listed.contains(key));
                }
                view.is_complete = event.complete;
            }
            Kind::InitApply | Kind::Apply | Kind::Delete => {
                let Some(object) = event.object else { return };
                let Ok(key) = object.key.parse::<ResourceKey>() else { return };
                if kind == Kind::Delete {
                    self.check_gone(&key, &object.uid);
                    if key.kind() == "pod" {
                        view.pods.remove(&key);
                    }
                    return;
                }
                self.check_there(&key, &object.uid, &object.object);
                if let Some(listed) = &mut view.listed {
                    listed.insert(key.clone());
                }
                if key.kind() == "pod"
                    && let Ok(pod) = serde_json::from_slice::<Pod>(&object.object)
                    && let Ok(uid) = PodUid::try_from(object.uid)
                {
                    view.pods.insert(key, (uid, Arc::new(pod)));
                }
            }
            Kind::Operation | Kind::Unspecified => {}
        }
    }

    /// I8: the worker receives only what is durable.
    fn check_there(&self, key: &ResourceKey, uid: &str, object: &[u8]) {
        // The local API has put the resource version back.
        let value = serde_json::from_slice(object).expect("what was published is JSON");
        let object_type = ObjectType::named(key.kind()).expect("what was published has a type");
        let object = Object::of_cluster(object_type, value).expect("it is an object");
        let seen = (EntryKey::from(key.clone()), uid.to_owned(), object.payload_hash().0);
        let mut auditor = lock(&self.auditor);
        auditor.read();
        let durable: Vec<_> = lock(&self.durable).streams.values().filter_map(|h| h.at).collect();
        if !auditor.was_put(&seen, &durable) {
            drop(auditor);
            self.not_durable(format_args!("was notified of {key} {uid}"));
        }
    }

    fn check_gone(&self, key: &ResourceKey, uid: &str) {
        // An object that pods name may come back under the same UID, and one notification may have
        // both changes.
        if !matches!(key.kind(), "pod" | "service") {
            return;
        }
        let durable = lock(&self.durable);
        let entry = EntryKey::from(key.clone());
        let is_there = durable
            .streams
            .values()
            .any(|held| held.state.entries.get(&entry).is_some_and(|entry| entry.uid == uid));
        if is_there {
            self.not_durable(format_args!("was notified that {key} {uid} left"));
        }
    }

    fn not_durable(&self, what: impl std::fmt::Display) {
        let stream = StreamId::node(&self.node);
        let broken = durable::check(&self.node, &stream, "acted on", Seq(1), Seq::ZERO);
        let broken = broken.err().map(|broken| broken.to_string()).unwrap_or_default();
        self.frame.broken(format_args!("{broken}: the worker {what}, which is not durable"));
    }

    /// Makes the machine's pods what the view says.
    async fn bring_about(&self, view: &View) {
        let desired = view.pods.iter().map(|(key, (uid, _))| (key.clone(), uid.clone())).collect();
        let (workers, found) = {
            let machine = lock(&self.machine);
            let wanted = machine.pods.iter().filter(|(_, running)| running.is_wanted);
            let worked = |r: &Running| WorkedPod { key: r.record.key.clone(), is_static: false };
            let workers = wanted.map(|(uid, r)| (uid.clone(), worked(r))).collect();
            let found: Vec<_> = machine.pods.values().map(|r| r.record.clone()).collect();
            (workers, found)
        };
        let complete = Completeness { view: view.is_complete, ..Completeness::default() };
        for step in worker_set::changes(&desired, &workers, &found, &complete) {
            let mut machine = lock(&self.machine);
            match step {
                WorkerChange::Add(key) => {
                    let Some((uid, pod)) = view.pods.get(&key) else { continue };
                    let record = PodRecord::of(&key, uid, pod, Default::default());
                    let running = machine.pods.entry(uid.clone()).or_insert(Running {
                        record,
                        containers: Containers::new(),
                        begun: 0,
                        deadline: None,
                        is_discarded: false,
                        has_asked: false,
                        is_wanted: true,
                    });
                    running.is_wanted = true;
                }
                WorkerChange::Remove(uid) => {
                    if let Some(running) = machine.pods.get_mut(&uid) {
                        running.is_wanted = false;
                    }
                }
                WorkerChange::Orphan(_) => {}
            }
        }
        let pods: Vec<PodUid> = lock(&self.machine).pods.keys().cloned().collect();
        for uid in pods {
            self.work(view, &uid).await;
        }
    }

    /// The next steps of one pod.
    async fn work(&self, view: &View, uid: &PodUid) {
        let Some(mut running) = lock(&self.machine).pods.get(uid).cloned() else { return };
        let key = running.record.key.clone();
        let pod = view.pods.get(&key).filter(|(of, _)| of == uid).map(|(_, pod)| pod.clone());
        let is_outlived = view.pods.get(&key).is_some_and(|(of, _)| of != uid);
        if pod.is_none() && !view.is_complete && !is_outlived {
            return;
        }
        let now = Instant::now();
        let ends = pod.as_deref().is_none_or(is_deleting);
        let deadline = pod.as_deref().map_or(running.record.grace(), grace);
        let fate = match ends {
            false => Fate::Run,
            true => Fate::End {
                deadline: *running.deadline.get_or_insert(now + deadline),
                then: if pod.is_none() { FinalStep::CleanUp } else { FinalStep::AskDelete },
            },
        };
        let spec = pod.clone().unwrap_or_default();
        let ended = outcome(&spec, &running.containers);
        let planned = plan(&PodFacts {
            pod: &spec,
            fate,
            ended,
            sandbox: Sandbox::Unneeded,
            containers: &running.containers,
            is_discarded: running.is_discarded,
            is_final: false,
            resize_at: None,
            now,
        });
        let mut asks_delete = false;
        for action in planned.actions {
            match action {
                Action::Start(name) => {
                    self.frame.count("container started");
                    self.frame.note(format_args!("{} starts {key} {uid} {name}", self.node));
                    running.begun += 1;
                    let begun = ContainerFacts { run: Run::Running, ..ContainerFacts::default() };
                    running.containers.insert(name, ContainerFacts { started: true, ..begun });
                }
                Action::Terminate(name) | Action::Kill(name) | Action::PreStop(name) => {
                    self.frame.note(format_args!("{} ends {key} {uid} {name}", self.node));
                    if let Some(container) = running.containers.get_mut(&name) {
                        container.stopping = Some(Stopping::Terminated { since: now });
                        container.run = Run::Exited { code: 0, interrupted: false };
                    }
                }
                // The worker plans again at once, and asks.
                Action::Discard => (running.is_discarded, asks_delete) = (true, true),
                Action::AskDelete => asks_delete = true,
                Action::CleanUp => {
                    self.frame.note(format_args!("{} cleans up {key} {uid}", self.node));
                    lock(&self.machine).pods.remove(uid);
                    return;
                }
                Action::Leave
                | Action::Open
                | Action::Close
                | Action::Pull(_)
                | Action::Resize
                | Action::Refuse(_) => {}
            }
        }
        // Now and then a container fails, and is started anew by the next look.
        if !ends && !self.frame.is_calm() && self.frame.happens(30) {
            for container in running.containers.values_mut() {
                container.run = Run::Exited { code: 1, interrupted: false };
            }
        }
        let up = running.containers.values().any(|container| container.run == Run::Running);
        let status = json!({"phase": if up { "Running" } else { "Pending" }, "message": running.begun.to_string()});
        let has_asked = running.has_asked;
        lock(&self.machine).pods.insert(uid.clone(), running);
        if pod.is_none() {
            return;
        }
        self.report(&key, uid, status.to_string()).await;
        if asks_delete && !has_asked {
            let content = json!({"uid": uid.as_str()}).to_string();
            let is_taken = self.operate(Verb::Delete, key.to_string(), content).await;
            if let Some(running) = lock(&self.machine).pods.get_mut(uid) {
                running.has_asked = is_taken;
            }
        }
    }

    async fn report(&self, key: &ResourceKey, uid: &PodUid, status: String) {
        let reported = (uid.clone(), status);
        if lock(&self.machine).reported.get(key) == Some(&reported) {
            return;
        }
        let content = format!("{{\"uid\":\"{uid}\",\"status\":{}}}", reported.1);
        let resource = key.with_kind("podstatus").to_string();
        if self.operate(Verb::Update, resource, content).await {
            self.frame.count("status reported");
            lock(&self.machine).reported.insert(key.clone(), reported);
        }
    }

    async fn operate(&self, verb: Verb, resource: String, content: String) -> bool {
        let operation = Operation {
            id: String::new(),
            parent_id: String::new(),
            source: "edged".to_owned(),
            verb: verb.into(),
            resource,
            content: content.into(),
        };
        let answer = self.meta.operate(Request::new(operation)).await;
        matches!(answer.map(|answer| answer.into_inner().outcome), Ok(Some(Outcome::Done(_))))
    }
}
