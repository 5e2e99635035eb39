//! Row 4: from the intended moment of a change to the moment when a worker at the node sees it,
//! against producing and consuming the same bytes on the same broker.
//!
//! A change enters through the controller's objects socket and is seen through a watch of the
//! edge's local API, which delivers only what is synced in the edge's RocksDB. Controller,
//! hub and edge are processes. A change that a later one of its pod overtook is seen with that.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use headwater_e2e::fleet::Fleet;
use headwater_event::Partition;
use headwater_kafka::KafkaSettings;
use headwater_loadtest::kernel::processor_time;
use headwater_log::{Append, Record};
use headwater_proto::local::watch_event::Kind;
use serde_json::json;

use crate::bound::Bound;
use crate::failure::{Attempt, Failure};
use crate::figure::{Figure, RowResult};
use crate::kafka::{PARTITIONS, runtime, topic};
use crate::limit::consumer::{BareConsumer, From};
use crate::limit::producer::BareProducer;
use crate::pace::{Latency, Pace};
use crate::pods::{PODS_PER_NODE, pod, turn_of};
use crate::process::{self, edge_socket};
use crate::row::Run;
use crate::samples::Samples;
use crate::waiting::Waiting;
use crate::worker::pods;

const OBJECT_BYTES: usize = 2 << 10;
const NODE: &str = "node-1";

/// A percentile needs so many samples behind it to be printed: 99, and 99.9.
pub(crate) const P99_SAMPLES: u64 = 1_000;
const P999_SAMPLES: u64 = 100_000;

/// A generator later than this was measured itself, in milliseconds.
const LAG_MS_MAX: f64 = 1.0;

/// What comes last may take this long to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// The parts whose time on a processor is shown.
const PARTS: [&str; 3] = ["controller", "hub", NODE];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Headwater,
    Bare,
}

/// A rate, and how long it is kept up.
struct Course {
    per_second: u32,
    rounds: usize,
    count: u64,
    warm_up: u64,
}

/// What one turn took.
struct Taken {
    latency: Latency,
    lag: Latency,
    /// Of each of [`PARTS`], the broker, and this process: microseconds a change.
    processor_us: Vec<f64>,
}

/// Measures it.
///
/// # Errors
/// When something is not seen at all.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let runtime = runtime("propagation", 1)?;
    let mut world = World::start()?;
    let bare = topic(&world.fleet.kafka.bootstrap(), 0, &runtime)?;
    let course = |per_second, rounds, count, warm_up| Course { per_second, rounds, count, warm_up };
    let courses = if run.full {
        [course(1, 7, 60, 2), course(200, 9, 20_000, 200), course(2_000, 9, 120_000, 2_000)]
    } else {
        [course(1, 2, 6, 1), course(200, 7, 1_000, 100), course(2_000, 7, 5_000, 1_000)]
    };
    let mut measured = RowResult::default();
    for course in courses {
        let Course { per_second, rounds, count, warm_up } = course;
        let taken = run.turns.take(rounds, [Side::Headwater, Side::Bare], |side| {
            let turn = |world: &mut World| {
                let pace = Pace::new(per_second, count, warm_up);
                match side {
                    Side::Headwater => world.turn(pace),
                    Side::Bare => produce_and_consume(&bare, pace),
                }
            };
            // A late generator is tried again, once.
            let taken = turn(&mut world)?;
            let is_late = count >= P99_SAMPLES && taken.lag.ms(0.99) > LAG_MS_MAX;
            if is_late { turn(&mut world) } else { Ok(taken) }
        })?;
        show(&mut measured, &course, &taken);
    }
    measured.set("pods", format!("{PODS_PER_NODE} on one node, about {OBJECT_BYTES} bytes each"));
    measured.set("parts", "controller, hub, edge (RocksDB, hollow pods) and Kafka, a process each");
    measured.set("topic", format!("{PARTITIONS} partitions, 1 replica, on both sides"));
    measured
        .set("client", "linger.ms=0, acks=all, idempotent, lz4; fetch as storage/kafka sets it");
    measured.set("arrivals", "open loop at a fixed rate; latency counts from the intended moment");
    measured.note(format!(
        "The bare side syncs nothing; ours waits for two syncs, the edge's and, unsynced, the \
         broker's page cache. p99 needs {P99_SAMPLES} samples a turn, p99.9 {P999_SAMPLES}."
    ));
    Ok(measured)
}

