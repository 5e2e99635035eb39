//! The world of one run: everything in it, what may befall it, and what must be true all the
//! while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use headwater_check::monotonic::Monotonic;
use headwater_check::{durable, isolation};
use headwater_event::{NodeName, Offset, Partition, ReportId, ReportKey, Seq, StreamId};
use headwater_log::{Log, MemoryLog, MemorySettings};
use headwater_session::message::{EdgeMessage, HubMessage, ReportsAcked, StreamProgress};
use headwater_store::Survival;
use headwater_view::PodStatusFold;
use tokio::time::sleep;

use crate::audit::Auditor;
use crate::cloud::{PresenceStream, SimController, SimHub, address};
use crate::cluster::Cluster;
use crate::disk::Durable;
use crate::edge::SimEdge;
use crate::frame::{Frame, START_MS, TEN_YEARS_MS, WallClock, lock};
use crate::network::{Inspect, MOMENT, Network};

/// Statuses of one node read at once: more than it has.
const STATUSES_MAX: usize = 1_000;

/// Within this a writer appends heads behind removals.
const HEADS_WITHIN_MS: u64 = 601_000;

const NODES: usize = 3;
const HUBS: usize = 2;

/// See the module.
pub(crate) struct World {
    pub(crate) frame: Frame,
    pub(crate) nodes: Vec<NodeName>,
    pub(crate) cluster: Cluster,
    pub(crate) downstream: MemoryLog,
    pub(crate) upstream: MemoryLog,
    log_clock: WallClock,
    partitions: u32,
    pub(crate) network: Network,
    pub(crate) hubs: Vec<SimHub>,
    pub(crate) controllers: Vec<SimController>,
    pub(crate) edges: Vec<SimEdge>,
    pub(crate) auditor: Arc<Mutex<Auditor>>,
    inspector: Arc<Inspector>,
    /// The stream of each hub to a controller.
    presence: Vec<Option<PresenceStream>>,
    monotonic: Vec<Monotonic>,
    /// How many writes each controller's picture had seen at the last look.
    pictured: Vec<Option<u64>>,
    /// Where each partition ended when weeks passed.
    settled: BTreeMap<Partition, Offset>,
    /// Whether the downstream log's end, or all of it, was lost.
    pub(crate) log_was_lost: bool,
    /// Whether it was its end.
    pub(crate) was_truncated: bool,
}

/// The node of an edge, and what is durable there.
type NodeDisk = (NodeName, Arc<Mutex<Durable>>);

/// Looks at what arrives.
struct Inspector {
    frame: Frame,
    auditor: Arc<Mutex<Auditor>>,
    edges: Mutex<BTreeMap<usize, NodeDisk>>,
    nodes: Vec<NodeName>,
}

impl World {
    /// A world in which everything is new and works.
    pub(crate) async fn new(frame: Frame) -> Self {
        let nodes: Vec<NodeName> =
            (0..NODES).map(|n| format!("n{n}").parse().expect("a plain name")).collect();
        let cluster = Cluster::new(&frame, &nodes);
        let partitions = 1 + u32::from(frame.happens(500));
        let settings = MemorySettings { partitions, start_ms: START_MS, ..Default::default() };
        let [downstream, upstream] = std::array::from_fn(|_| {
            let frame = frame.clone();
            MemoryLog::with_uuids(settings, move || frame.topic_uuid())
        });
        let auditor = Arc::new(Mutex::new(Auditor::new(&frame, &downstream, &upstream)));
        let inspector = Arc::new(Inspector {
            frame: frame.clone(),
            auditor: auditor.clone(),
            edges: Mutex::default(),
            nodes: nodes.clone(),
        });
        let network = Network::new(&frame, inspector.clone());
        let logs = [&downstream, &upstream];
        let hubs: Vec<_> = (0..HUBS).map(|n| SimHub::new(&frame, n, &network, logs)).collect();
        let controllers: Vec<_> =
            (0..2).map(|n| SimController::new(&frame, n, logs, &cluster)).collect();
        let addresses: Vec<_> = (0..HUBS).map(address).collect();
        let edges = nodes.iter().enumerate();
        let edges =
            edges.map(|(n, node)| SimEdge::new(&frame, n, node, &network, &addresses)).collect();
        let log_clock = frame.wall_clock();
        let mut world = Self {
            frame,
            nodes,
            cluster,
            downstream,
            upstream,
            log_clock,
            partitions,
            network,
            hubs,
            controllers,
            edges,
            auditor,
            inspector,
            presence: (0..HUBS).map(|_| None).collect(),
            monotonic: vec![Monotonic::default(), Monotonic::default()],
            pictured: vec![None, None],
            settled: BTreeMap::new(),
            log_was_lost: false,
            was_truncated: false,
        };
        for _ in 0..8 {
            world.cluster.change();
        }
        for hub in &mut world.hubs {
            hub.start().await;
        }
        world.controllers[0].start().await;
        for edge in 0..world.edges.len() {
            world.switch_on(edge);
        }
        world
    }

