//! Row 18: controller and hub with the log of a large fleet on Kafka.
//!
//! Nodes have a hundred pods each and no edge is connected: what is measured is the cloud half alone.
//! The short form is a tenth of ten thousand nodes. The log is made once; then every part is started
//! again on it, with its disk and without.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use headwater_e2e::memory::peak_bytes;
use headwater_kafka::KafkaSettings;
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_loadtest::generator::Generator;
use headwater_loadtest::inventory::Inventory;
use headwater_loadtest::kernel::anonymous_bytes;
use headwater_loadtest::latency::{Quantiles, histogram, record};
use headwater_loadtest::metrics;
use headwater_loadtest::object::{Content, Kind, ObjectSpec, turn_of};
use headwater_loadtest::scenario::Act;
use headwater_loadtest::schedule::{Turn, at_once, at_rate};
use headwater_loadtest::target::{Place, STANDBY, Target, TargetSettings};

use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::kafka::PARTITIONS;
use crate::limit::consumer::{BareConsumer, From};
use crate::pods::pods;
use crate::process::memory_at_rest;
use crate::run::Run;
use crate::samples::Samples;

/// The fleet of the long form.
const NODES: usize = 10_000;

/// What the short form divides it by.
const CUT: usize = 10;

const PODS_PER_NODE: u32 = 100;
const OBJECT_BYTES: usize = 1_300;

/// The object that a pod of every node names.
const SHARED: Content = Content { bytes: 100_000, fresh: 50_000, plain: 25_000 };

/// A reference to an object that several events share (`storage/log`: the first byte of its value).
const REFERENCE: u8 = 0x04;

/// More bytes than a record without the shared object has, and fewer than one with it.
const WHOLE_BYTES_MIN: usize = 10_000;

/// Changes beside a long answer: enough for a p99.
const CHANGES: u32 = 2_000;
const CHANGES_PER_SECOND: u32 = 200;

const CONTROLLER: &str = "controller";
const HUB: &str = "hub";
const TOPIC: &str = "headwater.downstream.v1";
const APPENDED_BYTES: &str = "headwater_kafka_appended_bytes_total";

/// How long anything may take to come about: with a million pods, minutes.
const WITHIN: Duration = Duration::from_secs(15 * 60);

/// Between two looks.
const POLL: Duration = Duration::from_millis(5);

/// The log of the fleet, and the parts on it.
struct Fleet {
    target: Target,
    inventory: Inventory,
    settings: KafkaSettings,
    /// The turn of the last change.
    turn: u32,
}

/// Measures it.
///
/// # Errors
/// When a part does not come so far.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let nodes = run.pick(NODES / CUT, NODES);
    let pods = nodes as f64 * f64::from(PODS_PER_NODE);
    let mut measured = RowResult::default();
    let (mut fleet, feed) = Fleet::start(nodes)?;
    measured.push(Figure::alone("feed: pods/s", (pods / feed.as_secs_f64()).into()));
    let controller = memory_at_rest(fleet.process(CONTROLLER)?)?;
    let figure = Figure::alone("controller: KB of memory a pod", (controller / 1e3 / pods).into());
    measured.push(figure.held_to(Bound::at_most(3.7, 1.5)));

    fleet.hub(run, &mut measured)?;
    fleet.controller(&mut measured)?;
    fleet.long_answer(run, &mut measured)?;
    fleet.shared_object(nodes, &mut measured)?;

    measured.set("fleet", format!("{nodes} nodes, {PODS_PER_NODE} pods each"));
    measured.set("cut", format!("by {} from {NODES} nodes", NODES / nodes));
    measured.set("object", format!("{OBJECT_BYTES} bytes of JSON"));
    measured.set("topic", format!("{PARTITIONS} partitions, 1 replica"));
    measured.set("source", "the objects socket; no edge is connected");
    Ok(measured)
}

impl Fleet {
    /// Starts the parts and feeds the pods. Returns how long that takes until the log has all.
    fn start(nodes: usize) -> Result<(Self, Duration), Failure> {
        let place = Place::Cluster;
        let names = place.nodes(nodes)?;
        let objects = pods(nodes, PODS_PER_NODE, OBJECT_BYTES);
        let all = 0..objects.len() as u32;
        // The edges of these nodes are not started.
        let target = Target::start(TargetSettings { place, nodes: names.clone(), streams: None })?;
        let brokers = target.brokers().tried("Kafka does not run")?;
        let settings = KafkaSettings::new(brokers, TOPIC);
        let inventory = Inventory { nodes: names, objects, seed: 0 };
        let mut fleet = Self { target, inventory, settings, turn: 0 };
        let began = Instant::now();
        let generator = Generator::connect(fleet.target.objects())?;
        generator.set_up(&fleet.inventory, all)?;
        generator.end()?;
        let socket = fleet.target.objects().to_owned();
        let logged = fleet.change(&socket)?;
        fleet.wait("the hub has the log", |fleet| fleet.is_ready(HUB))?;
        Ok((fleet, logged.saturating_duration_since(began)))
    }

