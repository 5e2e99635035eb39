//! The task of the sink: it collects what may have changed, asks for the plan, sends requests and takes
//! their answers. The decisions are in `plan`, `queue`, `lease` and `pace`.

mod foreign_statuses;
mod mirroring;
mod renewals;

use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::time::Duration;

use headwater_controller::{
    ChangeSubscription, NodePresence, Picture, PictureChange, Progress, SinkContext,
};
use headwater_event::{EdgeStart, NodeName, ResourceKey, WriterEpoch};
use headwater_telemetry::error_chain;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use self::foreign_statuses::StatusScan;
use self::renewals::RenewalDone;
use super::answer::{Answer, send, unsendable};
use super::consequence::{Consequence, SentRequest, note_answer};
use super::desired::{PodPicture, Unreadable, desired_node, picture_of_node, picture_of_pod};
use super::draft::{RequestDraft, node_request, pod_request, shown};
use super::event_lane::{self, EventLane};
use super::lease::Leases;
use super::memory::{ObjectMemory, Purpose};
use super::mirrors::Mirrors;
use super::pace::Pace;
use super::plan::{Facts, NodeInputs, Registration, Step, plan_node, plan_pod};
use super::queue::Queue;
use super::troubles::Troubles;
use super::{KubernetesSink, SinkDependencies};
use crate::access::Connection;
use crate::cluster_view::{ClusterView, ObjectId};
use crate::digest::Digest;
use crate::kind::Kind;
use crate::node_object::meets;
use crate::offline::OfflinePolicy;

/// How often the presence of the nodes is looked at: it ends without an event.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The nodes that are looked at each time.
const LOOKS_MAX: usize = 1_000;

/// The most objects that are compared before other events are taken: some milliseconds.
const COMPARED_MAX: usize = 256;

/// Nodes read at once from the picture.
const NODES_PAGE: usize = 1024;

/// The pause before a picture that could not be read is read again.
const REREAD_MS: u64 = 1_000;

/// See the module.
pub(super) struct SinkRun {
    connection: Connection,
    selector: String,
    view: ClusterView,
    dependencies: SinkDependencies,
    picture: Picture,
    progress: watch::Receiver<Progress>,
    /// The epoch in which this controller writes.
    epoch: Option<WriterEpoch>,
    changes: Option<ChangeSubscription>,
    queue: Queue,
    memories: HashMap<ObjectId, ObjectMemory>,
    /// The presence of each node with a Node or a report, as it was last looked at.
    presence: HashMap<NodeName, NodePresence>,
    /// The static pods that the nodes state.
    mirrors: Mirrors,
    /// The policy in the annotation of each Node that has one.
    policies: HashMap<NodeName, OfflinePolicy>,
    /// The node after which the next ones are looked at.
    looked_at: Option<NodeName>,
    status_scan: StatusScan,
    leases: Leases,
    troubles: Troubles,
    shown_troubles: Troubles,
    calls: JoinSet<CallEnd>,
    renewals: JoinSet<RenewalDone>,
    events: EventLane,
    pace: Pace,
    began: Instant,
}

/// A request for an object.
struct Call {
    id: ObjectId,
    node: NodeName,
    purpose: Purpose,
    /// What it writes, and the version of the object that it was planned for.
    content: Digest,
    order: Option<u64>,
    /// Where it creates a Node.
    start: EdgeStart,
}

/// The end of a request for an object.
struct CallEnd {
    call: Call,
    answer: Answer,
}

impl SinkRun {
    pub(super) fn new(sink: KubernetesSink, context: SinkContext) -> Self {
        let KubernetesSink { connection, selector, view, dependencies } = sink;
        let picture = context.picture.clone();
        let events = EventLane::new(connection.clone(), &dependencies, view.clone(), picture);
        Self {
            connection,
            selector,
            view,
            dependencies,
            picture: context.picture,
            progress: context.progress,
            epoch: None,
            changes: None,
            queue: Queue::default(),
            memories: HashMap::new(),
            presence: HashMap::new(),
            mirrors: Mirrors::default(),
            policies: HashMap::new(),
            looked_at: None,
            status_scan: StatusScan::default(),
            leases: Leases::default(),
            troubles: Troubles::default(),
            shown_troubles: Troubles::default(),
            calls: JoinSet::new(),
            renewals: JoinSet::new(),
            events,
            pace: Pace::default(),
            began: Instant::now(),
        }
    }

