//! One run, from an empty disk to its record.
//!
//! ```text
//!  start target, edges ─► set up ─► warm-up ─► measured ─► drain ─► stop ─► correctness box
//!                                  generator, faults        edges at rest,
//!                                  looks at processes       reports at the cloud
//! ```

mod files;
mod looking;
mod wire;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use headwater_edge::StartError;
use headwater_event::{NameError, NodeName};
use tokio::sync::Mutex;
use tokio::task::JoinError;

use crate::correctness::{Check, Correctness, CorrectnessError};
use crate::deployment::AttachError;
use crate::edges::{Edges, EndedEdges};
use crate::generator::{Driven, Generator, GeneratorError, Progress};
use crate::hops::Hops;
use crate::latency::Latency;
use crate::light::{LightSettings, Reports};
use crate::machine::{Machine, Versions};
use crate::metrics;
use crate::picture;
use crate::record::{FORMAT, FaultDone, Latencies, RecordError, Run, Throughput};
use crate::scenario::{Act, EdgeKind, Fault, RecordKind, Scenario, TargetKind};
use crate::schedule::Schedule;
use crate::sightings::Sightings;
use crate::target::{Place, StoppedError, StoppedTarget, Target, TargetError, TargetSettings};
use crate::watching::{Group, Witness};

use self::looking::{Looking, Observations};

pub use self::files::TooFewFiles;

/// How long it may take until every edge has what there is before the first change.
const SET_UP_MAX: Duration = Duration::from_secs(180);

/// From the set-up to the first moment of the schedule.
const BEFORE_FIRST: Duration = Duration::from_millis(300);

/// Between two looks at whether something has come about.
const POLL: Duration = Duration::from_millis(20);

/// The length of an interval over time.
const INTERVAL: Duration = Duration::from_secs(1);

/// What the controller has still to fold of what nodes report.
const UPSTREAM_LAG: &str = "headwater_controller_upstream_lag_records";

/// What is run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// The scenario.
    pub scenario: Scenario,
    /// What it runs on, which the scenario supports.
    pub place: Place,
    /// From which the schedule is made.
    pub seed: u64,
    /// Where the record goes; made if it is not there.
    pub out: PathBuf,
    /// Something to do to an edge's replica before the box is made: a test of the box.
    pub tamper: Option<fn(&crate::target::NodeDisks)>,
}

/// The receiver of a run's progress.
pub trait Observer: Send + Sync + 'static {
    /// A part of the run begins.
    fn phase(&self, what: &str);

    /// How far the load is; some times a second.
    fn live(&self, live: Live);
}

