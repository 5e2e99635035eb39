//! A target with its edges, on which one load runs after the other.
//!
//! ```text
//!  start ─► connect, set up ─► drive, at rest ─► drive, at rest ─► ... ─► end: correctness box
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headwater_e2e::proxy::Proxy;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::correctness::{Check, Correctness};
use crate::disks::NodeDisks;
use crate::edges::{Edges, EndedEdges};
use crate::failure::{Attempt, Failure};
use crate::generator::{Answers, Generator};
use crate::hops::Hops;
use crate::inventory::Inventory;
use crate::light::{LightSettings, Reports, WireCount};
use crate::metrics;
use crate::object::Kind;
use crate::pacer::Lag;
use crate::scenario::{Act, EdgeKind, Fault};
use crate::schedule::Turn;
use crate::sightings::{Load, Sightings};
use crate::stopped::StoppedTarget;
use crate::target::{Place, StreamSettings, Target, TargetSettings, impossible};
use crate::watching::Group;

/// How long it may take until every edge has what there is before the first change.
const SET_UP_MAX: Duration = Duration::from_secs(180);

/// How long a controller that is started again may take to listen.
const LISTEN_MAX: Duration = Duration::from_secs(60);

/// Between two looks at whether something has come about.
const POLL: Duration = Duration::from_millis(20);

/// The same, where the moment is measured.
const POLL_CLOSELY: Duration = Duration::from_millis(1);

/// What the controller has still to fold of what nodes report.
const UPSTREAM_LAG: &str = "headwater_controller_upstream_lag_records";

/// A task broke: a defect.
const BROKE: &str = "a part of the harness broke";

/// What is started.
#[derive(Clone, Debug)]
pub struct TestbedSettings {
    /// What it runs on.
    pub place: Place,
    /// Its nodes and objects.
    pub inventory: Inventory,
    /// What its edges are.
    pub edges: EdgeKind,
    /// What light ones say of their pods.
    pub reports: Reports,
    /// How many of the first edges reach the hub over a hop.
    pub behind_hops: usize,
    /// How many of the first edges are not measured.
    pub unmeasured: usize,
    /// How the hub reaches the pods of real edges, if it does.
    pub streams: Option<StreamSettings>,
}

/// See the module.
pub struct Testbed {
    inventory: Arc<Inventory>,
    target: Arc<Mutex<Target>>,
    hops: Hops,
    edges: Edges,
    sightings: Arc<Sightings>,
    generator: Arc<Generator>,
}

impl Testbed {
    /// Starts the target; no edge is connected yet.
    ///
    /// # Errors
    /// When a part does not do what it should.
    pub async fn start(settings: TestbedSettings) -> Result<Self, Failure> {
        let TestbedSettings { place, inventory, edges, reports, behind_hops, unmeasured, streams } =
            settings;
        let nodes = inventory.nodes.clone();
        let told = TargetSettings { place, nodes: nodes.clone(), streams };
        let target = spawn_blocking(move || Target::start(told)).await.tried(BROKE)??;
        target.clear().await?;
        let has_services = inventory.objects.iter().any(|object| object.kind == Kind::Service);
        let mesh = has_services.then_some(Group::Mesh);
        let hops = Hops::start(target.hub(), behind_hops);
        let told = LightSettings {
            nodes,
            hops: hops.addresses(),
            hubs: target.hub().into_iter().collect(),
            reports,
            groups: [Group::Edged].into_iter().chain(mesh).collect(),
        };
        let inventory = Arc::new(inventory);
        let sightings = Arc::new(Sightings::new(inventory.clone(), unmeasured));
        let edges = Edges::new(edges, told, sightings.clone());
        let generator = Arc::new(Generator::connect(target.objects())?);
        let target = Arc::new(Mutex::new(target));
        Ok(Self { inventory, target, hops, edges, sightings, generator })
    }

