//! An edge of the simulation: a machine with two disks, the edge on it, and its pod worker.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use headwater_check::once::Once;
use headwater_check::removed::Removals;
use headwater_edge::{Chance, Clock, Edge, EdgeConfig, EdgeDependencies, EdgeExit};
use headwater_event::{Incarnation, NodeName};
use headwater_store::{Failure, MemoryEngine, Survival};
use tokio::task::JoinSet;

use crate::audit::Auditor;
use crate::disk::{Disk, Streams};
use crate::frame::{Frame, WallClock};
use crate::network::Network;
use crate::worker::{Machine, Worker};

/// An edge. Several may claim to be one node: clones.
pub(crate) struct SimEdge {
    frame: Frame,
    pub(crate) index: usize,
    pub(crate) node: NodeName,
    network: Network,
    hubs: Vec<SocketAddr>,
    incarnation: Incarnation,
    pub(crate) clock: WallClock,
    pub(crate) state: Arc<Disk>,
    outbox: Arc<MemoryEngine>,
    /// Both disks as they were some time ago.
    backup: Option<(MemoryEngine, MemoryEngine)>,
    pub(crate) machine: Machine,
    tasks: JoinSet<Option<EdgeExit>>,
    pub(crate) checked: EdgeCheckers,
}

/// What the checkers know of a replica.
#[derive(Default)]
pub(crate) struct EdgeCheckers {
    pub(crate) once: Once,
    pub(crate) removals: Removals,
    pub(crate) shown: Arc<Streams>,
}

#[derive(Clone)]
struct SimClock(Frame, WallClock);

#[derive(Clone)]
struct SimChance(Frame);

impl Clock for SimClock {
    fn wall_ms(&self) -> i64 {
        self.1.now_ms()
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.now_ms()
    }
}

impl Chance for SimChance {
    fn draw(&self) -> u64 {
        self.0.draw()
    }
}

impl std::fmt::Debug for SimClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimClock")
    }
}

impl std::fmt::Debug for SimChance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimChance")
    }
}

impl SimEdge {
    pub(crate) fn new(
        frame: &Frame,
        index: usize,
        node: &NodeName,
        network: &Network,
        hubs: &[SocketAddr],
    ) -> Self {
        Self {
            frame: frame.clone(),
            index,
            node: node.clone(),
            network: network.clone(),
            hubs: hubs.to_vec(),
            incarnation: Incarnation(1),
            clock: frame.wall_clock(),
            state: Arc::new(Disk::new(MemoryEngine::new())),
            outbox: Arc::default(),
            backup: None,
            machine: Machine::default(),
            tasks: JoinSet::new(),
            checked: EdgeCheckers::default(),
        }
    }

    /// Another machine with the same disks.
    pub(crate) fn cloned(&mut self, index: usize) -> Self {
        // The image is taken of a stopped machine.
        self.lose_power(Survival::Everything);
        let state = MemoryEngine::reopen(&self.state.engine);
        let outbox = self.outbox.reopen();
        self.state = Arc::new(Disk::new(state.reopen()));
        self.outbox = Arc::new(outbox.reopen());
        let mut clone = Self::new(&self.frame, index, &self.node, &self.network, &self.hubs);
        clone.incarnation = self.incarnation;
        clone.state = Arc::new(Disk::new(state.reopen()));
        clone.outbox = Arc::new(outbox.reopen());
        clone
    }