    /// A hub started again: with its disk, and without it against a bare read of the topic.
    fn hub(&mut self, run: &mut Run, measured: &mut RowResult) -> Result<(), Failure> {
        let rounds = 3;
        let mut with_disk = Samples::default();
        for _ in 0..rounds {
            with_disk.push(self.restart_hub(false)?.as_secs_f64());
        }
        let figure = Figure::alone("hub, restart with its disk: s until it serves", with_disk);
        measured.push(figure.held_to(Bound::at_most(10.0, 10.0)));
        let taken = run.turns.take(rounds, [true, false], |is_hub| {
            if is_hub {
                return Ok(self.restart_hub(true)?.as_secs_f64());
            }
            let began = Instant::now();
            BareConsumer::new(&self.settings, PARTITIONS, From::Start)?.read_to_end(WITHIN)?;
            Ok(began.elapsed().as_secs_f64())
        })?;
        let of = |side: usize| taken.iter().map(|round| round[side]).collect::<Samples>();
        measured.push(
            Figure::ratio(
                "hub, restart without its disk: s until it serves",
                of(0),
                "a bare read of the topic",
                of(1),
            )
            .held_to(Bound::at_most(2.4, 1.2)),
        );
        let memory = memory_at_rest(self.process(HUB)?)?;
        measured.push(Figure::alone("hub: MB of memory", (memory / 1e6).into()));
        Ok(())
    }

    fn restart_hub(&mut self, loses_disk: bool) -> Result<Duration, Failure> {
        self.target.act(Act::Kill, HUB)?;
        if loses_disk {
            fs::remove_dir_all(self.target.data(HUB)).tried("removing the hub's data")?;
        }
        let began = Instant::now();
        self.target.act(Act::Start, HUB)?;
        self.wait("the hub serves", |fleet| fleet.is_ready(HUB))?;
        Ok(began.elapsed())
    }

    /// A controller started again, and a standby that takes over from one that stops in order.
    fn controller(&mut self, measured: &mut RowResult) -> Result<(), Failure> {
        let objects = self.target.objects().to_owned();
        self.target.act(Act::Kill, CONTROLLER)?;
        let began = Instant::now();
        self.target.act(Act::Start, CONTROLLER)?;
        let logged = self.change(&objects)?.saturating_duration_since(began).as_secs_f64();
        let what = "controller, restart with its disk: s until a change is in the log";
        measured.push(Figure::alone(what, logged.into()).held_to(Bound::at_most(60.0, 10.0)));

        let socket = self.target.start_standby()?;
        self.wait("a standby", |fleet| {
            let output = fleet.target.ask(STANDBY, &["status", "-o", "json"]);
            let status = output.and_then(|output| {
                serde_json::from_slice::<serde_json::Value>(&output.stdout).ok()
            });
            status.is_some_and(|status| status["stands_by"] == true)
                && Generator::connect(&socket).is_ok()
                && fleet.is_ready(STANDBY)
        })?;
        // It has listed, and compares nothing before its claim.
        memory_at_rest(self.process(STANDBY)?)?;
        let began = Instant::now();
        self.target.stop_part(CONTROLLER)?;
        let logged = self.change(&socket)?.saturating_duration_since(began).as_secs_f64();
        let what = "controller, take-over by a standby: s until a change is in the log";
        measured.push(Figure::alone(what, logged.into()).held_to(Bound::at_most(20.0, 10.0)));
        let peak = peak_bytes(self.process(STANDBY)?).tried("it does not run")?;
        let what = "controller, take-over: MB of memory at most";
        measured.push(Figure::alone(what, (peak as f64 / 1e6).into()));

        self.target.act(Act::Start, CONTROLLER)?;
        self.target.stop_part(STANDBY)?;
        self.change(&objects).map(drop)
    }