    /// Lets so much time go by, and looks.
    pub(crate) async fn pass(&mut self, ms: u64) {
        let until = self.frame.now_ms() + ms;
        while self.frame.now_ms() < until && self.frame.first_broken().is_none() {
            let now = self.log_clock.now_ms();
            self.downstream.set_clock(now);
            self.upstream.set_clock(now);
            let rest = until - self.frame.now_ms();
            let step = if ms > 10_000 { 5_000 } else { 1 + self.frame.below(200) };
            self.open_presence();
            sleep(MOMENT * u32::try_from(rest.min(step)).unwrap_or(1)).await;
            self.look();
        }
    }

    /// Each hub sends the presence of its nodes to the controller that claimed last.
    fn open_presence(&mut self) {
        let on = self.controllers.iter().filter(|controller| controller.is_on());
        let writer = on.max_by_key(|controller| controller.epoch());
        for (hub, stream) in self.hubs.iter().zip(&mut self.presence) {
            let before = stream.take();
            *stream = writer.and_then(|writer| PresenceStream::between(hub, writer, before));
        }
    }

    pub(crate) fn switch_on(&mut self, edge: usize) {
        let edge = &mut self.edges[edge];
        edge.start(self.auditor.clone());
        let durable = (edge.node.clone(), edge.state.durable.clone());
        lock(&self.inspector.edges).insert(edge.index, durable);
    }

    /// Everything that is off, and is not to stay so, is on again.
    pub(crate) async fn restart_what_ended(&mut self) {
        for index in 0..self.edges.len() {
            if self.edges[index].has_ended() {
                let survives = Survival::Some { seed: self.frame.draw() };
                self.frame.fault("edge ended by itself", index);
                self.edges[index].lose_power(survives);
                self.switch_on(index);
            }
        }
    }

    /// A controller ends at once; its disks lose what was not synced, or all.
    pub(crate) fn crash_controller(&mut self, which: usize, survives: Option<Survival>) {
        self.controllers[which].crash(survives);
        // A picture that is folded anew begins with the oldest.
        self.monotonic[which] = Monotonic::default();
        self.pictured[which] = None;
    }

    /// Every invariant that can be checked at any time.
    pub(crate) fn look(&mut self) {
        let frame = self.frame.clone();
        let mut auditor = lock(&self.auditor);
        auditor.read();
        for edge in &mut self.edges {
            let now = edge.state.streams();
            if Arc::ptr_eq(&now, &edge.checked.shown) {
                continue;
            }
            for (stream, held) in &*now {
                let before = edge.checked.shown.get(stream);
                if before == Some(held) {
                    continue;
                }
                frame.check(auditor.check_prefix(stream, held));
                // What pods name leaves with the last of them, and may come back with another.
                let rooted = only(&held.state, |kind| matches!(kind, "pod" | "service"));
                frame.check(edge.checked.removals.observe(stream, &rooted));
                if let Some(at) = held.at {
                    frame.check(edge.checked.once.replaced(stream, at));
                }
                let removed = self.cluster.removed(stream);
                if let Some(before) = before {
                    let (before, after) = (only(&before.state, any), only(&held.state, any));
                    frame.check(removed.check(stream, &before, &after));
                }
            }
            edge.checked.shown = now;
        }
        drop(auditor);
        for (which, controller) in self.controllers.iter().enumerate() {
            if !controller.is_on() {
                self.monotonic[which] = Monotonic::default();
                self.pictured[which] = None;
                continue;
            }
            let writes = Some(controller.picture.counts().writes);
            if std::mem::replace(&mut self.pictured[which], writes) == writes {
                continue;
            }
            for node in &self.nodes {
                let from = &*controller.picture;
                let Ok(statuses) = PodStatusFold::statuses(from, node, None, STATUSES_MAX) else {
                    continue;
                };
                for (pod, status) in statuses {
                    let key = ReportKey::Resource(pod);
                    frame.check(self.monotonic[which].counted(node, &key, status.id));
                }
            }
        }
    }