    /// Connects the next `count` edges.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn connect(&mut self, count: usize) -> Result<(), Failure> {
        self.edges.connect(count, &mut *self.target.lock().await)
    }

    /// Says these objects as they are before the first change, and waits until every edge that is
    /// connected has those that it is to have.
    ///
    /// # Errors
    /// When a part does not do what it should.
    pub async fn set_up(&self, objects: Range<u32>) -> Result<(), Failure> {
        self.sightings.expect(objects.clone());
        let (generator, inventory) = (self.generator.clone(), self.inventory.clone());
        spawn_blocking(move || generator.set_up(&inventory, objects)).await.tried(BROKE)??;
        let connected = 0..self.edges.count();
        if self.at_rest(connected.clone(), SET_UP_MAX).await {
            return Ok(());
        }
        let target = self.target.lock().await;
        let (said, within) = (target.said(target.cloud()), SET_UP_MAX.as_secs());
        let missing = self.sightings.restless(connected);
        Err(Failure::of(format!(
            "after {within} s {missing} objects are not yet where they are to be before the first \
             change\n{said}"
        )))
    }

    /// Says every change at its moment, and returns when the last was handed over.
    ///
    /// # Errors
    /// When the way in breaks.
    pub async fn drive(&self, turns: Arc<[Turn]>, load: Load) -> Result<Lag, Failure> {
        let (began, measured_from) = (load.began, load.measured_from);
        let first = self.sightings.begin(&turns, load);
        let (generator, inventory) = (self.generator.clone(), self.inventory.clone());
        let driving = move || generator.drive(&inventory, &turns, first, began, measured_from);
        spawn_blocking(driving).await.tried(BROKE)?
    }

    /// Waits until the controller's socket has taken every line.
    pub async fn written(&self) -> Instant {
        while self.generator.progress().waiting() > 0 {
            sleep(POLL_CLOSELY).await;
        }
        Instant::now()
    }

    /// Waits until these edges stand where all loads end; gives whether they do `within` that time.
    pub async fn at_rest(&self, edges: Range<usize>, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.sightings.restless(edges.clone()) > 0 {
            if Instant::now() > deadline {
                return false;
            }
            sleep(POLL).await;
        }
        true
    }

    /// Waits until the cloud has every report of the edges, or it is `deadline`.
    pub async fn reported(&self, deadline: Instant) {
        let mut edge = 0;
        while edge < self.edges.count() && Instant::now() < deadline {
            match self.edges.status(edge).await {
                Some(status) if status.outbox_depth == 0 => edge += 1,
                _ => sleep(POLL).await,
            }
        }
        // What was acknowledged is in the log; the controller's fold of it follows.
        let cloud = {
            let target = self.target.lock().await;
            target.metrics(target.cloud())
        };
        let Some(cloud) = cloud else { return };
        let lags = move || {
            let lag = metrics::sums(cloud, [UPSTREAM_LAG], metrics::ANSWER_MAX);
            !lag.is_ok_and(|[lag]| lag == Some(0.0))
        };
        while Instant::now() < deadline && spawn_blocking(lags).await.unwrap_or(false) {
            sleep(POLL).await;
        }
    }

    /// Does something to a part.
    ///
    /// # Errors
    /// When that cannot be done to it.
    pub async fn act(&self, fault: &Fault) -> Result<(), Failure> {
        if let Some(hop) = fault.hop() {
            return self.hops.act(fault.act, hop);
        }
        if fault.to != "edges" {
            let (target, act, to) = (self.target.clone(), fault.act, fault.to.clone());
            let acting = spawn_blocking(move || target.blocking_lock().act(act, &to));
            return acting.await.unwrap_or_else(|_| Err(impossible(fault.act, &fault.to)));
        }
        let nodes = &self.inventory.nodes;
        for (edge, node) in nodes.iter().enumerate().take(fault.edges.unwrap_or(nodes.len())) {
            match fault.act {
                Act::Cut | Act::Mend => {
                    let cut = fault.act == Act::Cut;
                    self.edges.set_link(edge, node, cut, &self.target).await?;
                }
                act => self.target.lock().await.act(act, node.as_str())?,
            }
        }
        Ok(())
    }

    /// Connects to the objects socket anew, when the controller was started again.
    ///
    /// # Errors
    /// When it does not listen in time.
    pub async fn reconnect(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + LISTEN_MAX;
        let objects = self.target.lock().await.objects().to_owned();
        loop {
            match Generator::connect(&objects) {
                Ok(generator) => self.generator = Arc::new(generator),
                Err(_) if Instant::now() < deadline => {
                    sleep(POLL_CLOSELY).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// Its nodes and objects.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// What runs.
    pub async fn target(&self) -> MutexGuard<'_, Target> {
        self.target.lock().await
    }

    /// What runs, to be looked at from another thread.
    pub(crate) fn shared_target(&self) -> Arc<Mutex<Target>> {
        self.target.clone()
    }

    /// The hop of an edge.
    pub fn hop(&self, edge: usize) -> Option<&Proxy> {
        self.hops.get(edge)
    }

    /// What its edges have seen.
    pub fn sightings(&self) -> &Sightings {
        &self.sightings
    }

    /// What passed through the sockets of light edges.
    pub(crate) fn wire(&self) -> Option<Arc<WireCount>> {
        self.edges.wire()
    }

    /// How far the generator is.
    pub(crate) fn generator(&self) -> &Generator {
        &self.generator
    }

    /// Ends it without a box.
    pub(crate) async fn abandon(self) {
        self.edges.stop().await;
        // Why it is abandoned matters more than what is left.
        let _ = self.target.lock().await.clear().await;
    }

    /// Stops everything, and makes the box from what all left behind; `tamper` does something to the
    /// databases of each edge before.
    ///
    /// # Errors
    /// When a part does not do what it should.
    pub async fn end(
        self,
        tamper: Option<fn(&NodeDisks)>,
    ) -> Result<(Correctness, Answers), Failure> {
        let Self { target, edges, sightings, generator, .. } = self;
        let answers = match Arc::into_inner(generator) {
            Some(generator) => spawn_blocking(|| generator.end()).await.tried(BROKE)??,
            None => Answers::default(),
        };
        let ended = edges.stop().await;
        let mut check = Check::default();
        check.run(sightings.account(), &answers, sightings.findings());
        if let Some(target) = Arc::into_inner(target) {
            let stopped =
                spawn_blocking(|| StoppedTarget::of(target.into_inner())).await.tried(BROKE)?;
            let compared = compare(&mut check, &ended, &stopped, tamper).await;
            stopped.clear().await?;
            compared?;
        }
        Ok((check.done(), answers))
    }
}

/// Reads what all left behind and compares it.
async fn compare(
    check: &mut Check,
    ended: &EndedEdges,
    stopped: &StoppedTarget,
    tamper: Option<fn(&NodeDisks)>,
) -> Result<(), Failure> {
    let picture = stopped.picture().await?;
    for disks in ended.disks(stopped) {
        let disks = disks?;
        if let Some(tamper) = tamper {
            tamper(&disks);
        }
        check.node(&disks, &picture)?;
    }
    check.log(&*stopped.downstream()?).await
}