    /// `get pods -A` while changes are published.
    fn long_answer(&mut self, run: &mut Run, measured: &mut RowResult) -> Result<(), Failure> {
        let before = anonymous_bytes(self.process(CONTROLLER)?).tried("it does not run")?;
        let file = format!("/proc/{}/clear_refs", self.process(CONTROLLER)?);
        // `proc_pid_clear_refs(5)`: 5 resets the peak to what there is now.
        fs::write(file, "5").tried("resetting the peak of a process")?;
        let answer = self.target.ask(CONTROLLER, &LONG_QUESTION).tried("it does not run")?;
        let lines = answer.stdout.iter().filter(|byte| **byte == b'\n').count();
        let peak = peak_bytes(self.process(CONTROLLER)?).tried("it does not run")?;
        let more = peak.saturating_sub(before) as f64 / f64::from(1 << 20);
        let figure = Figure::alone("get pods -A: MiB of memory more, at most", more.into());
        measured.push(figure.held_to(Bound::at_most(128.0, 64.0)));

        let rounds = run.pick(2, 3);
        let taken = run.turns.take(rounds, [true, false], |asks| self.published(asks))?;
        let of = |side: usize, quantile: fn(&Quantiles) -> Option<f64>| -> Samples {
            taken.iter().map(|round| quantile(&round[side]).unwrap_or(f64::NAN)).collect()
        };
        let limit = "the same without a question";
        let p99 = |of: &Quantiles| of.p99_ms;
        let p50 = |of: &Quantiles| of.p50_ms;
        measured.push(
            Figure::ratio("get pods -A: ms to publish, p99", of(0, p99), limit, of(1, p99))
                .held_to(Bound::at_most(2.0, 1.1))
                .latency(),
        );
        let what = "get pods -A: ms to publish, p50";
        measured.push(Figure::ratio(what, of(0, p50), limit, of(1, p50)).latency());
        measured.set("get pods -A", format!("{lines} lines, asked again and again"));
        Ok(())
    }

    /// How long changes take from their moment until they are in the log, while the pods are asked
    /// for or not.
    fn published(&mut self, asks: bool) -> Result<Quantiles, Failure> {
        let first = self.turn + 1;
        self.turn += CHANGES;
        let turns = at_rate(CHANGES_PER_SECOND, 0..CHANGES);
        let consumer = BareConsumer::new(&self.settings, PARTITIONS, From::End)?;
        let generator = Generator::connect(self.target.objects())?;
        let began = Instant::now() + Duration::from_millis(100);
        let (target, inventory) = (&self.target, &self.inventory);
        thread::scope(|scope| {
            let sees = scope.spawn(|| sightings(&consumer, first, &turns, began));
            let sends = scope.spawn(|| {
                generator.drive(inventory, &turns, first, began, Duration::ZERO)?;
                generator.end()
            });
            while asks && !sees.is_finished() {
                target.ask(CONTROLLER, &LONG_QUESTION).tried("it does not run")?;
            }
            let failed = || Failure::of("a side of the measurement broke");
            sends.join().map_err(|_| failed())??;
            sees.join().map_err(|_| failed())?
        })
    }

    /// A ConfigMap that a pod of every node names, changed.
    fn shared_object(&mut self, nodes: usize, measured: &mut RowResult) -> Result<(), Failure> {
        let shared = self.inventory.objects.len() as u32;
        let object = ObjectSpec::new(shared, Kind::ConfigMap, "shared".to_owned(), None, SHARED);
        self.inventory.objects.push(object);
        let counts = BareConsumer::new(&self.settings, PARTITIONS, From::End)?;
        let generator = Generator::connect(self.target.objects())?;
        generator.set_up(&self.inventory, [shared])?;
        distribution(&counts, nodes)?;
        let before = self.appended()?;
        let began = Instant::now();
        self.turn += 1;
        let (turns, turn) = (at_once([shared], false), self.turn);
        generator.drive(&self.inventory, &turns, turn, Instant::now(), Duration::ZERO)?;
        distribution(&counts, nodes)?;
        let seconds = began.elapsed().as_secs_f64();
        let appended = self.appended()? - before;
        generator.end()?;
        let object = &self.inventory.objects[shared as usize];
        let bytes = object.value(&self.inventory.nodes, turn, 0).to_string().len() as f64;
        let limit = bytes * f64::from(PARTITIONS) + 100.0 * nodes as f64;
        measured.push(
            Figure::ratio(
                "a ConfigMap of every node, changed: bytes appended",
                appended.into(),
                "one object a partition and 100 bytes a node",
                limit.into(),
            )
            .held_to(Bound::at_most(1.2, 1.0)),
        );
        let what = "a ConfigMap of every node, changed: s until the log has it";
        measured.push(Figure::alone(what, seconds.into()));
        measured.set("ConfigMap", format!("{bytes:.0} bytes, half of them new with the change"));
        Ok(())
    }