/// How far the load is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Live {
    /// Changes handed over, of `changes`.
    pub handed_over: u64,
    /// Changes of the schedule.
    pub changes: u64,
    /// Changes seen at edges so far.
    pub seen: u64,
    /// How late the last change was handed over.
    pub lag: Duration,
    /// Lines that wait for the controller.
    pub waiting: u64,
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no room for the record.
    #[error("{path} cannot be made", path = path.display())]
    Out {
        /// Which folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Files that may be open are too few.
    #[error(transparent)]
    Files(#[from] TooFewFiles),
    /// The target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The deployment still has objects of the run.
    #[error("the run's objects cannot be removed")]
    Attach(#[from] AttachError),
    /// A light edge does not start.
    #[error("a light edge does not start")]
    Edge(#[from] StartError),
    /// The way in.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    /// The edges did not get what there is before the first change.
    #[error("after {} s {missing} objects are not yet where they are to be before the first change\n{said}", SET_UP_MAX.as_secs())]
    SetUp {
        /// Pairs of edge and object.
        missing: usize,
        /// The cloud's output.
        said: String,
    },
    /// What was left cannot be read.
    #[error(transparent)]
    StoppedTarget(#[from] StoppedError),
    /// What was left cannot be compared.
    #[error(transparent)]
    Correctness(#[from] CorrectnessError),
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A name of a node.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A task broke: a defect.
    #[error("a part of the harness broke")]
    Broke(#[from] JoinError),
    /// There is no runtime.
    #[error("no threads")]
    Runtime(#[source] io::Error),
}

/// Runs a scenario and writes its record into `settings.out`.
///
/// # Errors
/// See [`RunError`]; a run that is wrong or void is a record all the same.
pub fn run(settings: RunSettings, observer: Arc<dyn Observer>) -> Result<Run, RunError> {
    let out = &settings.out;
    fs::create_dir_all(out).map_err(|source| RunError::Out { path: out.clone(), source })?;
    files::make_room(&settings.scenario.edges)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(RunError::Runtime)?.block_on(Running::run(settings, observer))
}

/// What a run consists of while it goes on.
struct Running {
    settings: RunSettings,
    observer: Arc<dyn Observer>,
    nodes: Vec<NodeName>,
    schedule: Arc<Schedule>,
    propagation: Arc<Latency>,
    round_trip: Arc<Latency>,
    sightings: Arc<Sightings>,
    target: Arc<Mutex<Target>>,
    edges: Edges,
    hops: Option<Hops>,
}

/// What the load came to.
struct LoadOutcome {
    driven: Driven,
    faults: Vec<FaultDone>,
    looked: Observations,
    set_up_s: f64,
    visible: u64,
    at_rest_after_s: Option<f64>,
}

impl Running {
    async fn run(settings: RunSettings, observer: Arc<dyn Observer>) -> Result<Run, RunError> {
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let running = Self::start(settings, observer).await?;
        match running.load().await {
            Ok(loaded) => running.end(started, loaded).await,
            Err(error) => {
                let target = running.target.clone();
                running.edges.stop().await;
                // Why there is no record matters more than what is left.
                let _ = target.lock().await.clear().await;
                Err(error)
            }
        }
    }

    async fn start(settings: RunSettings, observer: Arc<dyn Observer>) -> Result<Self, RunError> {
        let scenario = &settings.scenario;
        let nodes = settings.place.nodes(scenario.edges.count)?;
        let schedule = Arc::new(Schedule::new(scenario, settings.seed));
        let [propagation, round_trip] = [(); 2].map(|()| Arc::new(Latency::new(INTERVAL)));
        let sightings = Arc::new(Sightings::new(
            schedule.clone(),
            nodes.len(),
            scenario.edges.behind_hops,
            scenario.warm_up,
            propagation.clone(),
        ));
        observer.phase(&format!("starting {} on {}", scenario.name, settings.place.kind()));
        let told = TargetSettings {
            place: settings.place.clone(),
            nodes: nodes.clone(),
            starts_edges: scenario.edges.kind == EdgeKind::Real,
        };
        let target = tokio::task::spawn_blocking(move || Target::start(told)).await??;
        target.clear().await?;
        let groups = match scenario.objects.services {
            0 => vec![Group::Edged],
            _ => vec![Group::Edged, Group::Mesh],
        };
        let hops = target.hub().map(|hub| Hops::start(hub, scenario.edges.behind_hops));
        let told = LightSettings {
            nodes: nodes.clone(),
            hops: hops.as_ref().map(Hops::addresses).unwrap_or_default(),
            hubs: target.hub().into_iter().collect(),
            reports: if scenario.edges.echo { Reports::Echo } else { Reports::Running },
            groups,
        };
        let witness: Arc<dyn Witness> = sightings.clone();
        let edges = Edges::start(scenario.edges.kind, &target, &told, &witness)?;
        let target = Arc::new(Mutex::new(target));
        Ok(Self {
            settings,
            observer,
            nodes,
            schedule,
            propagation,
            round_trip,
            sightings,
            target,
            edges,
            hops,
        })
    }

    /// Sets up, drives, and waits until all is at rest.
    async fn load(&self) -> Result<LoadOutcome, RunError> {
        let scenario = &self.settings.scenario;
        let (generator, set_up_s) = self.set_up().await?;
        let began = Instant::now() + BEFORE_FIRST;
        let measured = began + scenario.warm_up;
        self.sightings.begin(began);
        self.propagation.begin(measured);
        self.round_trip.begin(measured);
        let progress = generator.progress().clone();
        self.observer.phase("load");
        let picture_at = self.target.lock().await.picture();
        let echoes = scenario.record.contains(&RecordKind::RoundTrip).then(|| {
            let socket = picture_at.clone();
            let (schedule, latency) = (self.schedule.clone(), self.round_trip.clone());
            tokio::spawn(picture::watch(socket, schedule, began, scenario.warm_up, latency))
        });
        let looking = Looking::start(
            self.target.clone(),
            vec![self.propagation.clone(), self.round_trip.clone()],
            self.edges.wire(),
            measured,
            scenario.duration,
        );
        let driving = {
            let (schedule, nodes) = (self.schedule.clone(), self.nodes.clone());
            let warm_up = scenario.warm_up;
            tokio::task::spawn_blocking(move || generator.drive(&schedule, &nodes, began, warm_up))
        };
        let showing = self.show(&progress);
        let (driven, faults) = tokio::select! {
            both = async { tokio::join!(driving, self.faults(measured)) } => both,
            never = showing => match never {},
        };
        let driven = driven??;
        tokio::time::sleep_until((measured + scenario.duration).into()).await;
        let visible = self.propagation.count();
        let at_rest_after_s = self.drain(measured + scenario.duration).await;
        let looked = tokio::task::spawn_blocking(move || looking.end()).await?;
        if let Some(echoes) = echoes {
            echoes.abort();
        }
        Ok(LoadOutcome { driven, faults, looked, set_up_s, visible, at_rest_after_s })
    }

    async fn set_up(&self) -> Result<(Generator, f64), RunError> {
        self.observer.phase("setting up");
        let began = Instant::now();
        let objects = self.target.lock().await.objects().to_owned();
        let (schedule, nodes) = (self.schedule.clone(), self.nodes.clone());
        let setting_up = move || Generator::set_up(&objects, &schedule, &nodes);
        let generator = tokio::task::spawn_blocking(setting_up).await??;
        while !self.sightings.is_set_up() {
            if began.elapsed() > SET_UP_MAX {
                let target = self.target.lock().await;
                let said = target.said(target.cloud());
                return Err(RunError::SetUp { missing: self.sightings.restless(), said });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok((generator, began.elapsed().as_secs_f64()))
    }

    async fn show(&self, progress: &Progress) -> std::convert::Infallible {
        loop {
            self.observer.live(Live {
                handed_over: progress.handed_over(),
                changes: self.schedule.turns.len() as u64,
                seen: self.sightings.count(),
                lag: progress.lag(),
                waiting: progress.waiting(),
            });
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Does what is to be done to the parts, each at its moment.
    async fn faults(&self, measured: Instant) -> Vec<FaultDone> {
        let mut faults = self.settings.scenario.faults.clone();
        faults.sort_by_key(|fault| fault.at);
        let mut done = Vec::new();
        for fault in faults {
            tokio::time::sleep_until((measured + fault.at).into()).await;
            let at_s = measured.elapsed().as_secs_f64();
            let failed = self.fault(&fault).await.err().map(|error| error.to_string());
            let count = fault.edges.map(|count| format!(" (first {count})")).unwrap_or_default();
            done.push(FaultDone {
                at_s,
                what: format!("{} {}{count}", fault.act, fault.to),
                failed,
            });
        }
        done
    }

    async fn fault(&self, fault: &Fault) -> Result<(), TargetError> {
        if let Some((hops, hop)) = self.hops.as_ref().zip(fault.hop()) {
            return hops.act(fault.act, hop);
        }
        if fault.to != "edges" {
            let (target, act, to) = (self.target.clone(), fault.act, fault.to.clone());
            let acting = tokio::task::spawn_blocking(move || target.blocking_lock().act(act, &to));
            return acting.await.unwrap_or_else(|_| {
                Err(TargetError::Impossible { act: fault.act, part: fault.to.clone() })
            });
        }
        let count = fault.edges.unwrap_or(self.nodes.len()).min(self.nodes.len());
        for (edge, node) in self.nodes.iter().enumerate().take(count) {
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

    /// Waits until every edge is at the end of its streams and the cloud has its reports. Returns the
    /// time from `ended` until the edges were there.
    async fn drain(&self, ended: Instant) -> Option<f64> {
        self.observer.phase("draining");
        let deadline = Instant::now() + self.settings.scenario.drain;
        while !self.sightings.is_at_rest() {
            if Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(POLL).await;
        }
        let at_rest_after_s = ended.elapsed().as_secs_f64();
        let mut edge = 0;
        while edge < self.nodes.len() && Instant::now() < deadline {
            match self.edges.status(edge).await {
                Some(status) if status.outbox_depth == 0 => edge += 1,
                _ => tokio::time::sleep(POLL).await,
            }
        }
        // What was acknowledged is in the log; the controller's fold of it follows.
        let cloud = {
            let target = self.target.lock().await;
            target.metrics(target.cloud())
        };
        if let Some(cloud) = cloud {
            let lags = move || {
                let lag = metrics::sums(cloud, [UPSTREAM_LAG], metrics::ANSWER_MAX);
                !lag.is_ok_and(|[lag]| lag == Some(0.0))
            };
            while Instant::now() < deadline
                && tokio::task::spawn_blocking(lags).await.unwrap_or(false)
            {
                tokio::time::sleep(POLL).await;
            }
        }
        Some(at_rest_after_s)
    }

    /// Stops everything, makes the box, and writes the record.
    async fn end(self, started: String, loaded: LoadOutcome) -> Result<Run, RunError> {
        self.observer.phase("checking");
        let Self { settings, nodes, schedule, propagation, round_trip, sightings, .. } = self;
        let ended = self.edges.stop().await;
        let target = Arc::into_inner(self.target).map(Mutex::into_inner);
        let mut check = Check::default();
        check.run(sightings.account(), &loaded.driven.answers, sightings.findings());
        if let Some(target) = target {
            let stopped = tokio::task::spawn_blocking(|| target.stop()).await??;
            let compared = compare(&mut check, &nodes, &ended, &stopped, settings.tamper).await;
            stopped.clear().await?;
            compared?;
        }
        let correctness = check.done();
        let record =
            record(&settings, started, &schedule, loaded, correctness, [&propagation, &round_trip]);
        files::write(&record, &settings.out, &propagation, &round_trip)?;
        Ok(record)
    }
}

/// Reads what everyone left behind and compares it.
async fn compare(
    check: &mut Check,
    nodes: &[NodeName],
    ended: &EndedEdges,
    stopped: &StoppedTarget,
    tamper: Option<fn(&crate::target::NodeDisks)>,
) -> Result<(), RunError> {
    let picture = stopped.picture().await?;
    for disks in ended.disks(nodes, stopped) {
        let disks = disks?;
        if let Some(tamper) = tamper {
            tamper(&disks);
        }
        check.node(&disks, &picture)?;
    }
    Ok(check.log(&*stopped.downstream()?).await?)
}

fn record(
    settings: &RunSettings,
    started: String,
    schedule: &Schedule,
    loaded: LoadOutcome,
    correctness: Correctness,
    [propagation, round_trip]: [&Latency; 2],
) -> Run {
    let scenario = &settings.scenario;
    let LoadOutcome { driven, faults, looked, set_up_s, visible, at_rest_after_s } = loaded;
    let latencies = |latency: &Latency| Latencies {
        quantiles: latency.whole(),
        percentiles: latency.percentiles(),
        over_time: latency.over_time(),
    };
    let seconds = scenario.duration.as_secs_f64();
    let measured = schedule.turns.iter().filter(|turn| turn.at >= scenario.warm_up).count();
    let void = (!driven.kept_up()).then(|| {
        let (lag, at) = match (driven.lag.p99_ms, driven.lag.max_ms) {
            (Some(lag), _) => (lag, "its 99th percentile"),
            (None, lag) => (lag.unwrap_or_default(), "its worst, of too few for a percentile"),
        };
        let hint = if driven.real_time {
            ""
        } else {
            "; as root, or with a real-time limit (ulimit -r 1), its thread goes before all others"
        };
        format!(
            "the generator was {lag:.2} ms late at {at}: this machine was too busy to drive \
             the load{hint}"
        )
    });
    let right = correctness.right;
    let records_round_trip = scenario.record.contains(&RecordKind::RoundTrip);
    Run {
        format: FORMAT,
        started,
        target: settings.place.kind(),
        edges: scenario.edges.kind,
        edges_are: edges_are(settings.place.kind(), scenario.edges.kind, scenario.edges.count),
        seed: settings.seed,
        machine: Machine::here(),
        versions: Versions::here(),
        void,
        saturated: looked.costs.saturated(),
        propagation: right.then(|| latencies(propagation)),
        round_trip: (right && records_round_trip).then(|| latencies(round_trip)),
        correctness,
        throughput: Throughput {
            changes: driven.handed_over,
            intended_per_s: measured as f64 / seconds,
            visible_per_s: visible as f64 / seconds,
            set_up_s,
            at_rest_after_s,
        },
        generator: driven,
        faults,
        costs: looked.costs,
        wire: looked.wire,
        scenario: scenario.clone(),
    }
}

/// What the edges were, and what a figure of theirs therefore leaves out.
fn edges_are(target: TargetKind, kind: EdgeKind, count: usize) -> String {
    match (kind, target) {
        (EdgeKind::Real, TargetKind::Embedded) => {
            format!("{count} real, with RocksDB, in the one process of `headwater up`; hollow pods")
        }
        (EdgeKind::Real, TargetKind::Cluster | TargetKind::Attached) => {
            format!("{count} real, a process with RocksDB each; hollow pods")
        }
        (EdgeKind::Light, target) => {
            let clock = match target {
                TargetKind::Attached => "; load and edges have one clock, its error is 0",
                TargetKind::Embedded | TargetKind::Cluster => "",
            };
            format!(
                "{count} light, in the process of the harness: the edge's own code over databases \
                 in memory; no RocksDB, no pod worker{clock}"
            )
        }
    }
}
