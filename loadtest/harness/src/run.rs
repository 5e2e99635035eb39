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
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::correctness::Correctness;
use crate::disks::NodeDisks;
use crate::failure::{Attempt, Failure};
use crate::generator::Answers;
use crate::inventory::Inventory;
use crate::latency::Latency;
use crate::light::Reports;
use crate::machine::{Machine, Versions};
use crate::pacer::Lag;
use crate::picture;
use crate::record::{Driven, FORMAT, FaultDone, Latencies, Run, Throughput};
use crate::scenario::{EdgeKind, RecordKind, Scenario, TargetKind};
use crate::schedule::{self, Turn};
use crate::sightings::Load;
use crate::target::Place;
use crate::testbed::{Testbed, TestbedSettings};

use self::looking::{Looking, Observations};

/// From the set-up to the first moment of the schedule.
const BEFORE_FIRST: Duration = Duration::from_millis(300);

/// The length of an interval over time.
const INTERVAL: Duration = Duration::from_secs(1);

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
    pub tamper: Option<fn(&NodeDisks)>,
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

/// Runs a scenario and writes its record into `settings.out`.
///
/// # Errors
/// When something cannot be run; a run that is wrong or void is a record all the same.
pub fn run(settings: RunSettings, observer: Arc<dyn Observer>) -> Result<Run, Failure> {
    let out = &settings.out;
    fs::create_dir_all(out).tried(&format!("{} cannot be made", out.display()))?;
    files::make_room(&settings.scenario.edges)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.tried("no threads")?.block_on(Running::run(settings, observer))
}

/// What a run consists of while it goes on.
struct Running {
    settings: RunSettings,
    observer: Arc<dyn Observer>,
    turns: Arc<[Turn]>,
    propagation: Arc<Latency>,
    round_trip: Arc<Latency>,
    testbed: Testbed,
}

/// What the load came to.
struct LoadOutcome {
    lag: Lag,
    handed_over: u64,
    faults: Vec<FaultDone>,
    looked: Observations,
    set_up_s: f64,
    visible: u64,
    at_rest_after_s: Option<f64>,
}

impl Running {
    async fn run(settings: RunSettings, observer: Arc<dyn Observer>) -> Result<Run, Failure> {
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut running = Self::start(settings, observer).await?;
        match running.load().await {
            Ok(loaded) => running.end(started, loaded).await,
            Err(error) => {
                running.testbed.abandon().await;
                Err(error)
            }
        }
    }

    async fn start(settings: RunSettings, observer: Arc<dyn Observer>) -> Result<Self, Failure> {
        let scenario = &settings.scenario;
        let nodes = settings.place.nodes(scenario.edges.count)?;
        let objects = schedule::objects(scenario);
        let turns = schedule::turns(scenario, &objects, settings.seed).into();
        let [propagation, round_trip] = [(); 2].map(|()| Arc::new(Latency::new(INTERVAL)));
        observer.phase(&format!("starting {} on {}", scenario.name, settings.place.kind()));
        let testbed = Testbed::start(TestbedSettings {
            place: settings.place.clone(),
            inventory: Inventory { nodes, objects, seed: settings.seed },
            edges: scenario.edges.kind,
            reports: if scenario.edges.echo { Reports::Echo } else { Reports::Running },
            behind_hops: scenario.edges.behind_hops,
            unmeasured: scenario.edges.behind_hops,
            streams: None,
        });
        let testbed = testbed.await?;
        Ok(Self { settings, observer, turns, propagation, round_trip, testbed })
    }