    /// The auditor reads what it could not read any more afterwards.
    fn read_all(&mut self) {
        self.downstream.set_available(true);
        self.upstream.set_available(true);
        self.look();
    }

    /// The clone of a machine goes, and with it what hubs hold against its node: a person has
    /// seen to it, and the hubs that held the node were started anew.
    pub(crate) async fn remove_clone(&mut self, of: usize) {
        while self.edges.len() > self.nodes.len() {
            if let Some(mut clone) = self.edges.pop() {
                clone.lose_machine(Survival::Synced);
                lock(&self.inspector.edges).remove(&clone.index);
            }
        }
        self.edges[of].lose_machine(Survival::Everything);
        self.edges[of].enrol();
        for hub in &mut self.hubs {
            hub.crash(Some(Survival::Everything));
            hub.start().await;
        }
        self.switch_on(of);
    }

    /// The downstream log is made anew, empty.
    pub(crate) fn recreate_log(&mut self) {
        self.read_all();
        self.frame.fault("downstream log re-created", "");
        self.downstream.recreate(self.partitions);
        self.settled.clear();
        lock(&self.auditor).recreated();
        self.log_was_lost = true;
    }

    /// A partition of the logs.
    pub(crate) fn partition(&self) -> Partition {
        Partition(u32::try_from(self.frame.below(self.partitions.into())).unwrap_or(0))
    }

    /// Every partition takes appends again.
    pub(crate) fn heal_partitions(&self) {
        for partition in (0..self.partitions).map(Partition) {
            self.downstream.set_partition_fault(partition, None);
            self.upstream.set_partition_fault(partition, None);
        }
    }

    /// The last records of a partition are lost, but for the claim that they were written under.
    pub(crate) async fn truncate_log(&mut self) {
        self.read_all();
        let partition = self.partition();
        let claim = lock(&self.auditor).claim(partition);
        let Ok(bounds) = self.downstream.bounds(partition).await else { return };
        // What is older than the window is on every replica.
        let settled = self.settled.get(&partition).copied().unwrap_or(bounds.low);
        let keep = claim.map_or(bounds.low, Offset::next).max(settled).0;
        let high = Offset(keep.max(bounds.high.0.saturating_sub(1 + self.frame.below(8))));
        if high >= bounds.high {
            return;
        }
        self.frame.fault("downstream log truncated", format_args!("{partition} at {high}"));
        self.downstream.truncate(partition, high);
        self.was_truncated = true;
        lock(&self.auditor).truncated(partition, high, self.partitions);
        self.log_was_lost = true;
    }

    /// Whether compaction ever ran.
    pub(crate) fn has_compacted(&self) -> bool {
        lock(&self.auditor).compacted
    }

    /// Weeks go by, and the broker does what it does in weeks.
    pub(crate) async fn weeks_pass(&mut self) {
        // No part is suspended for weeks.
        for hub in &self.hubs {
            hub.downstream.handle.set_frozen(false);
            hub.upstream.handle.set_frozen(false);
        }
        self.controllers.iter().for_each(|controller| controller.freeze(false));
        self.heal_partitions();
        // A writer that lives has appended heads behind its removals long before that.
        self.pass(HEADS_WITHIN_MS).await;
        if lock(&self.auditor).is_head_due() {
            // It took over only just now; or there is none.
            self.pass(HEADS_WITHIN_MS).await;
        }
        self.read_all();
        lock(&self.auditor).compacted = true;
        for partition in (0..self.partitions).map(Partition) {
            if let Ok(bounds) = self.downstream.bounds(partition).await {
                self.settled.insert(partition, bounds.high);
            }
        }
        let weeks = 1 + self.frame.below(6);
        self.frame.fault("weeks pass", weeks);
        for _ in 0..weeks {
            self.frame.pass(8 * 24 * 3600 * 1000);
            let now = self.log_clock.now_ms();
            for log in [&self.downstream, &self.upstream] {
                log.set_clock(now);
                log.compact();
            }
        }
    }

