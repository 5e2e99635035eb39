//! Row 13: a hub that begins with nothing, and an edge that does.
//!
//! The hub folds a log on Kafka from its start, against the slower of two: consuming the same
//! topic, and writing the same bytes to bare RocksDB. The edge takes one snapshot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headwater_event::{Event, NodeName, StreamId};
use headwater_kafka::{KafkaLog, KafkaSettings};
use headwater_loadtest::failure::{Attempt, Failure};
use headwater_log::{Draft, Log};
use headwater_rocks::{Budget, DatabaseMemory, RocksEngine, Role};
use headwater_store::{WriteBatch, WriteOp, schema};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::bound::Bound;
use crate::figure::{Figure, RowResult};
use crate::hub;
use crate::kafka::{Kafka, PARTITIONS, runtime};
use crate::limit::consumer::{BareConsumer, From};
use crate::limit::{Written, patch, rocks};
use crate::link::Link;
use crate::pods::event;
use crate::run::Run;
use crate::samples::Samples;
use crate::waiting::wait;
use crate::writer::claim;

const OBJECT_BYTES: usize = 2 << 10;
const NODES: u32 = 20;

/// Events in one append, and in one batch of the bare database.
const GROUP: usize = 1_024;

/// How long a read may take to bring something.
const READ_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
enum Side {
    Hub,
    Consume,
    Write,
}

/// Measures it.
///
/// # Errors
/// When a part does not come so far.
pub(crate) fn measure(run: &mut Run) -> Result<RowResult, Failure> {
    let events: u32 = run.pick(100_000, 1_000_000);
    let keys = events / 50;
    let rounds = run.pick(5, 7);
    let runtime = runtime("bootstrap", 2)?;
    let kafka = Kafka::start()?;
    let settings = kafka.topic(&runtime)?;
    let drafts: Vec<Draft> = (0..events).map(|turn| draft(turn, keys)).collect();
    let log: Arc<dyn Log> = Arc::new(KafkaLog::new(settings.clone()).tried("a log on Kafka")?);
    runtime.block_on(async {
        let mut writer = claim(&log).await?;
        for group in drafts.chunks(GROUP) {
            writer.append(group.to_vec()).await.tried("appending a group")?;
        }
        writer.reconciled().await.tried("appending")
    })?;
    let batches: Vec<Written> = drafts.chunks(GROUP).map(batch).collect();
    let sides = [Side::Hub, Side::Consume, Side::Write];
    let taken = run.turns.take(rounds, sides, |side| {
        let seconds = match side {
            Side::Hub => fold(&runtime, &settings)?,
            Side::Consume => consume(&settings, events)?,
            Side::Write => rocks::write(&batches, false)?.wall,
        };
        Ok(f64::from(events) / seconds.as_secs_f64())
    })?;
    let of = |side: usize| taken.iter().map(|round| round[side]).collect::<Samples>();
    let slower: Samples = taken.iter().map(|[_, consume, write]| consume.min(*write)).collect();

    let mut measured = RowResult::default();
    let limit = "the slower of consume and write";
    measured.push(
        Figure::ratio("hub, replay: events/s", of(0), limit, slower)
            .held_to(Bound::at_least(0.4, 0.6)),
    );
    measured.push(Figure::alone("bare consume: events/s", of(1)));
    measured.push(Figure::alone("bare write: events/s", of(2)));
    snapshot(run, &mut measured)?;
    measured.set(
        "log",
        format!("{events} events of {OBJECT_BYTES} bytes, {keys} live keys, {NODES} nodes"),
    );
    measured.set("topic", format!("{PARTITIONS} partitions, 1 replica"));
    measured.set("fold", "RocksDB as a hub has it, unsynced; bare: an edge's options");
    Ok(measured)
}

fn draft(turn: u32, keys: u32) -> Draft {
    let node: NodeName = format!("node-{}", turn % NODES).parse().expect("a node's name");
    let event = Event::Applied(event(turn, keys, OBJECT_BYTES));
    Draft {
        stream: StreamId::node(&node),
        event,
        replaces: None,
        traceparent: None,
        is_shared: false,
    }
}

/// The objects of `drafts` under their keys.
fn batch(drafts: &[Draft]) -> Written {
    let op = |draft: &Draft| match &draft.event {
        Event::Applied(applied) => {
            let key = format!("{} {}", draft.stream, applied.key);
            Some(WriteOp::Put(Bytes::from(key), applied.object.clone()))
        }
        Event::Removed(_) | Event::Head => None,
    };
    Written { batch: WriteBatch { ops: drafts.iter().filter_map(op).collect() }, synced: false }
}

/// How long a hub on an empty disk takes until it knows everything.
fn fold(runtime: &Runtime, settings: &KafkaSettings) -> Result<Duration, Failure> {
    let folder = TempDir::new().tried("making a folder")?;
    let shared = DatabaseMemory::new(Budget::CLOUD_PART);
    let engine = RocksEngine::open(folder.path().join("store"), Role::Fold, &shared, schema::HUB);
    let engine = Arc::new(engine.tried("opening a database")?);
    let downstream = KafkaLog::new(settings.clone()).tried("a log on Kafka")?;
    let began = Instant::now();
    let hub = hub::start(runtime, Arc::new(downstream), engine)?;
    wait("the hub has everything", || hub.view().is_reconciled().then_some(()))?;
    let taken = began.elapsed();
    runtime.block_on(hub.stop());
    Ok(taken)
}

fn consume(settings: &KafkaSettings, events: u32) -> Result<Duration, Failure> {
    let began = Instant::now();
    let consumer = BareConsumer::new(settings, PARTITIONS, From::Start)?;
    let mut read = 0;
    let mut heard = Instant::now();
    while read < events {
        match consumer.next(Duration::from_millis(100), <[u8]>::len)? {
            Some(bytes) => {
                read += u32::from(bytes > OBJECT_BYTES / 2);
                heard = Instant::now();
            }
            None if heard.elapsed() > READ_WITHIN => {
                return Err(Failure::of("the topic does not hold what was written"));
            }
            None => {}
        }
    }
    Ok(began.elapsed())
}

/// An edge with nothing gets one snapshot.
fn snapshot(run: &Run, measured: &mut RowResult) -> Result<(), Failure> {
    let pods = 1_000;
    let mut link = Link::start(OBJECT_BYTES)?;
    let objects: Vec<Bytes> = (0..pods).map(|number| link.pods.object(number, 0)).collect();
    link.say((0..pods).map(|number| (number, 0)))?;
    let live: Vec<&[u8]> = objects.iter().map(|object| &object[..]).collect();
    let live = patch::frame_bytes(&live)? as f64;
    let (mut down, mut ideal, mut ms) = <(Samples, Samples, Samples)>::default();
    for round in 0..run.pick(3, 7) {
        if round > 0 {
            link.wipe_edge()?;
        }
        let before = link.hop.traffic();
        let began = Instant::now();
        link.start_edge()?;
        link.in_step()?;
        ms.push(began.elapsed().as_secs_f64() * 1e3);
        down.push(link.quiet()?.since(before).down as f64);
        ideal.push(live);
    }
    measured.push(
        Figure::ratio("edge, snapshot: bytes down", down, "the live objects, compressed", ideal)
            .held_to(Bound::at_most(2.4, 1.2)),
    );
    measured.push(Figure::alone("edge, snapshot: ms from start to synced", ms).latency());
    measured.set("snapshot", format!("{pods} pods of about {OBJECT_BYTES} bytes"));
    measured
        .note("The snapshot's bytes have no floor of their own: twice the target counts instead.");
    Ok(())
}
