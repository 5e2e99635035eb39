//! The simulated world: one cloud, two hubs, two edges, and connections that break, stall and
//! corrupt the order of messages. The world checks every invariant at each step.

use std::collections::VecDeque;

use headwater_check::positions::Positions;
use headwater_check::{convergence, isolation};
use headwater_event::{NodeName, Report, ReportId, StreamId};
use headwater_session::message::{EdgeMessage, HubMessage};
use headwater_session::{
    EdgeCloseReason, EdgeInput, EdgeSettings, HubCloseReason, HubInput, HubOutput, HubSettings,
    PushFault, SessionId,
};

use crate::cloud::Cloud;
use crate::edge::Edge;
use crate::hub::Hub;

/// The bound on the rounds of deliveries and work after the faults have stopped.
const SETTLE_ROUNDS_MAX: usize = 400;

/// One connection; each end notices its loss independently.
struct Link {
    edge: usize,
    hub: usize,
    session: SessionId,
    up: VecDeque<EdgeMessage>,
    down: VecDeque<HubMessage>,
    edge_holds: bool,
    hub_holds: bool,
    /// Whether a message was repeated, swapped or lost on it, which TCP does not do.
    tampered: bool,
}

/// Reports on their way from a hub to the upstream log.
struct Append {
    hub: usize,
    session: SessionId,
    node: NodeName,
    reports: Vec<Report>,
}

pub(crate) struct World {
    pub(crate) cloud: Cloud,
    hubs: Vec<Hub>,
    edges: Vec<Edge>,
    links: Vec<Link>,
    appends: VecDeque<Append>,
    hub_settings: HubSettings,
    sessions: u64,
    now_ms: u64,
    pub(crate) streams: Vec<StreamId>,
}

/// A fault of a network that is worse than TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tampering {
    Repeat,
    Swap,
    Lose,
}

impl World {
    pub(crate) fn new() -> Self {
        let nodes: Vec<NodeName> =
            ["a", "b"].map(|name| name.parse().expect("well-formed")).to_vec();
        // All settings are small, so that the simulation reaches every bound.
        let edge_settings = EdgeSettings {
            window_bytes: 2_000,
            frame_bytes_max: 500,
            reports_window: 3,
            report_bytes_window: 150,
            ..EdgeSettings::default()
        };
        let hub_settings = HubSettings {
            window_bytes: 1_500,
            frame_bytes_max: 500,
            tail_events_max: 4,
            ..HubSettings::default()
        };
        let mut streams: Vec<_> = nodes.iter().map(StreamId::node).collect();
        streams.push(StreamId::Cluster);
        let mut world = Self {
            cloud: Cloud::new(&nodes),
            hubs: vec![Hub::new(), Hub::new()],
            edges: nodes.iter().map(|node| Edge::new(node, &edge_settings)).collect(),
            links: Vec::new(),
            appends: VecDeque::new(),
            hub_settings,
            sessions: 0,
            now_ms: 0,
            streams,
        };
        for hub in 0..world.hubs.len() {
            world.restart_hub(hub, 0);
        }
        world
    }

    pub(crate) fn restart_hub(&mut self, hub: usize, compacted: usize) {
        for link in self.links.iter_mut().filter(|link| link.hub == hub) {
            link.hub_holds = false;
        }
        self.appends.retain(|append| append.hub != hub);
        let branch = self.cloud.branch();
        self.hubs[hub].restart(branch, &self.cloud.branches[branch], compacted);
    }

    pub(crate) fn fold(&mut self, hub: usize, records: usize) {
        let branch = self.hubs[hub].branch;
        self.hubs[hub].fold(&self.cloud.branches[branch], records);
        let sessions: Vec<_> = self.hubs[hub].sessions.keys().copied().collect();
        for session in sessions {
            self.step_hub(hub, session, HubInput::Advanced);
        }
    }

    pub(crate) fn connect(&mut self, edge: usize, hub: usize) {
        self.cut(edge);
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let node = self.edges[edge].identity.node.clone();
        self.hubs[hub].accept(session, &node, &self.hub_settings);
        self.links.push(Link {
            edge,
            hub,
            session,
            up: VecDeque::new(),
            down: VecDeque::new(),
            edge_holds: true,
            hub_holds: true,
            tampered: false,
        });
        self.step_edge(edge, EdgeInput::Connected);
    }

    /// The edge loses its connection; the hub may not notice it.
    pub(crate) fn cut(&mut self, edge: usize) {
        for link in self.links.iter_mut().filter(|link| link.edge == edge) {
            link.edge_holds = false;
        }
        self.edges[edge].hangs_up = false;
        self.edges[edge].outgoing.clear();
        self.edges[edge].step(EdgeInput::Disconnected);
        self.edges[edge].outgoing.clear();
        self.forget_links();
    }