    /// The node is enrolled anew.
    pub(crate) fn enrol(&mut self) {
        self.incarnation = Incarnation(self.incarnation.0 + 1);
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Switches the machine on.
    pub(crate) fn start(&mut self, auditor: Arc<Mutex<Auditor>>) {
        let config = EdgeConfig {
            incarnation: self.incarnation,
            ..EdgeConfig::new(self.node.clone(), self.hubs.clone(), "none".into())
        };
        let seams = EdgeDependencies {
            clock: Arc::new(SimClock(self.frame.clone(), self.clock.clone())),
            chance: Arc::new(SimChance(self.frame.clone())),
            ..EdgeDependencies::default()
        };
        let dial = self.network.dial(self.index, &self.node);
        let mut bare = Edge::open(
            &config,
            self.state.clone(),
            self.outbox.clone(),
            seams.clone(),
            dial.clone(),
        );
        if bare.is_err() {
            // A disk that was to fail did so at once.
            self.lose_power(Survival::Synced);
            bare = Edge::open(&config, self.state.clone(), self.outbox.clone(), seams, dial);
        }
        let bare = match bare {
            Ok(bare) => bare,
            Err(error) => {
                self.frame.broken(format_args!("edge {} does not start: {error}", self.index));
                return;
            }
        };
        self.checked.shown = self.state.streams();
        let worker = Worker {
            frame: self.frame.clone(),
            node: self.node.clone(),
            meta: bare.meta,
            machine: self.machine.clone(),
            durable: self.state.durable.clone(),
            auditor,
        };
        self.tasks.spawn(async { bare.replica.await.err() });
        self.tasks.spawn(async { bare.syncer.await.err() });
        self.tasks.spawn(async { bare.outbox.await.err() });
        self.tasks.spawn(async {
            bare.session.await;
            None
        });
        self.tasks.spawn(async {
            worker.run().await;
            None
        });
    }

    /// The edge ends, and loses of its disks what was not synced, as far as `survives` says.
    pub(crate) fn lose_power(&mut self, survives: Survival) {
        self.tasks.abort_all();
        self.tasks = JoinSet::new();
        self.network.edge_gone(self.index);
        self.state = Arc::new(Disk::new(self.state.crash(survives)));
        self.outbox = Arc::new(self.outbox.crash(survives));
        self.fell_back();
    }

    /// The machine ends with it, and so do its pods.
    pub(crate) fn lose_machine(&mut self, survives: Survival) {
        self.lose_power(survives);
        self.machine = Machine::default();
    }

    /// Keeps an image of both disks. The machine must be off.
    pub(crate) fn back_up(&mut self) {
        self.backup = Some((self.state.engine.reopen(), self.outbox.reopen()));
        self.put_in(self.backup.as_ref().map(|(s, o)| (s.reopen(), o.reopen())));
    }

    /// Puts the images back, if there are any. The machine must be off.
    pub(crate) fn restore(&mut self) -> bool {
        self.put_in(self.backup.as_ref().map(|(s, o)| (s.reopen(), o.reopen())));
        self.backup.is_some()
    }

    /// Puts empty disks in. The machine must be off.
    pub(crate) fn wipe(&mut self) {
        self.put_in(Some((MemoryEngine::new(), MemoryEngine::new())));
    }

    /// Loses the state disk alone.
    pub(crate) fn wipe_state(&mut self) {
        let outbox = self.outbox.reopen();
        self.put_in(Some((MemoryEngine::new(), outbox)));
    }

    fn put_in(&mut self, disks: Option<(MemoryEngine, MemoryEngine)>) {
        let Some((state, outbox)) = disks else { return };
        self.state = Arc::new(Disk::new(state));
        self.outbox = Arc::new(outbox);
        self.fell_back();
    }

    /// One of the next writes or syncs fails.
    pub(crate) fn break_disk(&self, disk_full: bool) {
        let failure = Failure { disk_full, took_effect: self.frame.happens(500) };
        let nth = 1 + self.frame.below(10);
        match self.frame.below(3) {
            0 => self.state.engine.fail_write(nth, failure),
            1 => self.state.engine.fail_sync(nth, failure),
            _ => self.outbox.fail_write(nth, failure),
        }
    }

    /// Whether the edge has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        match self.tasks.try_join_next() {
            None => false,
            Some(Ok(Some(EdgeExit::Defect { what }))) => {
                self.frame.broken(format_args!("edge {}: {what}", self.index));
                true
            }
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                self.frame.broken(format_args!("I13 edge {}: {error}", self.index));
                true
            }
        }
    }

    fn fell_back(&mut self) {
        let streams = self.state.streams();
        let gone: Vec<_> = self.checked.shown.keys().cloned().collect();
        for stream in gone {
            let at = streams.get(&stream).and_then(|held| held.at);
            self.checked.once.fell_back(&stream, at);
            self.checked.removals.forget(&stream);
        }
        self.checked.shown = streams;
    }
}