    /// Makes the wall clock of one part wrong by ten years.
    pub(crate) fn jump_clock(&mut self) {
        let frame = &self.frame;
        let skew = [-TEN_YEARS_MS, TEN_YEARS_MS, 0][frame.index(3)];
        let clocks = [&self.log_clock].into_iter();
        let clocks = clocks.chain(self.hubs.iter().map(|hub| &hub.clock));
        let clocks = clocks.chain(self.controllers.iter().map(|controller| &controller.clock));
        let clocks: Vec<_> = clocks.chain(self.edges.iter().map(|edge| &edge.clock)).collect();
        let which = frame.index(clocks.len());
        // Records that seem to come from the future are not folded rightly once compaction has
        // met them: the log's own clock goes back only. See the crate's list of what is left out.
        let skew = if which == 0 { skew.min(0) } else { skew };
        frame.fault("wall clock jumps", format_args!("clock {which} to {skew}"));
        clocks[which].jump(skew);
    }

    /// Every clock is right.
    pub(crate) fn set_clocks(&self) {
        self.log_clock.jump(0);
        self.hubs.iter().for_each(|hub| hub.clock.jump(0));
        self.controllers.iter().for_each(|controller| controller.clock.jump(0));
        self.edges.iter().for_each(|edge| edge.clock.jump(0));
    }
}

fn any(_: &str) -> bool {
    true
}

/// What of a state a source put there, of certain kinds.
fn only(state: &headwater_check::State, kinds: fn(&str) -> bool) -> headwater_check::State {
    let entries = state.entries.iter();
    let entries = entries.filter(|(key, _)| key.resource().is_some_and(|key| kinds(key.kind())));
    let entries = entries.map(|(key, entry)| (key.clone(), entry.clone())).collect();
    headwater_check::State { entries }
}

impl Inspector {
    /// I8: what an edge says is durable, is.
    fn check_progress(&self, edge: usize, progress: &[StreamProgress]) {
        let edges = lock(&self.edges);
        let Some((node, disk)) = edges.get(&edge) else { return };
        let disk = lock(disk);
        for StreamProgress { stream, durable: reported, .. } in progress {
            let at = disk.highest.get(stream).copied().unwrap_or(Seq::ZERO);
            self.frame.check(durable::check(node, stream, "acknowledged", *reported, at));
        }
    }
}

impl Inspect for Inspector {
    fn edge_sent(&self, edge: usize, message: &EdgeMessage) {
        if let EdgeMessage::Ack(ack) = message {
            self.check_progress(edge, &ack.progress);
        }
    }

    fn hub_sent(&self, edge: usize, message: &HubMessage, sent: &BTreeSet<ReportId>) {
        let node = match lock(&self.edges).get(&edge) {
            Some((node, _)) => node.clone(),
            None => return,
        };
        match message {
            HubMessage::Push(push) => {
                self.frame.count(match push.mode {
                    headwater_session::message::PushMode::Tail => "push of a tail",
                    headwater_session::message::PushMode::Delta => "push of a delta",
                    headwater_session::message::PushMode::Snapshot => "push of a snapshot",
                    headwater_session::message::PushMode::Correction => "push of a correction",
                });
                self.frame.check(isolation::check_stream(&node, &push.stream));
                let marks: Vec<_> = self
                    .nodes
                    .iter()
                    .map(|node| (node, format!("<{}>", StreamId::node(node))))
                    .collect();
                for pushed in &push.changes {
                    if let headwater_event::Change::Applied(applied) = &pushed.change {
                        let marks = marks.iter().map(|(node, mark)| (*node, mark.as_str()));
                        self.frame.check(isolation::check_bytes(&node, &applied.object, marks));
                    }
                }
            }
            HubMessage::Welcome(welcome) => {
                for stream in &welcome.streams {
                    self.frame.check(isolation::check_stream(&node, stream));
                }
            }
            HubMessage::ReportsAcked(ReportsAcked { through, refused }) => {
                let mut auditor = lock(&self.auditor);
                auditor.read();
                let is_refused = |id: &ReportId| refused.iter().any(|it| it.id == *id);
                let acked = sent.iter().filter(|id| *id <= through && !is_refused(id));
                let checked =
                    headwater_check::acknowledged::check(&node, acked, auditor.logged(&node));
                self.frame.check(checked);
            }
            HubMessage::Refusal(refusal) => {
                self.frame.note(format_args!("edge {edge} is refused: {}", refusal.message));
            }
            HubMessage::ParkNotice(parked) => {
                let (stream, reason) = (&parked.stream, &parked.reason);
                self.frame.note(format_args!("edge {edge}: {stream} is parked: {reason}"));
            }
            HubMessage::Compare(_) => self.frame.count("comparison"),
            HubMessage::Heartbeat(_)
            | HubMessage::Response(_)
            | HubMessage::Goodbye(_)
            | HubMessage::Dial(_)
            | HubMessage::Unknown => {}
        }
    }
}