    /// Delivers a message of the edge, possibly on a connection that the edge has left.
    pub(crate) fn deliver_up(&mut self, edge: usize, link: usize) {
        let mut links: Vec<_> =
            (0..self.links.len()).filter(|at| self.links[*at].edge == edge).collect();
        links.retain(|at| self.links[*at].hub_holds);
        let Some(at) = links.get(link % links.len().max(1)).copied() else { return };
        let (hub, session) = (self.links[at].hub, self.links[at].session);
        match self.links[at].up.pop_front() {
            Some(message) => self.step_hub(hub, session, HubInput::Received(message)),
            None if !self.links[at].edge_holds => self.hub_left(hub, session),
            None => {}
        }
    }

    pub(crate) fn deliver_down(&mut self, edge: usize) {
        let Some(link) = self.links.iter_mut().find(|link| link.edge == edge && link.edge_holds)
        else {
            return;
        };
        match link.down.pop_front() {
            Some(message) => {
                self.check_delivered(edge, &message);
                self.step_edge(edge, EdgeInput::Received(message));
            }
            None if !link.hub_holds => self.cut(edge),
            None => {}
        }
    }

    /// Runs a while without new faults.
    pub(crate) fn run(&mut self, edge: usize, hub: usize, rounds: usize) {
        if !self.links.iter().any(|link| link.edge == edge && link.edge_holds) {
            self.connect(edge, hub);
        }
        for round in 0..rounds {
            self.fold(hub, 3);
            self.deliver_up(edge, 0);
            self.deliver_up(edge, 1);
            self.deliver_down(edge);
            self.work(edge);
            if round % 4 == 3 {
                self.sync(edge);
                self.append(true);
            }
        }
    }

    pub(crate) fn work(&mut self, edge: usize) {
        self.edges[edge].work(&self.cloud);
        self.send_outgoing(edge);
    }

    pub(crate) fn sync(&mut self, edge: usize) {
        self.edges[edge].sync();
        self.send_outgoing(edge);
    }

    pub(crate) fn crash(&mut self, edge: usize, is_wiped: bool) {
        self.edges[edge].crash(is_wiped);
        self.send_outgoing(edge);
    }

    pub(crate) fn report(&mut self, edge: usize, key: u8) {
        self.edges[edge].report(key);
        self.send_outgoing(edge);
    }

    pub(crate) fn miscompute(&mut self, edge: usize) {
        self.edges[edge].miscomputes = true;
    }

    /// The upstream log appends the oldest pending reports of a hub. With `is_confirmed`, the hub
    /// receives the confirmation; without it, the hub will append the reports again.
    pub(crate) fn append(&mut self, is_confirmed: bool) {
        let Some(append) = self.appends.pop_front() else { return };
        self.cloud.report(&append.node, &append.reports);
        if !is_confirmed {
            self.appends.push_front(append);
            return;
        }
        let last: Option<ReportId> = append.reports.last().map(|report| report.id);
        if let Some(last) = last {
            self.step_hub(append.hub, append.session, HubInput::Appended(last.into()));
        }
    }

