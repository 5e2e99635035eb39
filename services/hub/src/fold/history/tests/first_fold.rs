//! A first fold reads little of what it has written, and writes the history of a stream seldom.

use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_store::{KeyValue, Range, TableId, WriteBatch};

use super::*;

/// An engine that counts the reads of the histories of streams.
#[derive(Debug, Default)]
struct CountedEngine {
    inner: MemoryEngine,
    reads: AtomicUsize,
}

impl Read for CountedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        if key.first() == Some(&TableId::HubStreams.prefix()) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.inner.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.inner.last(range)
    }
}

impl Engine for CountedEngine {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        self.inner.write(batch, durability)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.inner.snapshot()
    }
}

#[test]
fn a_first_fold_reads_the_history_of_a_stream_once_while_its_events_follow_each_other() {
    const EVENTS: u8 = 50;
    let mut model = Model::new();
    (0..EVENTS).for_each(|key| model.append(Some(key), Some(1)));
    let engine = Arc::new(CountedEngine::default());
    let mut state = StreamState::open(engine.clone(), FoldBounds::default()).expect("opens");
    let (mut rows, mut effects) = (History::default(), Vec::new());
    for envelope in &model.events {
        rows.derive(envelope, Continuity::Sparse, &mut state).expect("readable");
        let applied = state.apply_event(LOG, envelope.clone(), Continuity::Sparse, &mut effects);
        applied.expect("continues");
        rows.before_commit(&mut state);
        state.commit(Durability::Buffered).expect("commits");
    }
    assert_eq!(engine.reads.load(Ordering::Relaxed), 1);
    let stored = STREAMS.get(&engine.inner, &model.stream).expect("readable");
    let Json(history) = stored.expect("a row");
    let last = Seq(u64::from(EVENTS));
    assert_eq!((history.seq, history.raw_from), (last, last));
}

#[test]
fn a_fold_writes_the_history_of_a_stream_when_another_one_follows_and_before_the_commit() {
    for continuity in [Continuity::Sparse, Continuity::Dense] {
        writes_the_history_once_a_batch(continuity);
    }
}

fn writes_the_history_once_a_batch(continuity: Continuity) {
    const EVENTS: u8 = 50;
    let mut first = Model::new();
    let mut second = Model { stream: "node/a".parse().expect("a stream"), ..Model::new() };
    for model in [&mut first, &mut second] {
        (0..EVENTS).for_each(|key| model.append(Some(key), Some(1)));
    }
    let engine = Arc::new(MemoryEngine::new());
    let mut state = StreamState::open(engine.clone(), FoldBounds::default()).expect("opens");
    let (mut rows, mut effects) = (History::default(), Vec::new());
    let written = |state: &mut StreamState, stream: &StreamId| {
        let row = state.batch().get(&*engine, &STREAMS, stream).expect("readable");
        row.map(|Json(history)| history.seq)
    };
    let last = Some(Seq(u64::from(EVENTS)));
    for model in [&first, &second] {
        for envelope in &model.events {
            rows.derive(envelope, continuity, &mut state).expect("readable");
            let applied = state.apply_event(LOG, envelope.clone(), continuity, &mut effects);
            applied.expect("continues");
            // No event of the stream writes its row.
            assert_eq!(written(&mut state, &model.stream), None, "seq {}", envelope.seq);
        }
        // The row of the first stream was written once, with its end, when the second one followed.
        let is_first = model.stream == first.stream;
        assert_eq!(written(&mut state, &first.stream), last.filter(|_| !is_first));
    }
    rows.before_commit(&mut state);
    assert_eq!(written(&mut state, &second.stream), last);
    state.commit(Durability::Buffered).expect("commits");
    for model in [&first, &second] {
        let stored = STREAMS.get(&*engine, &model.stream).expect("readable");
        assert_eq!(stored.map(|Json(history)| history.seq), last);
    }
}
