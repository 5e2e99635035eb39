//! Row 17: what was measured of KubeEdge on a machine like this one, done by Headwater.
//!
//! Controller, hub, edge (hollow pods) and Kafka are processes, and a hop between edge and hub
//! counts bytes. Objects enter through the controller's socket where KubeEdge has a Kubernetes
//! API: what that takes is in its figures and not in ours, as Kafka is in ours and not in its.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::proxy::{Conditions, Proxy, Traffic};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::kernel::joint_bytes;
use headwater_loadtest::scenario::{Act, EdgeKind};
use headwater_loadtest::schedule::{Turn, at_once, at_rate};

use crate::bound::Bound;
use crate::cluster::{Cluster, Nodes};
use crate::figure::{Figure, RowResult};
use crate::pods::{PODS_PER_NODE, pods};
use crate::run::Run;
use crate::waiting::{QUIET, quiet, wait};

const OBJECT_BYTES: usize = 1_600;
const NODE: &str = "node-1";
const CLOUD: [&str; 2] = ["controller", "hub"];

/// The pods of the large figures.
const MANY: u32 = 1_000;

/// What else is killed in the midst of.
const BURST: u32 = 500;

/// The samples behind a p99.
const P99_SAMPLES: u32 = 1_000;

/// The wait for earlier changes to end.
const REST: Duration = Duration::from_secs(3);

/// Measures it.
///
/// # Errors
/// When something is not seen at all.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let mut measured = RowResult::default();
    let paced = run.pick(PODS_PER_NODE, P99_SAMPLES);
    let mut world = World::start(paced)?;
    world.memory("no pods", [(69.0, 25.0), (101.0, 15.0)], &mut measured)?;
    world.paced(paced, &mut measured)?;
    world.idle(run, &mut measured)?;
    world.at_once(&mut measured)?;
    world.comes_back(&mut measured)?;
    world.killed(&mut measured)?;
    world.cluster.end()?;
    measured.set("pods", format!("about {OBJECT_BYTES} bytes of JSON each, hollow, on one node"));
    measured.set("parts", "controller, hub, edge and Kafka, a process each; no TLS");
    measured.set("floor", "what KubeEdge took on a machine like this, the faster of its runs");
    measured.set("memory", "with files; what controller and hub have in common counts once");
    measured.note(
        "KubeEdge's figures are of its master of 2026 over websocket and TLS, with a Kubernetes \
         API in front and without a Kafka; ours have a Kafka, and neither TLS nor an API.",
    );
    Ok(measured)
}

/// The parts, and the pods that were made so far: none is made twice.
struct World {
    cluster: Cluster,
    made: u32,
}

/// What passed and what was used between two moments.
struct Spent {
    passed: Traffic,
    cloud: Duration,
    edge: Duration,
}

impl World {
    fn start(paced: u32) -> Result<Self, Failure> {
        let nodes = Nodes { count: 1, kind: EdgeKind::Real, behind_hops: 1, unmeasured: 0 };
        let all = 1 + paced + 2 * MANY + (MANY - PODS_PER_NODE) + 2 * BURST;
        let mut cluster = Cluster::start(nodes, pods(1, all, OBJECT_BYTES))?;
        cluster.connect(1)?;
        let mut world = Self { cluster, made: 0 };
        // Everything is connected when the first pod has come and gone.
        let first = world.next(1);
        world.load(at_once(first.clone(), false))?;
        world.load(at_once(first, true))?;
        Ok(world)
    }

    /// One create or update after the other, as a person or a controller makes them.
    fn paced(&mut self, count: u32, measured: &mut RowResult) -> Result<(), Failure> {
        let created = self.next(count);
        let latency = self.cluster.load(at_rate(5, created.clone()), Duration::ZERO)?.latency;
        measured.push_latency("create, 5/s", &latency, [(11.7, 4.0), (23.0, 12.0)]);
        let first = created.end - PODS_PER_NODE;
        self.load(at_once(created.start..first, true))?;
        let updated = (0..count).map(|turn| first + turn % PODS_PER_NODE);
        let latency = self.cluster.load(at_rate(5, updated), Duration::ZERO)?.latency;
        measured.push_latency("update, 5/s", &latency, [(4.4, 3.0), (29.0, 10.0)]);
        self.memory("110 pods", [(81.0, 28.0), (105.0, 18.0)], measured)?;
        let created = self.next(MANY);
        let latency = self.cluster.load(at_rate(50, created.clone()), Duration::ZERO)?.latency;
        measured.push_latency(
            "create, 50/s for 20 s",
            &latency,
            [(4_700.0, 4.0), (12_000.0, 12.0)],
        );
        self.load(at_once(created, true)).map(drop)
    }