    /// Acts until it is dropped, or the controller ends.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.view.subscribe();
        loop {
            self.take_role();
            self.take_view_changes();
            self.renew();
            self.write();
            self.write_events();
            let wake = self.next_wake();
            tokio::select! {
                // In this order, so that a run in a simulation is the same again. What is rare comes first, so
                // that no stream of changes keeps it waiting.
                biased;
                _ = ticks.tick() => {
                    let now_ms = self.now_ms();
                    self.pace.look(now_ms);
                    self.events.look(now_ms);
                    self.look_at_presence();
                    self.look_at_statuses();
                    self.show();
                }
                changed = self.progress.changed() => if changed.is_err() {
                    return;
                },
                Some(done) = self.renewals.join_next() => self.end_renewal(done),
                Some(end) = self.calls.join_next() => self.end_call(end),
                Some(end) = self.events.next_end() => self.end_event(end),
                change = next_change(&mut self.changes) => match change {
                    Some(change) => self.take_picture_change(change),
                    None => return,
                },
                () = self.view.changed() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins to write when this controller has become the writer, and ends it when it is not any more.
    fn take_role(&mut self) {
        let (epoch, is_writer) = {
            let progress = self.progress.borrow_and_update();
            (progress.epoch, progress.reconciled)
        };
        if !is_writer {
            if self.epoch.take().is_some() {
                self.changes = None;
                self.queue = Queue::default();
                self.events.clear();
            }
            return;
        }
        if self.epoch == Some(epoch) {
            return;
        }
        // Another controller may have written since.
        self.epoch = Some(epoch);
        self.memories.clear();
        self.mirrors = Mirrors::default();
        self.queue = Queue::default();
        self.events.clear();
        // The watches show the objects: only reports and presence matter here.
        self.changes = Some(self.picture.report_changes());
        self.mark_everything();
    }

    /// Marks every object.
    fn mark_everything(&mut self) {
        self.events.mark_everything();
        let mut ids: Vec<ObjectId> = Vec::new();
        {
            let view = self.view.lock();
            ids.extend(view.pods().cloned().map(ObjectId::Pod));
            ids.extend(view.nodes().cloned().map(ObjectId::Node));
        }
        let mut after = None;
        loop {
            match self.picture.reported_nodes(after.as_ref(), NODES_PAGE) {
                Ok(nodes) => {
                    let is_last = nodes.len() < NODES_PAGE;
                    after = nodes.last().cloned();
                    ids.extend(nodes.into_iter().map(ObjectId::Node));
                    if is_last {
                        break;
                    }
                }
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "the picture cannot be read; trying again");
                    // As if this controller became the writer anew.
                    self.epoch = None;
                    break;
                }
            }
        }
        // In an order, so that a run in a simulation is the same again. The latest comes first: the Nodes,
        // without which no pod can be written.
        ids.sort_by(|a, b| b.cmp(a));
        ids.into_iter().for_each(|id| self.queue.mark(id));
    }

    fn take_view_changes(&mut self) {
        for id in self.view.take_changes() {
            if let ObjectId::Node(node) = &id {
                let policy = self.view.lock().node(node).map(|node| node.offline);
                if policy.is_some() {
                    self.note_registration(node);
                }
                self.note_policy(node, policy.flatten());
                self.look_at(node);
            }
            if let ObjectId::Pod(pod) = &id {
                self.note_mirror(pod);
            }
            self.mark(id);
        }
    }

    fn take_picture_change(&mut self, change: PictureChange) {
        let keys = match change {
            PictureChange::Everything => return self.mark_everything(),
            PictureChange::Keys(keys) => keys,
        };
        for key in keys {
            match key.kind() {
                "pod" => {
                    // A pod that the watch has not shown yet is marked when it does.
                    let is_shown = self.view.lock().pod(&key).is_some();
                    if is_shown {
                        self.queue.mark(ObjectId::Pod(key));
                    }
                }
                "node" => {
                    if let Ok(node) = key.name().parse() {
                        self.look_at(&node);
                        self.queue.mark(ObjectId::Node(node));
                    }
                }
                "event" => {
                    let now_ms = self.now_ms();
                    self.events.mark(&key, now_ms);
                }
                _ => {}
            }
        }
    }

    fn mark(&mut self, id: ObjectId) {
        if self.epoch.is_some() {
            self.queue.mark(id);
        }
    }

    /// Notes the policy of a Node. What is to be done about its pods changes with it.
    fn note_policy(&mut self, node: &NodeName, policy: Option<OfflinePolicy>) {
        let before = match policy {
            Some(policy) => self.policies.insert(node.clone(), policy),
            None => self.policies.remove(node),
        };
        if before != policy {
            self.mark_pods_of(node);
        }
    }