    pub(crate) fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        for edge in 0..self.edges.len() {
            self.step_edge(edge, EdgeInput::Tick(self.now_ms));
            let heartbeat = headwater_session::message::EdgeHeartbeat::default();
            self.step_edge(edge, EdgeInput::Heartbeat(heartbeat));
        }
        for hub in 0..self.hubs.len() {
            let sessions: Vec<_> = self.hubs[hub].sessions.keys().copied().collect();
            for session in sessions {
                self.step_hub(hub, session, HubInput::Tick(self.now_ms));
            }
        }
    }

    pub(crate) fn tamper(&mut self, edge: usize, is_up: bool, tampering: Tampering) {
        let Some(link) = self.links.iter_mut().find(|link| link.edge == edge && link.edge_holds)
        else {
            return;
        };
        link.tampered = true;
        if is_up { tamper(&mut link.up, tampering) } else { tamper(&mut link.down, tampering) }
    }

    fn step_edge(&mut self, edge: usize, input: EdgeInput) {
        self.edges[edge].step(input);
        self.send_outgoing(edge);
    }

    /// Puts the edge's messages on its connection.
    fn send_outgoing(&mut self, edge: usize) {
        let outgoing = std::mem::take(&mut self.edges[edge].outgoing);
        if let Some(link) = self.links.iter_mut().find(|link| link.edge == edge && link.edge_holds)
        {
            link.up.extend(outgoing);
        }
        if let Some(end) = self.edges[edge].end.take() {
            let mut links = self.links.iter();
            let link = links.find(|link| link.edge == edge && link.edge_holds);
            let is_tampered = link.is_none_or(|link| link.tampered);
            let is_blamed = match &end {
                EdgeCloseReason::Unexpected { .. }
                | EdgeCloseReason::UnknownPush { .. }
                | EdgeCloseReason::Overflow { .. } => true,
                // A wrong snapshot hash is the edge's own fault.
                EdgeCloseReason::Push { fault, .. } => !matches!(fault, PushFault::Snapshot { .. }),
                _ => false,
            };
            assert!(
                !is_blamed || is_tampered,
                "the edge closed a session with a correct hub: {end}"
            );
        }
        if self.edges[edge].hangs_up {
            self.cut(edge);
        }
    }

    fn step_hub(&mut self, hub: usize, session: SessionId, input: HubInput) {
        let mut inputs = VecDeque::from([(session, input)]);
        while let Some((session, input)) = inputs.pop_front() {
            let Hub { source, registry, sessions, .. } = &mut self.hubs[hub];
            let Some(state) = sessions.get_mut(&session) else { continue };
            let node = state.node().clone();
            for output in state.step(source, input) {
                match output {
                    HubOutput::Send(message) => {
                        let mut links = self.links.iter_mut();
                        if let Some(link) = links.find(|link| link.session == session) {
                            link.down.push_back(message);
                        }
                    }
                    HubOutput::Identify(identity) => {
                        let admission = registry.admit(session, &identity);
                        inputs.extend(
                            admission
                                .replaced
                                .map(|(older, refusal)| (older, HubInput::Dismissed(refusal))),
                        );
                        inputs.push_back((
                            session,
                            match admission.result {
                                Ok(known) => HubInput::Admitted { known },
                                Err(refusal) => HubInput::Dismissed(refusal),
                            },
                        ));
                    }
                    HubOutput::AppendReports(reports) => {
                        self.appends.push_back(Append {
                            hub,
                            session,
                            node: node.clone(),
                            reports,
                        });
                    }
                    HubOutput::Close(end) => {
                        let mut links = self.links.iter();
                        let link = links.find(|link| link.session == session);
                        let is_tampered = link.is_none_or(|link| link.tampered);
                        let is_blamed =
                            matches!(end, HubCloseReason::Violation(_) | HubCloseReason::Source(_));
                        assert!(!is_blamed || is_tampered, "the hub refused a correct edge: {end}");
                        for link in self.links.iter_mut().filter(|link| link.session == session) {
                            link.hub_holds = false;
                        }
                    }
                    HubOutput::Share(_) => unreachable!("a source in memory shares no push"),
                    HubOutput::Ask(_) | HubOutput::Alive(_) | HubOutput::Progressed(_) => {}
                }
            }
            let identity = state.identity().filter(|_| state.is_open()).cloned();
            if !self.links.iter().any(|link| link.session == session && link.hub_holds) {
                self.hub_left(hub, session);
            }
            // Both hubs fold the upstream log.
            for hub in &mut self.hubs {
                if let Some(identity) = &identity {
                    hub.know(identity.clone());
                }
            }
        }
    }

    fn hub_left(&mut self, hub: usize, session: SessionId) {
        if let Some(state) = self.hubs[hub].sessions.remove(&session) {
            self.hubs[hub].registry.remove(state.node(), session);
        }
        for link in self.links.iter_mut().filter(|link| link.session == session) {
            link.hub_holds = false;
        }
        self.forget_links();
    }

    fn forget_links(&mut self) {
        self.links.retain(|link| link.edge_holds || link.hub_holds);
    }

    /// Checks I6 of a message to an edge.
    fn check_delivered(&self, edge: usize, message: &HubMessage) {
        let node = &self.edges[edge].identity.node;
        let markers: Vec<_> = self
            .edges
            .iter()
            .map(|edge| &edge.identity.node)
            .map(|node| (node, format!("\"of\":\"{}\"", StreamId::node(node))))
            .collect();
        match message {
            HubMessage::Push(push) => {
                isolation::check_stream(node, &push.stream).expect("I6");
                for pushed in &push.changes {
                    if let headwater_event::Change::Applied(applied) = &pushed.change {
                        let markers = markers.iter().map(|(node, text)| (*node, text.as_str()));
                        isolation::check_bytes(node, &applied.object, markers).expect("I6");
                    }
                }
            }
            HubMessage::Welcome(welcome) => {
                for stream in &welcome.streams {
                    isolation::check_stream(node, stream).expect("I6");
                }
            }
            _ => {}
        }
    }

    /// Checks the position inequality, and I1 of every edge's view.
    pub(crate) fn check(&self) {
        for edge in &self.edges {
            for (stream, replica) in &edge.disk.streams {
                let Some(checkpoint) = &replica.checkpoint else { continue };
                self.cloud.check_prefix(stream, checkpoint, &replica.state);
            }
        }
        for link in self.links.iter().filter(|link| link.edge_holds && link.hub_holds) {
            let edge = &self.edges[link.edge];
            let Some(hub) = self.hubs[link.hub].sessions.get(&link.session) else { continue };
            if link.tampered || !hub.is_open() || !edge.session.is_open() {
                continue;
            }
            for sent in hub.streams().filter(|stream| stream.parked.is_none() && !stream.resetting)
            {
                let stream = &sent.stream;
                let is_beginning_under_way = link.down.iter().any(|message| match message {
                    HubMessage::Push(push) => push.stream == **stream && push.mode.begins_anew(),
                    _ => false,
                });
                let Some(held) = edge.session.streams().find(|held| held.stream == **stream) else {
                    continue;
                };
                // Seqs of two histories are not comparable.
                if is_beginning_under_way
                    || edge.is_in_old_history(stream)
                    || held.applied.map(|applied| applied.log_id) != sent.log_id
                {
                    continue;
                }
                let positions = Positions {
                    acked: sent.acked,
                    durable: held.durable,
                    applied: held.applied.map_or_else(Default::default, |applied| applied.seq),
                    received: held.received,
                    sent: sent.sent,
                    tail: sent.tail,
                };
                positions.check(stream).expect("acked <= ... <= tail");
            }
        }
    }

    /// Stops the faults, delivers messages and does work until both ends converge, and checks I10.
    /// A session goes on unless its connection was tampered with.
    pub(crate) fn settle(&mut self) {
        self.cloud.reconcile(usize::MAX);
        for edge in 0..self.edges.len() {
            self.edges[edge].miscomputes = false;
            let mut links = self.links.iter();
            if links.any(|link| link.edge == edge && link.edge_holds && link.tampered) {
                self.cut(edge);
            }
        }
        for hub in 0..self.hubs.len() {
            if self.hubs[hub].branch != self.cloud.branch() {
                self.restart_hub(hub, 0);
            }
            self.fold(hub, usize::MAX);
        }
        for _ in 0..SETTLE_ROUNDS_MAX {
            for edge in 0..self.edges.len() {
                if !self.links.iter().any(|link| link.edge == edge && link.edge_holds) {
                    let node = self.edges[edge].identity.node.clone();
                    self.hubs[edge].registry.release(&node);
                    self.connect(edge, edge);
                }
                for _ in 0..20 {
                    self.deliver_up(edge, 0);
                    self.deliver_up(edge, 1);
                    self.deliver_down(edge);
                    self.work(edge);
                    self.append(true);
                }
                self.sync(edge);
            }
            self.tick(500);
            self.check();
            if self.has_converged().is_ok() {
                return;
            }
        }
        self.has_converged().expect("I10");
    }

    fn has_converged(&self) -> Result<(), String> {
        for edge in &self.edges {
            let node = &edge.identity.node;
            for stream in self.cloud.assigned(node).streams() {
                let (seq, hash) = self.cloud.end(stream);
                let found = edge.synced.streams.get(stream).and_then(|replica| {
                    let seq = replica.checkpoint?.seq;
                    Some(convergence::End { seq, hash: replica.hash })
                });
                convergence::check(node, stream, convergence::End { seq, hash }, found)
                    .map_err(|broken| broken.to_string())?;
            }
            let assigned = self.cloud.assigned(node);
            let listed = edge.session.streams().map(|listed| listed.stream);
            if let Some(stream) = edge
                .disk
                .streams
                .keys()
                .cloned()
                .chain(listed)
                .find(|held| !assigned.contains(held))
            {
                return Err(format!("I10 node {node} still has {stream}"));
            }
            if !edge.outbox.is_empty() {
                return Err(format!("I10 node {node} still has pending reports"));
            }
        }
        Ok(())
    }
}

fn tamper<T: Clone>(messages: &mut VecDeque<T>, tampering: Tampering) {
    match tampering {
        Tampering::Repeat => {
            if let Some(first) = messages.front().cloned() {
                messages.push_front(first);
            }
        }
        Tampering::Swap => {
            if messages.len() > 1 {
                messages.swap(0, 1);
            }
        }
        Tampering::Lose => {
            messages.pop_front();
        }
    }
}