fn show(measured: &mut RowResult, course: &Course, taken: &[[Taken; 2]]) {
    let rate = course.per_second;
    let of = |side: usize, what: &dyn Fn(&Taken) -> f64| -> Samples {
        taken.iter().map(|round| what(&round[side])).collect()
    };
    let limit = "bare produce and consume";
    let p50 = |taken: &Taken| taken.latency.ms(0.5);
    let lag = |taken: &Taken| taken.lag.ms(0.99);
    let lags = of(0, &lag);
    let is_late = lags.median() > LAG_MS_MAX;
    let mut figures = vec![
        Figure::excess(&format!("{rate}/s: ms more, p50"), of(0, &p50), limit, of(1, &p50))
            .held_to(Bound::at_most(1.0, 1.0)),
    ];
    let quantiles = [("p99", 0.99, P99_SAMPLES, 2.0), ("p99.9", 0.999, P999_SAMPLES, 3.0)];
    for (name, quantile, samples, target) in quantiles {
        if course.count < samples {
            continue;
        }
        let value = |taken: &Taken| taken.latency.ms(quantile);
        let what = format!("{rate}/s: ms, {name}");
        figures.push(
            Figure::ratio(&what, of(0, &value), limit, of(1, &value))
                .held_to(Bound::at_most(3.0, target)),
        );
    }
    for figure in figures {
        let figure = figure.latency();
        measured.push(if is_late { figure.void() } else { figure });
    }
    measured.push(Figure::ratio(
        &format!("{rate}/s: the generator's own lag, ms, p99"),
        lags,
        limit,
        of(1, &lag),
    ));
    if is_late {
        measured.note(format!("{rate}/s: the generator was late; its latencies are void."));
    }
    let everyone = PARTS.iter().copied().chain(["Kafka", "the generator"]);
    for (index, part) in everyone.enumerate() {
        let us = |taken: &Taken| taken.processor_us.get(index).copied().unwrap_or(f64::NAN);
        measured.push(Figure::alone(&format!("{rate}/s: us of {part} a change"), of(0, &us)));
    }
}

/// The parts, and the way in.
struct World {
    fleet: Fleet,
    source: UnixStream,
    edge: PathBuf,
    /// Turns sent so far: no pod ever has an earlier content again.
    said: u64,
}

impl World {
    fn start() -> Result<Self, Failure> {
        let mut fleet = Fleet::on_one_broker(PARTITIONS);
        let socket = fleet.add_source("controller");
        fleet.add_hub("hub");
        fleet.add_edge(NODE, &["hub"]);
        let source = fleet.wait_for("the objects socket", |_| UnixStream::connect(&socket).ok());
        let edge = edge_socket(fleet.part(NODE), NODE);
        let mut world = Self { fleet, source, edge, said: 0 };
        // Each pod once: from here on they change.
        let first = Pace::new(200, PODS_PER_NODE, 0);
        world.wait_for_edge();
        world.turn(first)?;
        Ok(world)
    }

    fn wait_for_edge(&self) {
        let edge = &self.edge;
        self.fleet.wait_for("the edge's socket", |_| UnixStream::connect(edge).ok());
    }

    fn turn(&mut self, pace: Pace) -> Result<Taken, Failure> {
        let base = self.said;
        let (ready, is_ready) = sync_channel(1);
        let (begin, begins) = sync_channel(1);
        let edge = self.edge.clone();
        let watching = thread::spawn(move || watch(&edge, base, &ready, &begins));
        is_ready.recv().tried("the watch of the edge does not begin")?;
        let pace = pace.again();
        begin.send(pace).tried("the watch of the edge does not go on")?;
        let before = self.processor_times();
        let lag = pace.drive(|turn| say(&mut self.source, base + turn))?;
        self.said += pace.count;
        let latency = watching.join().map_err(|_| Failure::of("the watch died"))??;
        let after = self.processor_times();
        let us = after.iter().zip(&before).map(|(after, before)| {
            after.saturating_sub(*before).as_secs_f64() * 1e6 / pace.count as f64
        });
        Ok(Taken { latency, lag, processor_us: us.collect() })
    }