    /// What it costs that nothing happens at 110 pods.
    fn idle(&mut self, run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
        self.rest()?;
        let watched = run.pick(Duration::from_secs(30), Duration::from_secs(300));
        let before = self.spent()?;
        thread::sleep(watched);
        let spent = self.spent()?.since(&before);
        let percent = |time: Duration| 100.0 * time.as_secs_f64() / watched.as_secs_f64();
        let a_minute = 60.0 / watched.as_secs_f64();
        for (what, value, floor, target) in [
            ("idle: % of a core, edge", percent(spent.edge), 4.7, 0.5),
            ("idle: bytes down a minute", spent.passed.down as f64 * a_minute, 7_500.0, 300.0),
            ("idle: bytes up a minute", spent.passed.up as f64 * a_minute, 9_400.0, 300.0),
        ] {
            beside(measured, what, value, floor, target);
        }
        measured.push(Figure::alone(
            "idle: % of a core, controller and hub",
            percent(spent.cloud).into(),
        ));
        Ok(())
    }

    /// A thousand pods come at once, and go.
    fn at_once(&mut self, measured: &mut RowResult) -> Result<(), Failure> {
        self.rest()?;
        let created = self.next(MANY);
        let before = self.spent()?;
        let took = self.load(at_once(created.clone(), false))?;
        self.rest()?;
        let spent = self.spent()?.since(&before);
        let each = |sum: f64| sum / f64::from(MANY);
        let ms = |time: Duration| each(time.as_secs_f64() * 1e3);
        for (what, value, floor, target) in [
            ("1000 creates at once: s after the last write", took, 30.0, 0.5),
            ("1000 creates: bytes down a pod", each(spent.passed.down as f64), 1_930.0, 300.0),
            ("1000 creates: bytes up a pod", each(spent.passed.up as f64), 352.0, 20.0),
            ("1000 creates: ms of the cloud a pod", ms(spent.cloud), 3.0, 0.15),
            ("1000 creates: ms of the edge a pod", ms(spent.edge), 2.4, 0.1),
        ] {
            beside(measured, what, value, floor, target);
        }
        self.memory("1110 pods", [(98.0, 40.0), (111.0, 25.0)], measured)?;
        let took = self.load(at_once(created, true))?;
        beside(measured, "1000 deletes at once: s after the last write", took, 29.0, 0.5);
        Ok(())
    }

    /// The edge was away: nothing changed; ten of a thousand pods changed and ten are gone.
    fn comes_back(&mut self, measured: &mut RowResult) -> Result<(), Failure> {
        let created = self.next(MANY - PODS_PER_NODE);
        self.load(at_once(created.clone(), false))?;
        let (passed, _) = self.away(Vec::new())?;
        let both = (passed.down + passed.up) as f64;
        beside(measured, "resume, nothing changed: bytes both ways", both, 3_600.0, 300.0);
        let last = created.end;
        let mut turns = at_once(last - 20..last - 10, false);
        turns.extend(at_once(last - 10..last, true));
        let (passed, ms) = self.away(turns)?;
        for (what, value, floor, target) in [
            ("resume, 10 changed and 10 deleted: bytes down", passed.down as f64, 24_500.0, 4e3),
            ("resume, 10 changed and 10 deleted: bytes up", passed.up as f64, 9_300.0, 500.0),
            ("resume, 10 changed and 10 deleted: ms from connecting", ms, 900.0, 50.0),
        ] {
            beside(measured, what, value, floor, target);
        }
        Ok(())
    }

    /// Parts are killed in the midst of a burst, and started again.
    fn killed(&mut self, measured: &mut RowResult) -> Result<(), Failure> {
        let s = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        let pods = self.next(BURST);
        let middle = pods.start + BURST / 2;
        self.cluster.say(at_once(pods.start..middle, false))?;
        self.cluster.act(Act::Kill, NODE)?;
        self.cluster.say(at_once(middle..pods.end, false))?;
        let started = Instant::now();
        self.cluster.act(Act::Start, NODE)?;
        let seen = self.cluster.seen()?;
        let what = "edge killed in a burst of 500 creates: s to right";
        beside(measured, what, s(started, seen), 10.0, 1.0);

        let pods = self.next(BURST);
        let middle = pods.start + BURST / 2;
        self.cluster.say(at_once(pods.start..middle, false))?;
        for part in CLOUD {
            self.cluster.act(Act::Kill, part)?;
        }
        let started = Instant::now();
        for part in CLOUD {
            self.cluster.act(Act::Start, part)?;
        }
        // The killed controller may have lost the last lines: a client sends them again.
        self.cluster.reconnect()?;
        self.cluster.say(at_once(pods, false))?;
        let seen = self.cluster.seen()?;
        let what = "cloud killed in a burst of 500 creates: s to right";
        beside(measured, what, s(started, seen), 46.0, 3.0);
        Ok(())
    }

