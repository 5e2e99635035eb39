//! Row 17: what was measured of KubeEdge on a machine like this one, done by Headwater.
//!
//! Controller, hub, edge (hollow pods) and Kafka are processes, and a hop between edge and hub
//! counts bytes. Objects enter through the controller's socket where KubeEdge has a Kubernetes
//! API: what that takes is in its figures and not in ours, as Kafka is in ours and not in its.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::fleet::Fleet;
use headwater_e2e::proxy::{Conditions, Proxy, Traffic};
use headwater_loadtest::kernel::{processor_time, resident_bytes};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bound::Bound;
use crate::failure::{Attempt, Failure};
use crate::figure::{Figure, RowResult};
use crate::kafka::{PARTITIONS, runtime};
use crate::link::{QUIET, quiet, wait};
use crate::pace::{Latency, Pace};
use crate::pods::{PODS_PER_NODE, name, pod};
use crate::process::{self, edge_socket, edge_status};
use crate::row::Run;
use crate::rows::propagation::P99_SAMPLES;
use crate::worker::Worker;

const OBJECT_BYTES: usize = 1_600;
const NODE: &str = "node-1";

/// The pods of the large figures.
const MANY: u64 = 1_000;

/// What else is killed in the midst of.
const BURST: u64 = 500;

/// The wait for earlier changes to end.
const REST: Duration = Duration::from_secs(3);

/// Measures it.
///
/// # Errors
/// When something is not seen at all.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let mut measured = RowResult::default();
    let mut world = World::start()?;
    world.memory("no pods", [(69.0, 25.0), (101.0, 15.0)], &mut measured)?;
    world.paced(run, &mut measured)?;
    world.idle(run, &mut measured)?;
    world.at_once(&mut measured)?;
    world.comes_back(&mut measured)?;
    world.killed(&mut measured)?;
    measured.set("pods", format!("about {OBJECT_BYTES} bytes of JSON each, hollow, on one node"));
    measured.set("parts", "controller, hub, edge and Kafka, a process each; no TLS");
    measured.set("floor", "what KubeEdge took on a machine like this, the faster of its runs");
    measured.set("memory", "RSS: what a part has of files and in common with others too");
    measured.note(
        "KubeEdge's figures are of its master of 2026 over websocket and TLS, with a Kubernetes \
         API in front and without a Kafka; ours have a Kafka, and neither TLS nor an API.",
    );
    Ok(measured)
}

/// The parts, and the way in.
struct World {
    fleet: Fleet,
    socket: PathBuf,
    source: UnixStream,
    hop: Proxy,
    worker: Worker,
    asking: Runtime,
    /// Turns sent so far: no pod ever has an earlier content again.
    turn: u64,
    /// Pods made so far: no name comes twice.
    made: u64,
}

/// What passed and what was used between two moments.
struct Spent {
    passed: Traffic,
    cloud: Duration,
    edge: Duration,
}

impl World {
    fn start() -> Result<Self, Failure> {
        let mut fleet = Fleet::on_one_broker(PARTITIONS);
        let socket = fleet.add_source("controller");
        fleet.add_hub("hub");
        let hop = Proxy::start(fleet.hub_address("hub"));
        fleet.add_edge_with(NODE, &[hop.address()], &["--insecure-loopback"]);
        let source = fleet.wait_for("the objects socket", |_| UnixStream::connect(&socket).ok());
        let asking = runtime("asking", 1)?;
        let worker = Worker::begin(edge_socket(fleet.part(NODE), NODE), &asking);
        let mut world = Self { fleet, socket, source, hop, worker, asking, turn: 0, made: 0 };
        // Everything is connected when the first pod has come and gone.
        world.create(1)?;
        world.has(1)?;
        world.delete(0..1)?;
        world.has(0)?;
        Ok(world)
    }