    /// Sends one change to the objects socket, as soon as it listens, and returns when the log has it.
    fn change(&mut self, socket: &Path) -> Result<Instant, Failure> {
        let consumer = BareConsumer::new(&self.settings, PARTITIONS, From::End)?;
        self.turn += 1;
        let (turns, turn) = (at_once([0], false), self.turn);
        let deadline = Instant::now() + WITHIN;
        loop {
            let generator = self.connect(socket.to_owned())?;
            generator.drive(&self.inventory, &turns, turn, Instant::now(), Duration::ZERO)?;
            let answers = generator.end()?;
            if answers.refused == 0 {
                break;
            }
            // A standby refuses changes until it has taken over.
            if Instant::now() >= deadline {
                return Err(Failure::of(format!("a change is refused: {:?}", answers.refusals)));
            }
            thread::sleep(POLL);
        }
        while Instant::now() < deadline {
            if consumer.next(POLL, turn_of)?.flatten() == Some(turn) {
                return Ok(Instant::now());
            }
        }
        Err(Failure::of("a change does not come into the log"))
    }

    fn connect(&self, socket: PathBuf) -> Result<Generator, Failure> {
        let deadline = Instant::now() + WITHIN;
        loop {
            match Generator::connect(&socket) {
                Err(_) if Instant::now() < deadline => thread::sleep(POLL),
                result => return result,
            }
        }
    }

    fn appended(&self) -> Result<f64, Failure> {
        let address = self.target.metrics(CONTROLLER).tried("it serves no metrics")?;
        let [bytes] = metrics::sums(address, [APPENDED_BYTES], metrics::ANSWER_MAX)
            .tried("asking for metrics")?;
        bytes.tried("it does not count what it appends")
    }

    fn is_ready(&self, part: &str) -> bool {
        let address = self.target.metrics(part);
        address.is_some_and(|at| metrics::is_ready(at, metrics::ANSWER_MAX).unwrap_or(false))
    }

    fn process(&mut self, part: &str) -> Result<u32, Failure> {
        let found = self.target.processes().into_iter().find(|(name, _)| name == part);
        found.map(|(_, id)| id).tried("it does not run")
    }

    fn wait(&self, what: &str, look: impl Fn(&Self) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + WITHIN;
        while !look(self) {
            if Instant::now() >= deadline {
                return Err(Failure::of(format!("{what}: not within {} s", WITHIN.as_secs())));
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

/// The question whose answer has a line for every pod.
const LONG_QUESTION: [&str; 5] = ["get", "pods", "-A", "-o", "name"];

/// Waits until the log has all `turns`, of which the first is turn `first`.
fn sightings(
    consumer: &BareConsumer,
    first: u32,
    turns: &[Turn],
    began: Instant,
) -> Result<Quantiles, Failure> {
    let mut latencies = histogram();
    let mut missing = turns.len();
    let deadline = Instant::now() + WITHIN;
    while missing > 0 {
        let Some(turn) = consumer.next(POLL, turn_of)?.flatten() else {
            if Instant::now() >= deadline {
                return Err(Failure::of(format!("{missing} changes do not come into the log")));
            }
            continue;
        };
        let turn = turn.checked_sub(first).and_then(|index| turns.get(index as usize));
        if let Some(turn) = turn {
            record(&mut latencies, Instant::now().saturating_duration_since(began + turn.at));
            missing -= 1;
        }
    }
    Ok(Quantiles::of(&latencies))
}

/// Waits until the log has the shared object for each of `nodes`: each partition has it once, and each
/// node an event. The events of the first nodes have the object whole, because few nodes use it by then.
fn distribution(consumer: &BareConsumer, nodes: usize) -> Result<(), Failure> {
    let deadline = Instant::now() + WITHIN;
    let all = nodes + PARTITIONS as usize;
    let mut seen = 0;
    while seen < all {
        let is_of_object =
            |value: &[u8]| value.first() == Some(&REFERENCE) || value.len() >= WHOLE_BYTES_MIN;
        seen += usize::from(consumer.next(POLL, is_of_object)? == Some(true));
        if Instant::now() >= deadline {
            return Err(Failure::of(format!("{seen} of {all} records of the shared object")));
        }
    }
    Ok(())
}
