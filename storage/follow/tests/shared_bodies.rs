//! Objects that many streams share, in the store of a fold: once for each partition, with the right
//! count of references, whatever is changed, removed, claimed, retired, compacted and restarted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_event::{Applied, BodyAddress, EntryKey, Event, ObjectHash, Removed, StreamId};
use headwater_follow::{BodyReferences, Follower, WallClock};
use headwater_log::{
    Claimant, Draft, Log, MemoryLog, MemorySettings, MetadataProposal, Writer,
    read_or_create_metadata,
};
use headwater_store::{MemoryEngine, Range, Read};
use headwater_view::{Selection, StreamReader};
use proptest::prelude::*;
use uuid::Uuid;

const WINDOW_MS: u64 = 1000;
const PARTITIONS: u32 = 2;

type Wanted = BTreeMap<(StreamId, EntryKey), Bytes>;

#[derive(Clone, Debug)]
enum Step {
    /// Applies an object, or removes it, under one key of several streams.
    Set(u8, std::ops::Range<u8>, Option<u8>),
    Claim,
    Retire,
    Compact,
    /// A reader with its store goes on from it.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let set = (0u8..3, 0u8..6, 1u8..7, proptest::option::weighted(0.8, 0u8..4));
    prop_oneof![
        8 => set.prop_map(|(key, from, count, object)| Step::Set(key, from..from + count, object)),
        1 => Just(Step::Claim),
        3 => Just(Step::Retire),
        2 => Just(Step::Compact),
        2 => Just(Step::Restart),
    ]
}

struct Scene {
    log: MemoryLog,
    owner: Follower<BodyReferences>,
    writer: Writer,
    claims: u128,
    reader: Follower<BodyReferences>,
    reader_engine: Arc<MemoryEngine>,
    wanted: Wanted,
}

impl Scene {
    async fn new() -> Self {
        let log = MemoryLog::new(MemorySettings {
            partitions: PARTITIONS,
            replay_window_ms: WINDOW_MS,
            delete_retention_ms: 2 * WINDOW_MS,
            ..MemorySettings::default()
        });
        let wish = MetadataProposal { previous: None, uuid: Uuid::from_u128(7) };
        read_or_create_metadata(&log, wish).await.expect("an empty log takes its metadata");
        let mut owner = open(&log, &Arc::new(MemoryEngine::new())).await;
        let reader_engine = Arc::new(MemoryEngine::new());
        let reader = open(&log, &reader_engine).await;
        let writer = claim(&log, &mut owner, 1).await;
        let wanted = Wanted::new();
        Self { log, owner, writer, claims: 1, reader, reader_engine, wanted }
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Set(name, streams, object) => {
                let drafts = streams.map(|at| self.draft(stream(at), key(name), object));
                let drafts: Vec<_> = drafts.collect();
                self.writer.append(drafts).await.expect("no fault is injected");
            }
            Step::Claim => {
                self.claims += 1;
                self.writer = claim(&self.log, &mut self.owner, self.claims).await;
            }
            Step::Retire => self.retire().await,
            Step::Compact => {
                // Everyone has read what compaction may drop.
                self.writer.append_heads().await.expect("no fault is injected");
                self.read().await;
                self.log.advance_clock(4 * WINDOW_MS);
                self.read_clock().await;
                self.log.compact();
            }
            Step::Restart => {
                self.read().await;
                self.reader = open(&self.log, &self.reader_engine).await;
            }
        }
        self.read().await;
    }

    /// Moves the readers to the present: a record that everyone reads.
    async fn read_clock(&mut self) {
        self.writer
            .heartbeats()
            .append(false, Duration::from_secs(10))
            .await
            .expect("no fault is injected");
        self.writer.reconciled().await.expect("no fault is injected");
        self.read().await;
    }

    fn draft(&mut self, stream: StreamId, key: EntryKey, object: Option<u8>) -> Draft {
        let at = (stream.clone(), key.clone());
        let event = match object.map(object_of) {
            Some(object) => {
                let (uid, resource_version) = ("u".to_owned(), "1".to_owned());
                let key = key.clone();
                Event::Applied(Applied { key, uid, resource_version, object })
            }
            None => Event::Removed(Removed { key, uid: "u".to_owned() }),
        };
        let before = match &event {
            Event::Applied(applied) => self.wanted.insert(at, applied.object.clone()),
            _ => self.wanted.remove(&at),
        };
        let replaces = before.map(|before| ObjectHash::of(&before));
        Draft { stream, event, replaces, traceparent: None, is_shared: true }
    }

    async fn retire(&mut self) {
        let unreferenced = unreferenced(&self.owner);
        self.writer.begin_retiring(unreferenced).expect("no fault is injected");
        while self.writer.pending() > 0 {
            self.writer.finished().await.expect("no fault is injected");
        }
        self.read().await;
    }

    async fn read(&mut self) {
        for outcome in drain(&self.log, &mut self.owner).await {
            self.writer.observe(&outcome);
        }
        drain(&self.log, &mut self.reader).await;
    }

    fn check(&self, follower: &Follower<BodyReferences>) {
        assert_eq!(entries(follower), self.wanted);
        assert_eq!(follower.damaged().len(), 0);
        let snapshot = follower.state().engine().snapshot();
        assert_eq!(StreamReader::new(&*snapshot).find_damage().expect("readable"), None);
    }
}

