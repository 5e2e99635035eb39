//! Row 3: appending to the log through its writer, against a bare producer.
//!
//! The bare producer sends the very records that the writer makes of the same events, through
//! settings from the same place, to a topic made alike.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use headwater_event::{Cursor, Event, NodeName, Partition, StreamId};
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_log::{
    Append, AppendError, Bounds, Description, Draft, Log, MemoryLog, ReadError, Reader,
    RecordPosition,
};
use tokio::runtime::Runtime;

use crate::bound::Bound;
use crate::clock::memory_log;
use crate::figure::{Figure, RowResult};
use crate::kafka::{Kafka, PARTITIONS, runtime};
use crate::limit::producer::BareProducer;
use crate::pods::event;
use crate::run::Run;
use crate::samples::Samples;
use crate::writer::claim;

const OBJECT_BYTES: usize = 2 << 10;
const NODES: u32 = 50;
const PODS: u32 = 5_500;

/// Events in one append: what a controller gives its writer at most.
const GROUP: usize = 1_024;

/// Events appended one by one, for the time that one takes.
const SINGLE: usize = 300;

/// The appender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Writer,
    Bare,
}

/// What one turn took.
struct Taken {
    per_second: f64,
    /// The time of one append in the middle of [`SINGLE`], in milliseconds.
    single_ms: f64,
}

/// Measures it.
///
/// # Errors
/// When Kafka does not do what it should.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let rounds = run.pick(7, 15);
    let events: u32 = run.pick(20_480, 204_800);
    let runtime = runtime("append", 2)?;
    let kafka = Kafka::start()?;
    let drafts: Vec<Draft> = (0..events).map(draft).collect();
    let records = runtime.block_on(records(&drafts))?;

    let turn = |side| {
        let settings = kafka.topic(&runtime)?;
        match side {
            Side::Writer => through_writer(&runtime, settings, &drafts),
            Side::Bare => bare(&settings, &records),
        }
    };
    // A broker that has written nothing yet is no measure for anything.
    turn(Side::Writer)?;
    turn(Side::Bare)?;
    let taken = run.turns.take(rounds, [Side::Writer, Side::Bare], turn)?;

    let of = |side: usize, what: fn(&Taken) -> f64| -> Samples {
        taken.iter().map(|round| what(&round[side])).collect()
    };
    let mut measured = RowResult::default();
    let limit = "a bare producer";
    let throughput = |taken: &Taken| taken.per_second;
    measured.push(
        Figure::ratio("events/s", of(0, throughput), limit, of(1, throughput))
            .held_to(Bound::at_least(0.7, 0.9)),
    );
    let single = |taken: &Taken| taken.single_ms;
    measured.push(
        Figure::excess("one event, ms more, p50", of(0, single), limit, of(1, single))
            .held_to(Bound::at_most(1.0, 1.0))
            .latency(),
    );
    measured.set("events a turn", events);
    measured.set("object", format!("{OBJECT_BYTES} bytes of JSON"));
    measured.set("group", format!("{GROUP} events, the next when the last is acknowledged"));
    measured.set("topic", format!("{PARTITIONS} partitions, 1 replica, fsync left to the broker"));
    measured.set("client", "acks=all, idempotent, linger.ms=0, lz4, as storage/kafka sets them");
    measured.note("p50 has no floor of its own: its target counts for both.");
    Ok(measured)
}

fn draft(turn: u32) -> Draft {
    let node: NodeName = format!("node-{}", turn % NODES).parse().expect("a node name");
    let event = Event::Applied(event(turn, PODS, OBJECT_BYTES));
    Draft {
        stream: StreamId::node(&node),
        event,
        replaces: None,
        traceparent: None,
        is_shared: false,
    }
}

fn through_writer(
    runtime: &Runtime,
    settings: KafkaSettings,
    drafts: &[Draft],
) -> Result<Taken, Failure> {
    let log: Arc<dyn Log> = Arc::new(KafkaLog::new(settings).tried("a log on Kafka")?);
    runtime.block_on(async {
        let mut writer = claim(&log).await?;
        let groups: Vec<Vec<Draft>> = drafts.chunks(GROUP).map(<[Draft]>::to_vec).collect();
        let began = Instant::now();
        for group in groups {
            writer.append(group).await.tried("appending a group")?;
        }
        let per_second = drafts.len() as f64 / began.elapsed().as_secs_f64();
        let mut single = Samples::default();
        for draft in &drafts[..SINGLE] {
            let draft = draft.clone();
            let began = Instant::now();
            writer.append(vec![draft]).await.tried("appending an event")?;
            single.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(Taken { per_second, single_ms: single.median() })
    })
}

fn bare(settings: &KafkaSettings, records: &[Append]) -> Result<Taken, Failure> {
    let producer = BareProducer::new(settings)?;
    // It has to ask where the partitions are first, as the writer did when it claimed.
    for partition in (0..PARTITIONS).map(Partition) {
        producer.send(&Append { partition, record: records[0].record.clone() })?;
    }
    producer.acknowledged()?;
    let began = Instant::now();
    for record in records {
        producer.send(record)?;
    }
    producer.acknowledged()?;
    let per_second = records.len() as f64 / began.elapsed().as_secs_f64();
    let mut single = Samples::default();
    for record in &records[..SINGLE] {
        let began = Instant::now();
        producer.send(record)?;
        producer.acknowledged()?;
        single.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Taken { per_second, single_ms: single.median() })
}

/// The records that a writer makes of `drafts`.
async fn records(drafts: &[Draft]) -> Result<Vec<Append>, Failure> {
    let tap = Arc::new(Tap { log: memory_log(PARTITIONS), taken: Mutex::default() });
    let log: Arc<dyn Log> = tap.clone();
    let mut writer = claim(&log).await?;
    tap.taken().clear();
    for group in drafts.chunks(GROUP) {
        writer.append(group.to_vec()).await.tried("appending to a log in memory")?;
    }
    let records = std::mem::take(&mut *tap.taken());
    Ok(records)
}

/// A log in memory that keeps what was appended as it came.
struct Tap {
    log: MemoryLog,
    taken: Mutex<Vec<Append>>,
}

impl Tap {
    fn taken(&self) -> std::sync::MutexGuard<'_, Vec<Append>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Log for Tap {
    async fn describe(&self) -> Result<Description, ReadError> {
        self.log.describe().await
    }

    async fn append(&self, records: Vec<Append>) -> Result<Vec<RecordPosition>, AppendError> {
        self.taken().extend(records.iter().cloned());
        self.log.append(records).await
    }

    async fn bounds(&self, partition: Partition) -> Result<Bounds, ReadError> {
        self.log.bounds(partition).await
    }

    async fn start(&self, partition: Partition) -> Result<Cursor, ReadError> {
        self.log.start(partition).await
    }

    async fn read(&self, cursors: Vec<Cursor>) -> Result<Box<dyn Reader>, ReadError> {
        self.log.read(cursors).await
    }
}