    /// One create or update after the other, as a person or a controller makes them.
    fn paced(&mut self, run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
        let count = run.pick(PODS_PER_NODE, P99_SAMPLES);
        let latency = self.at_pace(5, count, Self::create_line)?;
        push(measured, "create, 5/s", &latency, [(11.7, 4.0), (23.0, 12.0)]);
        let first = self.made - PODS_PER_NODE;
        self.delete(self.made - count..first)?;
        self.has(PODS_PER_NODE)?;
        let update = |world: &mut Self, n| world.line_of(first + n % PODS_PER_NODE);
        let latency = self.at_pace(5, count, update)?;
        push(measured, "update, 5/s", &latency, [(4.4, 3.0), (29.0, 10.0)]);
        self.memory("110 pods", [(81.0, 28.0), (105.0, 18.0)], measured)?;
        let latency = self.at_pace(50, MANY, Self::create_line)?;
        push(measured, "create, 50/s for 20 s", &latency, [(4_700.0, 4.0), (12_000.0, 12.0)]);
        let last = self.made;
        self.delete(last - MANY..last)?;
        self.has(PODS_PER_NODE).map(drop)
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
        let first = self.made;
        let before = self.spent()?;
        let done = self.create(MANY)?;
        let took = self.has(PODS_PER_NODE + MANY)?.saturating_duration_since(done);
        self.rest()?;
        let spent = self.spent()?.since(&before);
        let each = |sum: f64| sum / MANY as f64;
        let ms = |time: Duration| each(time.as_secs_f64() * 1e3);
        for (what, value, floor, target) in [
            ("1000 creates at once: s after the last write", took.as_secs_f64(), 30.0, 0.5),
            ("1000 creates: bytes down a pod", each(spent.passed.down as f64), 1_930.0, 300.0),
            ("1000 creates: bytes up a pod", each(spent.passed.up as f64), 352.0, 20.0),
            ("1000 creates: ms of the cloud a pod", ms(spent.cloud), 3.0, 0.15),
            ("1000 creates: ms of the edge a pod", ms(spent.edge), 2.4, 0.1),
        ] {
            beside(measured, what, value, floor, target);
        }
        self.memory("1110 pods", [(98.0, 40.0), (111.0, 25.0)], measured)?;
        let done = self.delete(first..first + MANY)?;
        let took = self.has(PODS_PER_NODE)?.saturating_duration_since(done).as_secs_f64();
        beside(measured, "1000 deletes at once: s after the last write", took, 29.0, 0.5);
        Ok(())
    }

    /// The edge was away: nothing changed; ten of a thousand pods changed and ten are gone.
    fn comes_back(&mut self, measured: &mut RowResult) -> Result<(), Failure> {
        self.create(MANY - PODS_PER_NODE)?;
        self.has(MANY)?;
        let (passed, _) = self.away(|_| Ok(()))?;
        let both = (passed.down + passed.up) as f64;
        beside(measured, "resume, nothing changed: bytes both ways", both, 3_600.0, 300.0);
        let last = self.made;
        let (passed, ms) = self.away(|world| {
            world.update(last - 20..last - 10)?;
            world.delete(last - 10..last).map(drop)
        })?;
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
        let there = MANY - 10;
        let s = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        self.create(BURST / 2)?;
        self.fleet.part_mut(NODE).kill();
        self.create(BURST / 2)?;
        let started = Instant::now();
        self.fleet.part_mut(NODE).start_again();
        let seen = self.has(there + BURST)?;
        let what = "edge killed in a burst of 500 creates: s to right";
        beside(measured, what, s(started, seen), 10.0, 1.0);

        let first = self.made;
        self.create(BURST / 2)?;
        for part in ["controller", "hub"] {
            self.fleet.part_mut(part).kill();
        }
        let started = Instant::now();
        for part in ["controller", "hub"] {
            self.fleet.part_mut(part).start_again();
        }
        // The killed controller may have lost the last lines: a client sends them again.
        let socket = self.socket.clone();
        self.source = wait("the objects socket again", || UnixStream::connect(&socket).ok())?;
        self.update(first..self.made)?;
        self.create(BURST / 2)?;
        let seen = self.has(there + 2 * BURST)?;
        let what = "cloud killed in a burst of 500 creates: s to right";
        beside(measured, what, s(started, seen), 46.0, 3.0);
        Ok(())
    }

    /// Says `count` lines, `per_second` of them, and gives how long each took to be seen.
    fn at_pace(
        &mut self,
        per_second: u32,
        count: u64,
        line: impl Fn(&mut Self, u64) -> Value + Sync,
    ) -> Result<Latency, Failure> {
        let first = self.turn;
        let pace = Pace::new(per_second, count, 0);
        pace.drive(|turn| {
            let line = line(self, turn - 1);
            self.say(&line)
        })?;
        self.worker.until("all of it", |sight| sight.has(first + 1..=first + count))?;
        let mut latency = Latency::new();
        for turn in 1..=count {
            let seen = self.worker.at(first + turn).tried("it was seen")?;
            latency.record(seen.saturating_duration_since(pace.moment(turn)));
        }
        Ok(latency)
    }

