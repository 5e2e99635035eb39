//! Row 4: from the intended moment of a change to the moment when a worker at the node sees it,
//! against producing and consuming the same bytes on the same broker.
//!
//! A change enters through the controller's objects socket and is seen through a watch of the
//! edge's local API, which delivers only what is synced in the edge's RocksDB. Controller,
//! hub and edge are processes. A change that a later one of its pod overtook is seen with that.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use headwater_event::Partition;
use headwater_kafka::KafkaSettings;
use headwater_loadtest::failure::Failure;
use headwater_loadtest::latency::{Latency, Quantiles};
use headwater_loadtest::object::{ObjectSpec, turn_of};
use headwater_loadtest::pacer::{LAG_P99_MS_MAX, Lag, pace};
use headwater_loadtest::scenario::EdgeKind;
use headwater_loadtest::schedule::{Turn, at_rate};
use headwater_log::{Append, Record};

use crate::bound::Bound;
use crate::cluster::{BEGINS_IN, Cluster, GENERATOR, Nodes};
use crate::figure::{Figure, RowResult};
use crate::kafka::{PARTITIONS, topic};
use crate::limit::consumer::{BareConsumer, From};
use crate::limit::producer::BareProducer;
use crate::pods::{PODS_PER_NODE, pods};
use crate::run::Run;
use crate::samples::Samples;

/// One quantile of many.
type Quantile = fn(&Quantiles) -> Option<f64>;

const OBJECT_BYTES: usize = 2 << 10;
const NODE: &str = "node-1";

/// Records that are made ahead of their moments.
const AHEAD_MAX: usize = 4_096;

/// What comes last may take this long to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

/// The processes whose time on a processor is shown, and what they are called.
const PROCESSES: [(&str, &str); 5] = [
    ("controller", "controller"),
    ("hub", "hub"),
    (NODE, NODE),
    ("broker", "Kafka"),
    (GENERATOR, GENERATOR),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Headwater,
    Bare,
}

/// A rate, and how long it is kept up.
struct Course {
    per_second: u32,
    rounds: usize,
    count: u32,
    warm_up: u32,
}

/// What one turn took.
pub(crate) struct Taken {
    pub(crate) latency: Quantiles,
    lag: Lag,
    /// Of each of [`PROCESSES`]: microseconds a change.
    processor_us: Vec<f64>,
}

/// Measures it.
///
/// # Errors
/// When something is not seen at all.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let nodes = Nodes { count: 1, kind: EdgeKind::Real, behind_hops: 0, unmeasured: 0 };
    let objects = pods(1, PODS_PER_NODE, OBJECT_BYTES);
    let mut cluster = Cluster::start(nodes, objects.clone())?;
    cluster.connect(1)?;
    cluster.set_up(0..PODS_PER_NODE)?;
    let bare = topic(&cluster.brokers()?, 0, cluster.runtime())?;
    let course = |per_second, rounds, count, warm_up| Course { per_second, rounds, count, warm_up };
    let courses = if run.full {
        [course(1, 7, 60, 2), course(200, 9, 20_000, 200), course(2_000, 9, 120_000, 2_000)]
    } else {
        [course(1, 2, 6, 1), course(200, 7, 1_000, 100), course(2_000, 7, 5_000, 1_000)]
    };
    let mut measured = RowResult::default();
    for course in courses {
        let Course { per_second, rounds, count, warm_up } = course;
        let turns = at_rate(per_second, (0..warm_up + count).map(|turn| turn % PODS_PER_NODE));
        let measured_from = turns[warm_up as usize].at;
        let taken = run.turns.take(rounds, [Side::Headwater, Side::Bare], |side| {
            let turn = || match side {
                Side::Headwater => headwater(&cluster, &turns, measured_from),
                Side::Bare => produce_and_consume(&bare, &objects, &turns, measured_from),
            };
            // A late generator is tried again, once.
            let taken = turn()?;
            let is_late = taken.lag.quantiles.p99_ms.is_some() && !taken.lag.kept_up();
            if is_late { turn() } else { Ok(taken) }
        })?;
        show(&mut measured, per_second, &taken);
    }
    cluster.end()?;
    measured.set("pods", format!("{PODS_PER_NODE} on one node, about {OBJECT_BYTES} bytes each"));
    measured.set("parts", "controller, hub, edge (RocksDB, hollow pods) and Kafka, a process each");
    measured.set("topic", format!("{PARTITIONS} partitions, 1 replica, on both sides"));
    measured
        .set("client", "linger.ms=0, acks=all, idempotent, lz4; fetch as storage/kafka sets it");
    measured.set("arrivals", "open loop at a fixed rate; latency counts from the intended moment");
    measured.note(
        "The bare side syncs nothing; ours waits for two syncs, the edge's and, unsynced, the \
         broker's page cache. p99 needs 1000 samples a turn, p99.9 100000.",
    );
    Ok(measured)
}

