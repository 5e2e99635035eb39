//! Past states inside the replay window, past states outside it, and states with a wrong hash.

use std::sync::Arc;

use bytes::Bytes;
use headwater_event::{Event, ObjectHash, Removed};
use uuid::Uuid;

use super::*;
use crate::claim::{Claimant, claim};
use crate::fold::begin_fold;
use crate::memory::{MemoryLog, MemorySettings};
use crate::metadata::{MetadataProposal, read_or_create_metadata};
use crate::writer::{Draft, Writer};

const WINDOW_MS: u64 = 1000;
const EVENTS_MAX: usize = 100;

/// A log with one writer, and the last object that the writer wrote under each key.
struct TestLog {
    log: MemoryLog,
    metadata: LogMetadata,
    writer: Writer,
    written: BTreeMap<String, ObjectHash>,
}

impl TestLog {
    async fn new() -> Self {
        let settings = MemorySettings {
            replay_window_ms: WINDOW_MS,
            delete_retention_ms: 2 * WINDOW_MS,
            start_ms: 0,
            ..MemorySettings::default()
        };
        let log = MemoryLog::new(settings);
        let wish = MetadataProposal { previous: None, uuid: Uuid::from_u128(1) };
        let metadata = read_or_create_metadata(&log, wish).await.expect("readable");
        let mut acceptance = begin_fold(&log, metadata, 0).await.expect("readable");
        let mut reader = log.read(acceptance.cursors()).await.expect("readable");
        while !acceptance.is_folded() {
            let batch = reader.next().await.expect("readable");
            acceptance.accept_batch(&batch, 0);
        }
        let claimant = Claimant::new(Uuid::from_u128(2));
        let shared: Arc<dyn Log> = Arc::new(log.clone());
        let (clock, mut each) = (|| 0, |_: &_, _: Vec<_>| {});
        let writer = claim(&shared, reader.as_mut(), &mut acceptance, &claimant, &clock, &mut each);
        let writer = writer.await.expect("no other process claims");
        Self { log, metadata, writer, written: BTreeMap::new() }
    }

    /// Appends events, each 100 ms after the previous one: `a=1` applies, `a=` removes.
    async fn append(&mut self, events: &[&str]) {
        for event in events {
            let (name, value) = event.split_once('=').expect("name=value");
            let key: EntryKey = format!("d/pod/{name}").parse().expect("well-formed");
            let object = Bytes::from(format!("{{\"v\":\"{value}\"}}"));
            let replaces = self.written.remove(name);
            let event = match value {
                "" => Event::Removed(Removed { key, uid: "u".to_owned() }),
                _ => {
                    self.written.insert(name.to_owned(), ObjectHash::of(&object));
                    let (uid, resource_version) = ("u".to_owned(), "1".to_owned());
                    Event::Applied(Applied { key, uid, resource_version, object })
                }
            };
            let draft =
                Draft { stream: stream(), event, replaces, traceparent: None, is_shared: false };
            self.writer.append(vec![draft]).await.expect("alive");
            self.log.advance_clock(100);
        }
    }

    async fn at(&self, until: Until) -> Result<String, HistoryError> {
        let now_ms = self.log.now_ms();
        let state = fold_stream(&self.log, self.metadata, &stream(), until, now_ms).await?;
        let entries = state.entries.iter().map(|(key, entry)| {
            let name = key.as_str().trim_start_matches("d/pod/");
            let object = String::from_utf8_lossy(&entry.applied.object);
            let value = object.trim_start_matches("{\"v\":\"").trim_end_matches("\"}");
            format!(" {name}={value}@{}", entry.seq)
        });
        Ok(format!("{}:{}", state.seq, entries.collect::<String>()))
    }

    async fn window(&self) -> Option<StateWindow> {
        let now_ms = self.log.now_ms();
        stream_window(&self.log, self.metadata, &stream(), now_ms).await.expect("readable")
    }

    async fn events(&self, from: Option<u64>, to: Option<u64>) -> Result<Vec<u64>, HistoryError> {
        let range = (from.map(Seq), to.map(Seq));
        let now_ms = self.log.now_ms();
        let events =
            stream_events(&self.log, self.metadata, &stream(), range, EVENTS_MAX, now_ms).await?;
        Ok(events.iter().map(|envelope| envelope.seq.0).collect())
    }

    fn age_and_compact(&self) {
        self.log.advance_clock(WINDOW_MS + 1);
        self.log.compact();
    }
}

fn stream() -> StreamId {
    "node/n1".parse().expect("well-formed")
}