    fn processor_times(&mut self) -> Vec<Duration> {
        let parts = PARTS.map(|part| self.fleet.part(part).process_id());
        let broker = self.fleet.kafka.broker(1).pid();
        let all = parts.into_iter().chain([broker, Some(std::process::id())]);
        all.map(|id| id.and_then(processor_time).unwrap_or_default()).collect()
    }
}

fn say(source: &mut UnixStream, turn: u64) -> Result<(), Failure> {
    let object = pod(NODE, turn % PODS_PER_NODE, turn, OBJECT_BYTES);
    process::say(source, &json!({ "object": object }))
}

/// Says when it watches, learns the pace, and watches until its last change. Turns count from
/// `base`.
fn watch(
    socket: &Path,
    base: u64,
    ready: &SyncSender<()>,
    begins: &Receiver<Pace>,
) -> Result<Latency, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.tried("starting a runtime")?.block_on(async {
        let mut events = pods(socket).await?;
        let mut waiting = None;
        while waiting.as_ref().is_none_or(|waiting: &Waiting| !waiting.is_over()) {
            let next = tokio::time::timeout(SEEN_WITHIN, events.message());
            let event = next.await.tried("a change is not seen")?.tried("the watch ended")?;
            let Some(event) = event else { return Err(Failure::of("the watch ended")) };
            match event.kind() {
                // An edge lists again when it has all of a stream for the first time.
                Kind::InitDone if waiting.is_none() => {
                    ready.send(()).tried("nobody waits for the watch")?;
                    let pace = begins.recv().tried("nobody says when to begin")?;
                    waiting = Some(Waiting::new(base, pace, PODS_PER_NODE));
                }
                Kind::Apply | Kind::InitApply => {
                    let object = event.object.map(|object| object.object).unwrap_or_default();
                    if let (Some(waiting), Some(turn)) = (&mut waiting, turn_of(&object)) {
                        waiting.see(turn);
                    }
                }
                _ => {}
            }
        }
        Ok(waiting.map_or_else(Latency::new, |waiting| waiting.latency))
    })
}

/// The same bytes at the same pace, produced and consumed, and nothing else.
fn produce_and_consume(settings: &KafkaSettings, pace: Pace) -> Result<Taken, Failure> {
    let producer = BareProducer::new(settings)?;
    let consumer = BareConsumer::new(settings, PARTITIONS, From::End)?;
    // Both have to find the broker first, as the log's clients did long ago.
    let partition = Partition(0);
    producer.send(&record(partition, 0))?;
    producer.acknowledged()?;
    while consumer.next(SEEN_WITHIN, |_| ())?.is_none() {}
    let pace = pace.again();
    let consuming = thread::spawn(move || {
        let mut waiting = Waiting::new(0, pace, PODS_PER_NODE);
        while !waiting.is_over() {
            let turn = consumer.next(SEEN_WITHIN, turn_of)?;
            match turn {
                Some(Some(turn)) => waiting.see(turn),
                Some(None) => return Err(Failure::of("a record says no turn")),
                None => {}
            }
        }
        Ok(waiting.latency)
    });
    let lag = pace.drive(|turn| producer.send(&record(partition, turn)))?;
    let latency = consuming.join().map_err(|_| Failure::of("the consumer died"))??;
    Ok(Taken { latency, lag, processor_us: Vec::new() })
}

fn record(partition: Partition, turn: u64) -> Append {
    let number = turn % PODS_PER_NODE;
    let value = pod(NODE, number, turn, OBJECT_BYTES).to_string();
    let key = format!("node/{NODE} default/pod/{}", crate::pods::name(NODE, number));
    let record = Record {
        key: key.into(),
        value: Some(value.into()),
        // As long as an event's.
        header: vec![7; 96].into(),
        traceparent: None,
    };
    Append { partition, record }
}