    /// Sets up, drives, and waits until all is at rest.
    async fn load(&mut self) -> Result<LoadOutcome, Failure> {
        self.observer.phase("setting up");
        let setting_up = Instant::now();
        self.testbed.connect(self.settings.scenario.edges.count).await?;
        let objects = self.testbed.inventory().objects.len();
        self.testbed.set_up(0..u32::try_from(objects).unwrap_or(u32::MAX)).await?;
        let set_up_s = setting_up.elapsed().as_secs_f64();

        let (scenario, testbed) = (&self.settings.scenario, &self.testbed);
        let began = Instant::now() + BEFORE_FIRST;
        let measured = began + scenario.warm_up;
        self.propagation.begin(measured);
        self.round_trip.begin(measured);
        self.observer.phase("load");
        let picture_at = testbed.target().await.picture();
        let echoes = scenario.record.contains(&RecordKind::RoundTrip).then(|| {
            let (turns, latency) = (self.turns.clone(), self.round_trip.clone());
            tokio::spawn(picture::watch(picture_at, turns, began, scenario.warm_up, latency))
        });
        let looking = Looking::start(
            testbed.shared_target(),
            vec![self.propagation.clone(), self.round_trip.clone()],
            testbed.wire(),
            measured,
            scenario.duration,
        );
        let latency = self.propagation.clone();
        let load = Load { began, measured_from: scenario.warm_up, latency };
        let driving = testbed.drive(self.turns.clone(), load);
        let (lag, faults) = tokio::select! {
            both = async { tokio::join!(driving, self.faults(measured)) } => both,
            never = self.show() => match never {},
        };
        let lag = lag?;
        let ended = measured + scenario.duration;
        tokio::time::sleep_until(ended.into()).await;
        let visible = testbed.sightings().measured();
        self.observer.phase("draining");
        let deadline = Instant::now() + scenario.drain;
        let is_at_rest = testbed.at_rest(0..scenario.edges.count, scenario.drain).await;
        let at_rest_after_s = is_at_rest.then(|| ended.elapsed().as_secs_f64());
        if is_at_rest {
            testbed.reported(deadline).await;
        }
        let looked = tokio::task::spawn_blocking(move || looking.end()).await;
        let looked = looked.tried("a part of the harness broke")?;
        if let Some(echoes) = echoes {
            echoes.abort();
        }
        let handed_over = testbed.generator().progress().handed_over();
        Ok(LoadOutcome { lag, handed_over, faults, looked, set_up_s, visible, at_rest_after_s })
    }

    async fn show(&self) -> std::convert::Infallible {
        let progress = self.testbed.generator().progress();
        loop {
            self.observer.live(Live {
                handed_over: progress.handed_over(),
                changes: self.turns.len() as u64,
                seen: self.testbed.sightings().count(),
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
            let failed = self.testbed.act(&fault).await.err().map(|error| error.to_string());
            let count = fault.edges.map(|count| format!(" (first {count})")).unwrap_or_default();
            let what = format!("{} {}{count}", fault.act, fault.to);
            done.push(FaultDone { at_s, what, failed });
        }
        done
    }

    /// Stops everything, makes the box, and writes the record.
    async fn end(self, started: String, loaded: LoadOutcome) -> Result<Run, Failure> {
        self.observer.phase("checking");
        let Self { settings, turns, propagation, round_trip, testbed, .. } = self;
        let (correctness, answers) = testbed.end(settings.tamper).await?;
        let latencies = [&*propagation, &*round_trip];
        let record = record(&settings, started, &turns, loaded, correctness, answers, latencies);
        files::write(&record, &settings.out, &propagation, &round_trip)?;
        Ok(record)
    }
}

fn record(
    settings: &RunSettings,
    started: String,
    turns: &[Turn],
    loaded: LoadOutcome,
    correctness: Correctness,
    answers: Answers,
    [propagation, round_trip]: [&Latency; 2],
) -> Run {
    let scenario = &settings.scenario;
    let LoadOutcome { lag, handed_over, faults, looked, set_up_s, visible, at_rest_after_s } =
        loaded;
    let latencies = |latency: &Latency| Latencies {
        quantiles: latency.whole(),
        percentiles: latency.percentiles(),
        over_time: latency.over_time(),
    };
    let seconds = scenario.duration.as_secs_f64();
    let measured = turns.iter().filter(|turn| turn.at >= scenario.warm_up).count();
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
        void: void(&lag),
        saturated: looked.costs.saturated(),
        propagation: right.then(|| latencies(propagation)),
        round_trip: (right && records_round_trip).then(|| latencies(round_trip)),
        correctness,
        throughput: Throughput {
            changes: handed_over,
            intended_per_s: measured as f64 / seconds,
            visible_per_s: visible as f64 / seconds,
            set_up_s,
            at_rest_after_s,
        },
        generator: Driven { lag, handed_over, answers },
        faults,
        costs: looked.costs,
        wire: looked.wire,
        scenario: scenario.clone(),
    }
}

/// Why the figures do not count, if the generator was late.
fn void(lag: &Lag) -> Option<String> {
    if lag.kept_up() {
        return None;
    }
    let at = match lag.quantiles.p99_ms {
        Some(_) => "its 99th percentile",
        None => "its worst, of too few for a percentile",
    };
    let hint = if lag.real_time {
        ""
    } else {
        "; as root, or with a real-time limit (ulimit -r 1), its thread goes before all others"
    };
    let late = lag.judged_ms();
    Some(format!(
        "the generator was {late:.2} ms late at {at}: this machine was too busy to drive the \
         load{hint}"
    ))
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