async fn claim(log: &MemoryLog, owner: &mut Follower<BodyReferences>, number: u128) -> Writer {
    let log: Arc<dyn Log> = Arc::new(log.clone());
    let claimant = Claimant::new(Uuid::from_u128(number));
    owner.take_over(&log, &claimant).await.expect("no other process claims")
}

async fn open(log: &MemoryLog, engine: &Arc<MemoryEngine>) -> Follower<BodyReferences> {
    let clock: WallClock = {
        let log = log.clone();
        Arc::new(move || log.now_ms())
    };
    let opened = Follower::open(log, engine.clone(), BodyReferences, clock).await;
    let mut follower = opened.expect("the log can be followed");
    drain(log, &mut follower).await;
    follower
}

async fn drain(
    log: &MemoryLog,
    follower: &mut Follower<BodyReferences>,
) -> Vec<headwater_log::Outcome> {
    let mut outcomes = Vec::new();
    loop {
        let mut is_behind = false;
        for cursor in follower.acceptance().cursors() {
            is_behind |= cursor.next < log.bounds(cursor.partition).await.expect("there").high;
        }
        if !is_behind {
            return outcomes;
        }
        outcomes.extend(follower.next().await.expect("the log can be folded").outcomes);
    }
}

fn stream(number: u8) -> StreamId {
    format!("node/n{number}").parse().expect("well-formed")
}

fn key(number: u8) -> EntryKey {
    format!("d/configmap/c{number}").parse().expect("well-formed")
}

fn object_of(number: u8) -> Bytes {
    let pad = if number == 0 { 0 } else { 2000 };
    format!("{{\"number\":{number},\"pad\":\"{}\"}}", ".".repeat(pad)).into()
}

fn entries(follower: &Follower<BodyReferences>) -> Wanted {
    let reader = StreamReader::new(&**follower.state().engine());
    let mut entries = Wanted::new();
    for position in reader.streams().expect("readable") {
        let of = reader.entries(&position.stream, Selection::All, None, 1000).expect("readable");
        for (key, entry) in of {
            entries.insert((position.stream.clone(), key), entry.object);
        }
    }
    entries
}

fn unreferenced(follower: &Follower<BodyReferences>) -> Vec<BodyAddress> {
    let engine = &**follower.state().engine();
    BodyReferences::unreferenced(engine).collect::<Result<_, _>>().expect("readable")
}

fn stored_bytes(engine: &MemoryEngine) -> usize {
    let rows = engine.scan(&Range::all(), usize::MAX).expect("readable");
    rows.iter().map(|(key, value)| key.len() + value.len()).sum()
}

#[tokio::test]
async fn the_store_has_the_object_of_many_streams_once_in_a_partition() {
    const STREAMS: usize = 200;
    const OBJECT_BYTES: usize = 100 << 10;
    // Stream, key, hash, UID, version and the address of the body; and the stream's own rows.
    const ENTRY_BYTES_MAX: usize = 1000;
    let mut scene = Scene::new().await;
    let object = Bytes::from(format!("{{\"pad\":\"{}\"}}", "x".repeat(OBJECT_BYTES)));
    let drafts = (0..STREAMS).map(|number| Draft {
        stream: format!("node/gateway-{number}").parse().expect("well-formed"),
        event: Event::Applied(Applied {
            key: key(0),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            object: object.clone(),
        }),
        replaces: None,
        traceparent: None,
        is_shared: true,
    });
    let drafts = drafts.collect();
    scene.writer.append(drafts).await.expect("no fault is injected");
    scene.read().await;
    let entries = entries(&scene.reader);
    assert!(entries.len() == STREAMS && entries.values().all(|held| *held == object));
    let most = object.len() * PARTITIONS as usize * 12 / 10 + STREAMS * ENTRY_BYTES_MAX;
    let bytes = stored_bytes(&scene.reader_engine);
    assert!(bytes <= most, "{bytes} bytes, at most {most}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_fold_has_the_objects_and_nothing_else_whatever_happens(
        steps in proptest::collection::vec(step(), 1..30),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut scene = Scene::new().await;
            for step in steps {
                scene.run(step).await;
                scene.check(&scene.owner);
                scene.check(&scene.reader);
            }
            // Without anything to refer to them, all bodies go.
            for ((stream, key), _) in scene.wanted.clone() {
                let draft = scene.draft(stream, key, None);
                scene.writer.append(vec![draft]).await.expect("no fault is injected");
            }
            scene.read().await;
            let fresh = open(&scene.log, &Arc::new(MemoryEngine::new())).await;
            assert_eq!(unreferenced(&fresh), unreferenced(&scene.owner));
            scene.retire().await;
            assert_eq!(unreferenced(&scene.owner), []);
            assert_eq!(unreferenced(&scene.reader), []);
        });
    }
}