    fn mark_pods_of(&mut self, node: &NodeName) {
        let pods: Vec<ResourceKey> = self.view.lock().pods_of(node).cloned().collect();
        pods.into_iter().for_each(|pod| self.mark(ObjectId::Pod(pod)));
    }

    /// Notes that the Node of a node is there. A standby does so too: it may take over.
    fn note_registration(&mut self, node: &NodeName) {
        if let Ok(Some(reported)) = self.picture.reported_node(node) {
            self.register(node, reported.start);
        }
    }

    /// Notes that the Node of a node is there while its edge runs since `start`. Returns whether that is noted.
    fn register(&self, node: &NodeName, start: EdgeStart) -> bool {
        let noted = self.picture.note_registration(node, start);
        if let Err(error) = &noted {
            let error = error_chain(error);
            tracing::warn!(%node, error, "it cannot be noted that the node has a Node");
        }
        noted.is_ok()
    }

    /// Looks at the presence of the next nodes, all of them in turn. Most changes have an event; what is
    /// written about a node looks at its presence first.
    fn look_at_presence(&mut self) {
        let shown: BTreeSet<NodeName> = self.view.lock().nodes().cloned().collect();
        let nodes: BTreeSet<&NodeName> = shown.iter().chain(self.presence.keys()).collect();
        let after = self.looked_at.take();
        let next =
            nodes.into_iter().filter(|node| after.as_ref().is_none_or(|after| *node > after));
        let next: Vec<NodeName> = next.take(LOOKS_MAX).cloned().collect();
        self.looked_at = next.last().filter(|_| next.len() == LOOKS_MAX).cloned();
        for node in next {
            if !self.look_at(&node).is_present && !shown.contains(&node) {
                self.presence.remove(&node);
            }
        }
    }

    /// Looks at the presence of a node. What may be written of it changes with it.
    fn look_at(&mut self, node: &NodeName) -> NodePresence {
        let presence = self.picture.node_presence(node);
        let is_shown = self.view.lock().node(node).is_some();
        let now_ms = self.now_ms();
        if presence.is_present && is_shown {
            self.leases.add(node, now_ms);
        } else {
            self.leases.remove(node);
        }
        if self.presence.insert(node.clone(), presence) != Some(presence) {
            self.mark_pods_of(node);
            let id = ObjectId::Node(node.clone());
            if let Some(memory) = self.memories.get_mut(&id) {
                memory.forget_step();
            }
            self.mark(id);
        }
        presence
    }

    /// When something is due without an event.
    fn next_wake(&self) -> Instant {
        let (is_writing, has_room) = (self.may_write(), self.has_room());
        if is_writing && has_room && self.queue.is_ready() {
            return Instant::now();
        }
        let of_queue = self.queue.next_due_ms().filter(|_| is_writing);
        let of_leases = self.leases.next_due_ms().filter(|_| has_room);
        let of_events = self.events.next_due_ms().filter(|_| has_room && self.may_write_events());
        let due_ms = [of_queue, of_leases, of_events].into_iter().flatten().min();
        // The ticks wake it before an hour is over.
        self.began
            + due_ms
                .map_or(self.began.elapsed() + Duration::from_secs(3_600), Duration::from_millis)
    }

    fn may_write(&self) -> bool {
        self.epoch.is_some() && self.progress.borrow().may_write(Instant::now())
    }

    /// Whether one more request may be sent.
    fn has_room(&self) -> bool {
        let in_flight = self.calls.len() + self.renewals.len() + self.events.in_flight();
        self.pace.has_room(in_flight)
    }

    /// Whether Events may be written: they come last.
    fn may_write_events(&self) -> bool {
        self.may_write() && !self.queue.has_waiting()
    }

    /// Reads and sends Events that are due.
    fn write_events(&mut self) {
        let now_ms = self.now_ms();
        if self.may_write_events() {
            self.events.read(now_ms);
        }
        while self.may_write_events()
            && self.has_room()
            && self.events.write(now_ms, &mut self.troubles)
        {}
    }

    fn end_event(&mut self, end: Result<event_lane::CallEnd, tokio::task::JoinError>) {
        let now_ms = self.now_ms();
        if let Some(pause_ms) = self.events.end(end, now_ms, &mut self.troubles) {
            self.throttle(now_ms, pause_ms);
        }
    }

    /// The API server has too much to do, and wants to be left alone for a time.
    fn throttle(&mut self, now_ms: u64, pause_ms: u64) {
        self.pace.throttle(now_ms);
        self.events.pause(now_ms, pause_ms);
    }