    /// Cuts the link while `meanwhile` happens; gives what coming back took on the wire, and for how
    /// many milliseconds from the first byte.
    fn away(
        &mut self,
        meanwhile: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(Traffic, f64), Failure> {
        self.rest()?;
        self.hop.set(Conditions { closed: true, ..Conditions::default() });
        self.hop.cut();
        meanwhile(self)?;
        let tail = self.tail_at_rest()?;
        let before = self.hop.traffic();
        self.hop.set(Conditions::default());
        wait("the edge connects", || (self.hop.traffic().down > before.down).then_some(()))?;
        let began = Instant::now();
        self.has_synced(tail)?;
        let ms = began.elapsed().as_secs_f64() * 1e3;
        Ok((quiet(&self.hop)?.since(before), ms))
    }

    fn create_line(&mut self, _: u64) -> Value {
        self.made += 1;
        self.line_of(self.made - 1)
    }

    /// Pod `number` as the next turn makes it.
    fn line_of(&mut self, number: u64) -> Value {
        self.turn += 1;
        json!({ "object": pod(NODE, number, self.turn, OBJECT_BYTES) })
    }

    /// Makes `count` pods; when this returns all are written.
    fn create(&mut self, count: u64) -> Result<Instant, Failure> {
        let first = self.made;
        self.made += count;
        self.update(first..first + count)
    }

    fn update(&mut self, pods: std::ops::Range<u64>) -> Result<Instant, Failure> {
        for number in pods {
            let line = self.line_of(number);
            self.say(&line)?;
        }
        Ok(Instant::now())
    }

    fn delete(&mut self, pods: std::ops::Range<u64>) -> Result<Instant, Failure> {
        for number in pods {
            self.say(&json!({ "delete": format!("default/pod/{}", name(NODE, number)) }))?;
        }
        Ok(Instant::now())
    }

    fn say(&mut self, line: &Value) -> Result<(), Failure> {
        process::say(&mut self.source, line)
    }

    /// Waits until the worker has so many pods, and the newest turn of all.
    fn has(&self, pods: u64) -> Result<Instant, Failure> {
        let turn = self.turn;
        self.worker.until(&format!("{pods} pods"), |sight| {
            sight.pods() as u64 == pods && sight.has(turn..=turn)
        })
    }

    /// Where the node's stream ends, once controller and hub say the same again and again.
    fn tail_at_rest(&self) -> Result<u64, Failure> {
        let stream = format!("node/{NODE}");
        let tail = |part: &str| {
            let status = self.fleet.part(part).status()?;
            let nodes = status["nodes"].as_array()?;
            let streams = nodes.iter().flat_map(|node| node["streams"].as_array());
            let of_node = streams.flatten().find(|one| one["stream"] == stream.as_str())?;
            of_node["tail"].as_u64()
        };
        let both = || tail("controller").filter(|end| tail("hub") == Some(*end));
        wait("controller and hub at rest", || {
            let before = both()?;
            thread::sleep(QUIET);
            both().filter(|now| *now == before)
        })
    }

    /// Waits until the edge has synced the node's stream up to `tail`.
    fn has_synced(&self, tail: u64) -> Result<(), Failure> {
        let socket = edge_socket(self.fleet.part(NODE), NODE);
        wait("the edge in step", || {
            let status = self.asking.block_on(edge_status(&socket)).ok()?;
            let is_there = status.streams.iter().any(|one| one.durable == tail);
            (is_there && status.connected).then_some(())
        })
    }

    /// Waits until the effects of earlier changes are complete.
    fn rest(&self) -> Result<(), Failure> {
        thread::sleep(REST);
        quiet(&self.hop).map(drop)
    }

    fn memory(
        &self,
        what: &str,
        bounds: [(f64, f64); 2],
        measured: &mut RowResult,
    ) -> Result<(), Failure> {
        self.rest()?;
        let of = |part: &str| {
            let resident = self.fleet.part(part).process_id().and_then(resident_bytes);
            resident.map(|bytes| bytes as f64 / 1e6).tried("it does not run")
        };
        let cloud = of("controller")? + of("hub")?;
        let parts = [("controller and hub", cloud), ("edge", of(NODE)?)];
        for ((part, mb), (floor, target)) in parts.into_iter().zip(bounds) {
            beside(measured, &format!("{what}: MB of memory, {part}"), mb, floor, target);
        }
        Ok(())
    }

    fn spent(&self) -> Result<Spent, Failure> {
        let of = |part: &str| {
            let id = self.fleet.part(part).process_id();
            id.and_then(processor_time).tried("it does not run")
        };
        let cloud = of("controller")? + of("hub")?;
        Ok(Spent { passed: self.hop.traffic(), cloud, edge: of(NODE)? })
    }
}

/// Shows a figure beside KubeEdge's, which is its floor.
fn beside(measured: &mut RowResult, what: &str, value: f64, kubeedge: f64, target: f64) {
    measured.push(Figure::alone(what, value.into()).held_to(Bound::at_most(kubeedge, target)));
}

/// Shows a latency; its p99 only where enough lies behind it.
fn push(measured: &mut RowResult, what: &str, latency: &Latency, bounds: [(f64, f64); 2]) {
    let quantiles = [("p50", 0.5, 1), ("p99", 0.99, P99_SAMPLES)];
    for ((name, quantile, samples), (floor, target)) in quantiles.into_iter().zip(bounds) {
        if latency.count() >= samples {
            let figure = Figure::alone(&format!("{what}: ms, {name}"), latency.ms(quantile).into());
            measured.push(figure.held_to(Bound::at_most(floor, target)).latency());
        }
    }
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