#[tokio::test]
async fn every_state_inside_the_window_can_be_shown() {
    let mut test = TestLog::new().await;
    test.append(&["a=1", "b=1", "a=2", "b="]).await;
    test.writer.append_heads().await.expect("alive");
    for (seq, want) in
        ["0:", "1: a=1@1", "2: a=1@1 b=1@2", "3: a=2@3 b=1@2", "4: a=2@3", "5: a=2@3"]
            .iter()
            .enumerate()
    {
        let at = test.at(Until::Seq(Seq(seq as u64))).await.expect("it is there");
        assert_eq!(at, *want);
    }
    assert_eq!(test.at(Until::Tail).await.expect("whole"), "5: a=2@3");
    assert_eq!(test.at(Until::Time(-1)).await.expect("empty"), "0:");
    assert_eq!(test.at(Until::Time(199)).await.expect("there"), "2: a=1@1 b=1@2");
    assert_eq!(test.at(Until::Time(i64::MAX)).await.expect("there"), "5: a=2@3");
    let beyond = test.at(Until::Seq(Seq(6))).await;
    assert!(matches!(beyond, Err(HistoryError::NotReached { tail: Seq(5), .. })), "{beyond:?}");
}

#[tokio::test]
async fn a_state_that_compaction_dropped_is_refused_and_the_earliest_is_named() {
    let mut test = TestLog::new().await;
    test.append(&["a=1", "b=1", "a=2", "c=1"]).await;
    test.age_and_compact();
    test.append(&["a=3", "b=2"]).await;
    // The log holds b=1, a=2, c=1, a=3, b=2. After a=2 the state is complete for the first time.
    for until in [Until::Seq(Seq(1)), Until::Seq(Seq(2)), Until::Time(0), Until::Time(150)] {
        match test.at(until).await {
            Err(HistoryError::Compacted { earliest, .. }) => {
                assert_eq!(earliest, Some((Seq(3), 200)), "{until:?}");
            }
            other => panic!("{until:?} is not refused: {other:?}"),
        }
    }
    assert_eq!(test.at(Until::Seq(Seq(3))).await.expect("whole"), "3: a=2@3 b=1@2");
    assert_eq!(test.at(Until::Time(320)).await.expect("whole"), "4: a=2@3 b=1@2 c=1@4");
    assert_eq!(test.at(Until::Tail).await.expect("whole"), "6: a=3@5 b=2@6 c=1@4");
}

#[tokio::test]
async fn the_window_is_from_the_first_complete_state_to_the_tail() {
    let mut test = TestLog::new().await;
    assert_eq!(test.window().await, None);
    test.append(&["a=1", "b=1", "a=2", "c=1"]).await;
    let whole = StateWindow { earliest: (Seq(1), 0), newest: (Seq(4), 300) };
    assert_eq!(test.window().await, Some(whole));
    test.age_and_compact();
    assert_eq!(test.window().await.map(|window| window.earliest), Some((Seq(3), 200)));
    let earliest = test.at(Until::Time(200)).await.expect("the window begins here");
    assert!(earliest.starts_with("3:"), "{earliest}");
}

#[tokio::test]
async fn events_are_listed_with_every_seq_or_not_at_all() {
    let mut test = TestLog::new().await;
    test.append(&["a=1", "b=1", "a=2", "c=1"]).await;
    assert_eq!(test.events(None, None).await.expect("all"), [1, 2, 3, 4]);
    assert_eq!(test.events(Some(2), Some(3)).await.expect("some"), [2, 3]);
    test.age_and_compact();
    test.append(&["a=3"]).await;
    assert_eq!(test.events(None, None).await.expect("what is left"), [2, 3, 4, 5]);
    assert_eq!(test.events(Some(3), None).await.expect("what is left"), [3, 4, 5]);
    let gone = test.events(Some(1), None).await;
    assert!(
        matches!(gone, Err(HistoryError::Compacted { earliest: Some((Seq(2), _)), .. })),
        "{gone:?}"
    );
}

#[tokio::test]
async fn a_state_whose_hash_differs_from_the_recorded_hash_is_refused() {
    let mut test = TestLog::new().await;
    test.append(&["a=1"]).await;
    // A writer that assumes a wrong previous object records a hash that no reader computes.
    test.written.insert("b".to_owned(), ObjectHash::of(b"never there"));
    test.append(&["b=1"]).await;
    let tail = test.at(Until::Tail).await;
    assert!(matches!(tail, Err(HistoryError::Diverged { seq: Seq(2), .. })), "{tail:?}");
}

#[tokio::test]
async fn a_stream_can_be_followed_from_its_past() {
    let mut test = TestLog::new().await;
    test.append(&["a=1"]).await;
    let mut history =
        StreamHistory::open(&test.log, test.metadata, &stream(), 0).await.expect("readable");
    let is_event =
        |read: &HistoryItem, seq| matches!(read, HistoryItem::Event(it) if it.seq == Seq(seq));
    assert!(is_event(&history.next().await.expect("readable"), 1));
    assert_eq!(history.next().await.expect("readable"), HistoryItem::End);
    test.append(&["a=2"]).await;
    assert!(is_event(&history.next().await.expect("readable"), 2));
}