    /// Compares objects and sends the requests that follow.
    fn write(&mut self) {
        for _ in 0..COMPARED_MAX {
            if !self.may_write() || !self.has_room() {
                break;
            }
            let now_ms = self.now_ms();
            let Some(id) = self.queue.take(now_ms) else { break };
            let compared = match &id {
                ObjectId::Node(node) => self.compare_node(node.clone()),
                ObjectId::Pod(pod) => self.compare_pod(pod.clone()),
                ObjectId::Mirror(pod) => {
                    self.compare_mirror(pod);
                    Ok(())
                }
            };
            if let Err(Unreadable(error)) = compared {
                tracing::warn!(error, "the picture cannot be read; trying again");
                self.queue.wait(id, now_ms + REREAD_MS);
            }
        }
    }

    fn compare_pod(&mut self, pod: ResourceKey) -> Result<(), Unreadable> {
        let id = ObjectId::Pod(pod.clone());
        let (view, of_node) = {
            let objects = self.view.lock();
            let view = objects.pod(&pod).cloned();
            let node = view.as_ref().and_then(|view| objects.node(&view.node));
            (view, node.and_then(|node| node.offline))
        };
        let Some(view) = view else {
            self.forget(&id);
            return Ok(());
        };
        let now_ms = self.now_ms();
        let memory = self.memories.entry(id.clone()).or_default();
        // Another pod of this name may be on a node with the same numbers.
        memory.set_uid(&view.uid, now_ms);
        let PodPicture { desired, report, unfit } =
            picture_of_pod(&self.picture, &pod, &view, memory.report)?;
        memory.report = report.as_ref().map(|report| report.known);
        match unfit {
            Some(unfit) => {
                self.troubles.refuse(&id, &unfit.to_string());
            }
            None if desired.status.is_some_and(|now| now.digest != view.status) => {}
            None => self.troubles.clear(&id),
        }
        let policy = view.offline.or(of_node).unwrap_or(self.dependencies.offline);
        let facts = self.facts(&id, &view.uid, &view.node);
        let step = plan_pod(&desired, &view, policy, &facts);
        self.take_step(id, &view.node, step, |purpose| pod_request(purpose, &pod, report, &view));
        Ok(())
    }

    fn compare_node(&mut self, node: NodeName) -> Result<(), Unreadable> {
        // What is reported may be older than what the API shows. The fold marks everything once it has caught up.
        let has_caught_up = self.picture.has_caught_up(&node);
        if !has_caught_up.map_err(|error| Unreadable(error_chain(&error)))? {
            return Ok(());
        }
        let id = ObjectId::Node(node.clone());
        let (view, has_listed, history) = {
            let objects = self.view.lock();
            (objects.node(&node).cloned(), objects.has_listed_nodes(), objects.histories())
        };
        let Some(reported) = picture_of_node(&self.picture, &node)? else {
            self.set_static_pods(&node, None);
            self.forget(&id);
            return Ok(());
        };
        let uid = view.as_ref().map_or("", |view| &*view.uid);
        let (report, start) = (reported.id, reported.start);
        let order = view.as_ref().and_then(|view| view.order);
        let inputs =
            |presence| order.map(|order| NodeInputs { report, start, order, history, presence });
        let facts = self.facts(&id, uid, &node);
        let known = inputs(facts.presence);
        match known.and_then(|inputs| facts.memory.known_step(inputs, facts.now_ms)) {
            Some(Step::Wait { until_ms }) => {
                self.queue.wait(id, until_ms);
                return Ok(());
            }
            Some(_) => return Ok(()),
            None => {}
        }
        let desired = match desired_node(&reported, &node, self.dependencies.kubelet.as_ref()) {
            Ok(desired) => desired,
            Err(unfit) => {
                self.troubles.refuse(&id, &unfit.to_string());
                return Ok(());
            }
        };
        self.troubles.set_refused_labels(&node, &desired.owned.refused_labels);
        match &desired.owned.static_pods {
            Ok(stated) => self.set_static_pods(&node, stated.clone()),
            Err(unfit) => tracing::warn!(%node, %unfit, "the static pods of a node are not shown"),
        }
        let is_registered = view.is_some() && self.register(&node, desired.start);
        let last = self.picture.registration(&node);
        let last = last.map_err(|error| Unreadable(error_chain(&error)))?;
        let registration = Registration { is_listed: has_listed, last };
        let facts = self.facts(&id, uid, &node);
        let step = plan_node(&desired, view.as_ref(), registration, &facts);
        let inputs = inputs(facts.presence).filter(|_| is_registered);
        if let (Some(inputs), Some(memory)) = (inputs, self.memories.get_mut(&id)) {
            memory.note_step(inputs, step);
        }
        let now_s = (self.dependencies.wall_clock)() / 1000;
        let selector = self.selector.clone();
        self.take_step(id, &node, step, |purpose| {
            node_request(purpose, &node, &desired, view.as_ref(), &selector, now_s)
        });
        Ok(())
    }