    /// The next `count` pods, which were not made yet.
    fn next(&mut self, count: u32) -> Range<u32> {
        let first = self.made;
        self.made += count;
        first..self.made
    }

    /// Runs a load, and gives how many seconds after the last write the last of it was seen.
    fn load(&self, turns: Vec<Turn>) -> Result<f64, Failure> {
        let taken = self.cluster.load(turns, Duration::ZERO)?;
        Ok(taken.seen.saturating_duration_since(taken.written).as_secs_f64())
    }

    fn hop(&self) -> Result<&Proxy, Failure> {
        self.cluster.hop(0)
    }

    /// Cuts the link while changes are sent. Returns what the return took on the wire, and its
    /// milliseconds from the first byte.
    fn away(&self, turns: Vec<Turn>) -> Result<(Traffic, f64), Failure> {
        self.rest()?;
        let hop = self.hop()?;
        hop.set(Conditions { closed: true, ..Conditions::default() });
        hop.cut();
        self.cluster.say(turns)?;
        self.cloud_at_rest()?;
        let before = hop.traffic();
        hop.set(Conditions::default());
        wait("the edge connects", || (hop.traffic().down > before.down).then_some(()))?;
        let began = Instant::now();
        let seen = self.cluster.seen()?;
        let ms = seen.saturating_duration_since(began).as_secs_f64() * 1e3;
        Ok((quiet(hop)?.since(before), ms))
    }

    /// Waits until controller and hub say again and again that the node's stream ends at the same seq.
    fn cloud_at_rest(&self) -> Result<(), Failure> {
        let stream = format!("node/{NODE}");
        let tail = |part: &str| {
            let status = self.cluster.status(part)?;
            let nodes = status["nodes"].as_array()?;
            let streams = nodes.iter().flat_map(|node| node["streams"].as_array());
            let of_node = streams.flatten().find(|one| one["stream"] == stream.as_str())?;
            of_node["tail"].as_u64()
        };
        let both = || tail("controller").filter(|end| tail("hub") == Some(*end));
        wait("controller and hub at rest", || {
            let before = both()?;
            thread::sleep(QUIET);
            both().filter(|now| *now == before).map(drop)
        })
    }

    /// Waits until the effects of earlier changes are complete.
    fn rest(&self) -> Result<(), Failure> {
        thread::sleep(REST);
        quiet(self.hop()?).map(drop)
    }

    fn memory(
        &self,
        what: &str,
        bounds: [(f64, f64); 2],
        measured: &mut RowResult,
    ) -> Result<(), Failure> {
        self.rest()?;
        let of = |parts: &[&str]| {
            let processes = parts.iter().map(|part| self.cluster.process(part));
            let processes = processes.collect::<Result<Vec<_>, _>>()?;
            let bytes = joint_bytes(&processes).tried("they do not run")?;
            Ok::<_, Failure>(bytes as f64 / 1e6)
        };
        let parts = [("controller and hub", of(&CLOUD)?), ("edge", of(&[NODE])?)];
        for ((part, mb), (floor, target)) in parts.into_iter().zip(bounds) {
            beside(measured, &format!("{what}: MB of memory, {part}"), mb, floor, target);
        }
        Ok(())
    }

    fn spent(&self) -> Result<Spent, Failure> {
        let taken = self.cluster.processor_times();
        let of = |part: &str| taken.get(part).copied().unwrap_or_default();
        let cloud = CLOUD.into_iter().map(of).sum();
        Ok(Spent { passed: self.hop()?.traffic(), cloud, edge: of(NODE) })
    }
}

/// Shows a figure beside KubeEdge's, which is its floor.
fn beside(measured: &mut RowResult, what: &str, value: f64, kubeedge: f64, target: f64) {
    measured.push(Figure::alone(what, value.into()).held_to(Bound::at_most(kubeedge, target)));
}

impl Spent {
    fn since(self, before: &Self) -> Self {
        Self {
            passed: self.passed.since(before.passed),
            cloud: self.cloud.saturating_sub(before.cloud),
            edge: self.edge.saturating_sub(before.edge),
        }
    }
}