fn show(measured: &mut RowResult, rate: u32, taken: &[[Taken; 2]]) {
    let of = |side: usize, what: &dyn Fn(&Taken) -> f64| -> Samples {
        taken.iter().map(|round| what(&round[side])).collect()
    };
    let ms = |quantile: Option<f64>| quantile.unwrap_or(f64::NAN);
    let limit = "bare produce and consume";
    let p50 = |taken: &Taken| ms(taken.latency.p50_ms);
    let lag = |taken: &Taken| taken.lag.judged_ms();
    let lags = of(0, &lag);
    let is_late = lags.median() > LAG_P99_MS_MAX;
    let mut figures = vec![
        Figure::excess(&format!("{rate}/s: ms more, p50"), of(0, &p50), limit, of(1, &p50))
            .held_to(Bound::at_most(1.0, 1.0)),
    ];
    let quantiles: [(&str, Quantile, f64); 2] =
        [("p99", |of| of.p99_ms, 2.0), ("p99.9", |of| of.p999_ms, 3.0)];
    for (name, quantile, target) in quantiles {
        // A quantile that the samples of a turn do not carry is not shown.
        if taken.iter().flatten().all(|taken| quantile(&taken.latency).is_some()) {
            let value = |taken: &Taken| ms(quantile(&taken.latency));
            let what = format!("{rate}/s: ms, {name}");
            figures.push(
                Figure::ratio(&what, of(0, &value), limit, of(1, &value))
                    .held_to(Bound::at_most(3.0, target)),
            );
        }
    }
    for figure in figures {
        let figure = figure.latency();
        measured.push(if is_late { figure.void() } else { figure });
    }
    let what = format!("{rate}/s: the generator's own lag, ms, p99");
    measured.push(Figure::ratio(&what, lags, limit, of(1, &lag)));
    if is_late {
        measured.note(format!("{rate}/s: the generator was late; its latencies are void."));
    }
    for (index, (_, name)) in PROCESSES.iter().enumerate() {
        let us = |taken: &Taken| taken.processor_us.get(index).copied().unwrap_or(f64::NAN);
        measured.push(Figure::alone(&format!("{rate}/s: us of {name} a change"), of(0, &us)));
    }
}

fn headwater(cluster: &Cluster, turns: &[Turn], measured_from: Duration) -> Result<Taken, Failure> {
    let taken = cluster.load(turns.to_vec(), measured_from)?;
    let us = PROCESSES.iter().map(|(process, _)| {
        let taken = taken.processor.get(*process).copied().unwrap_or_default();
        taken.as_secs_f64() * 1e6 / turns.len() as f64
    });
    Ok(Taken { latency: taken.latency, lag: taken.lag, processor_us: us.collect() })
}

/// The same bytes at the same pace, produced and consumed, and nothing else.
pub(crate) fn produce_and_consume(
    settings: &KafkaSettings,
    objects: &[ObjectSpec],
    turns: &[Turn],
    measured_from: Duration,
) -> Result<Taken, Failure> {
    let producer = BareProducer::new(settings)?;
    let consumer = BareConsumer::new(settings, PARTITIONS, From::End)?;
    // Both have to find the broker first, as the log's clients did long ago.
    producer.send(&record(&objects[0], 0))?;
    producer.acknowledged()?;
    while consumer.next(SEEN_WITHIN, |_| ())?.is_none() {}
    let latency = Latency::new(SEEN_WITHIN);
    let began = Instant::now() + BEGINS_IN;
    let lag = thread::scope(|scope| {
        let consuming = scope.spawn(|| {
            for (turn, number) in turns.iter().zip(1..) {
                let deadline = Instant::now() + SEEN_WITHIN;
                // The end of the partition is no record, and neither is a wait that was in vain.
                let seen = loop {
                    let left = deadline.saturating_duration_since(Instant::now());
                    match consumer.next(left, turn_of)? {
                        Some(seen) => break seen,
                        None if left.is_zero() => break None,
                        None => {}
                    }
                };
                if seen != Some(number) {
                    return Err(Failure::of("a record is not seen in its turn"));
                }
                if turn.at >= measured_from {
                    latency.record(Instant::now().saturating_duration_since(began + turn.at));
                }
            }
            Ok(())
        });
        let (made, records) = sync_channel(AHEAD_MAX);
        scope.spawn(move || {
            for (turn, number) in turns.iter().zip(1..) {
                let record = record(&objects[turn.object as usize], number);
                // Without a taker the turn has failed.
                let _ = made.send((turn.at, record));
            }
        });
        let lag = pace(began, measured_from, records, |record, _| producer.send(&record))?;
        consuming.join().map_err(|_| Failure::of("the consumer died"))??;
        Ok::<_, Failure>(lag)
    })?;
    Ok(Taken { latency: latency.whole(), lag, processor_us: Vec::new() })
}

fn record(object: &ObjectSpec, turn: u32) -> Append {
    let nodes = [NODE.parse().expect("a node's name")];
    let record = Record {
        key: format!("node/{NODE} {}", object.key).into(),
        value: Some(object.value(&nodes, turn, 0).to_string().into()),
        // As long as an event's.
        header: vec![7; 96].into(),
        traceparent: None,
    };
    Append { partition: Partition(0), record }
}