    fn facts(&mut self, id: &ObjectId, uid: &str, node: &NodeName) -> Facts<'_> {
        let presence = self.look_at(node);
        let now_ms = self.now_ms();
        let memory = self.memories.entry(id.clone()).or_default();
        memory.set_uid(uid, now_ms);
        Facts { presence, memory, now_ms }
    }

    /// Forgets an object that is not there.
    fn forget(&mut self, id: &ObjectId) {
        self.memories.remove(id);
        self.troubles.clear(id);
    }

    /// Does what was planned for an object.
    fn take_step(
        &mut self,
        id: ObjectId,
        node: &NodeName,
        step: Step,
        request: impl FnOnce(Purpose) -> Option<RequestDraft>,
    ) {
        let purpose = match step {
            Step::Rest => return,
            Step::Wait { until_ms } => return self.queue.wait(id, until_ms),
            Step::Call(purpose) => purpose,
        };
        let Some(planned) = request(purpose) else { return };
        if !self.queue.start(&id, node) {
            return;
        }
        let RequestDraft { request, content, order, start } = planned;
        let call = Call { id, node: node.clone(), purpose, content, order, start };
        let is_of_node = !matches!(purpose, Purpose::CreateNode | Purpose::Tolerations);
        let request = request.build().map(|request| {
            if is_of_node { self.dependencies.act_as.about(node, request) } else { request }
        });
        let connection = self.connection.clone();
        let part = purpose.answer_part();
        self.calls.spawn(async move {
            let answer = match request {
                Ok(request) => send(&connection, request, part).await,
                Err(error) => unsendable(&error),
            };
            CallEnd { call, answer }
        });
    }

    fn end_call(&mut self, end: Result<CallEnd, tokio::task::JoinError>) {
        let CallEnd { call, answer } = match end {
            Ok(end) => end,
            Err(error) => {
                // The object stays in flight; a new epoch compares it again.
                tracing::error!(%error, "a request to the API server ended by itself");
                return;
            }
        };
        self.dependencies.metrics.answered(call.purpose, &answer);
        let now_ms = self.now_ms();
        let Call { id, node, purpose, content, order, start } = call;
        if !matches!(answer, Answer::Failed(_)) {
            self.troubles.set_unanswered(None);
        }
        let mut now_shown = content;
        if let Answer::Done(object) = &answer {
            if purpose == Purpose::CreateNode {
                self.register(&node, start);
            }
            if let Some(object) = object {
                let kind = if matches!(id, ObjectId::Node(_)) { Kind::Node } else { Kind::Pod };
                // The watch shows no Node that does not meet the selector.
                let is_new = purpose == Purpose::CreateNode
                    && meets(&self.selector, &object.value()["metadata"]["labels"]);
                now_shown = shown(purpose, content, self.view.answered(kind, object, is_new));
            }
        }
        let sent = SentRequest { purpose, content, order, shown: now_shown };
        let memory = self.memories.entry(id.clone()).or_default();
        let consequence = note_answer(memory, sent, &answer, now_ms);
        if consequence.shows_the_right() {
            self.troubles.allow(purpose);
        }
        match consequence {
            Consequence::None => {}
            Consequence::Written => self.troubles.clear(&id),
            Consequence::Refused(reason) => {
                if self.troubles.refuse(&id, &reason) {
                    tracing::warn!(object = ?id, reason, "the API server refuses what a node reports");
                }
            }
            Consequence::Forbidden(message) => self.troubles.forbid(purpose, message),
            Consequence::Throttled { after_ms } => self.throttle(now_ms, after_ms),
            Consequence::Unanswered(reason) => self.troubles.set_unanswered(Some(reason)),
        }
        if self.epoch.is_some() {
            self.queue.end(id);
        }
    }

    /// Shows metrics and troubles.
    fn show(&mut self) {
        let failing = self.memories.values().filter(|memory| memory.failures() > 0).count();
        self.dependencies.metrics.behind(self.queue.len().max(failing));
        if self.troubles != self.shown_troubles {
            self.shown_troubles = self.troubles.clone();
            self.dependencies.troubles.send_replace(self.troubles.sentences());
        }
    }
}

/// The next change of the picture; never without a subscription.
async fn next_change(changes: &mut Option<ChangeSubscription>) -> Option<PictureChange> {
    match changes {
        Some(changes) => changes.next().await,
        None => pending().await,
    }
}
