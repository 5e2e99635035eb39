//! A replica: rows that a damaged or foreign database may hold, and folds of any pushes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use headwater_event::{
    Applied, Change, Checkpoint, EntryKey, HashKey, LogId, ObjectHash, RemovalRuns, Removed, Seq,
    StateHash, StreamId, WriterEpoch,
};
use headwater_store::{Durability, Engine, MemoryEngine, TableId, WriteBatch};
use headwater_view::{
    Advance, AdvanceMode, FoldBounds, FoldError, PodStatusFold, Selection, StreamReader,
    StreamState,
};
use uuid::Uuid;

/// Inputs of one fold: more find nothing that fewer would not.
const INPUTS_MAX: usize = 48;

/// Entries that are read of a stream.
const ENTRIES_MAX: usize = 100;

/// Any rows in the tables of a replica, opened and read.
pub fn rows(bytes: &[u8]) {
    let _ = rows_of(&mut Unstructured::new(bytes));
}

fn rows_of(input: &mut Unstructured<'_>) -> Result<()> {
    let tables = [
        TableId::Checkpoints,
        TableId::Entries,
        TableId::Staging,
        TableId::Cursors,
        TableId::StatusPictures,
    ];
    let beginnings: [&[u8]; 5] = [b"cluster\0\0", b"node/a\0\0", b"a\0\0", b"", b"cluster\0\0\0"];
    let mut batch = WriteBatch::default();
    while !input.is_empty() {
        let mut key = vec![input.choose(&tables)?.prefix()];
        key.extend_from_slice(input.choose(&beginnings)?);
        key.extend(input.arbitrary::<Vec<u8>>()?);
        batch.put(key, input.arbitrary::<Vec<u8>>()?);
    }
    let engine = Arc::new(MemoryEngine::new());
    engine.write(batch, Durability::Buffered).expect("memory takes it");
    read(&engine);
    let _ = PodStatusFold::open(&*engine);
    if StreamState::open(engine.clone(), FoldBounds::default()).is_ok() {
        read(&engine);
    }
    Ok(())
}

fn read(engine: &MemoryEngine) {
    let reader = StreamReader::new(engine);
    let _ = reader.streams();
    for stream in ["cluster", "node/a"] {
        let stream: StreamId = stream.parse().expect("a stream");
        let _ = reader.position(&stream);
        let _ = reader.entries(&stream, Selection::All, None, ENTRIES_MAX);
        let _ = reader.verify(&stream);
    }
}

/// Any events and pushes, folded. What is visible is always what its hash says.
pub fn fold(bytes: &[u8]) {
    let _ = fold_of(&mut Unstructured::new(bytes));
}

fn fold_of(input: &mut Unstructured<'_>) -> Result<()> {
    let engine = Arc::new(MemoryEngine::new());
    let bounds = FoldBounds {
        cached_entries_max: input.int_in_range(0..=4)?,
        direct_bytes_max: input.int_in_range(0..=40)?,
        staged_batch_bytes_max: input.int_in_range(1..=200)?,
    };
    let mut state = StreamState::open(engine.clone(), bounds).expect("it is empty");
    for _ in 0..INPUTS_MAX {
        if input.is_empty() {
            break;
        }
        let mut effects = Vec::new();
        let outcome = if input.ratio(1, 16)? {
            state.drop_stream(&stream(input)?, &mut effects).map_err(FoldError::Engine)
        } else {
            let advance = advance(input, &mut state)?;
            state.apply_advance(advance, &mut effects)
        };
        assert!(!matches!(outcome, Err(FoldError::Engine(_))), "{outcome:?}");
        state.commit(Durability::Buffered).expect("memory takes it");
        let reader = StreamReader::new(&*engine);
        for at in reader.streams().expect("it was written by us") {
            let verified = reader.verify(&at.stream).expect("it was written by us");
            let verified = verified.expect("it has a position");
            assert!(verified.agrees(), "{} does not match its hash: {verified:?}", at.stream);
        }
    }
    Ok(())
}

fn stream(input: &mut Unstructured<'_>) -> Result<StreamId> {
    Ok(input.choose(&["cluster", "node/a"])?.parse().expect("a stream"))
}

/// A push. Half of them continue the stream and have the hash that comes out.
fn advance(input: &mut Unstructured<'_>, state: &mut StreamState) -> Result<Advance> {
    let stream = stream(input)?;
    let number = if input.ratio(1, 16)? { 2 } else { 1 };
    let log_id = LogId { number, uuid: Uuid::from_u128(u128::from(number)) };
    let position = state.position(&stream).expect("it was written by us");
    let applied = position.map_or(Seq::ZERO, |(at, _)| at.seq);
    let from = if input.ratio(3, 4)? { applied } else { Seq(input.arbitrary()?) };
    let changes =
        (0..input.int_in_range(0..=3)?).map(|_| change(input)).collect::<Result<Vec<_>>>()?;
    let seq = if input.ratio(1, 32)? {
        Seq(u64::MAX)
    } else {
        Seq(applied.0.saturating_add(u64::from(input.int_in_range(0..=3u8)?)))
    };
    let to = Checkpoint { log_id, epoch: WriterEpoch(input.int_in_range(0..=2)?), seq };
    let mode = *input.choose(&[
        AdvanceMode::Tail,
        AdvanceMode::Delta,
        AdvanceMode::Snapshot,
        AdvanceMode::Correction,
    ])?;
    let gone = match mode {
        AdvanceMode::Correction if input.ratio(1, 8)? => RemovalRuns::from_runs(input.arbitrary()?),
        AdvanceMode::Correction => RemovalRuns::of(input.arbitrary::<[bool; 3]>()?),
        AdvanceMode::Tail | AdvanceMode::Delta | AdvanceMode::Snapshot => RemovalRuns::default(),
    };
    let hash = if input.ratio(1, 8)? {
        StateHash::from_bytes(&[1; 32])
    } else {
        hash_after(state, &stream, mode, &log_id, &gone, &changes)
    };
    let part = *input.choose(&[0, 0, 0, 1, 2])?;
    let whole = Advance::new(stream, mode, from, to, hash, changes).with_gone(gone);
    Ok(whole.part(part, input.ratio(3, 4)?))
}

fn change(input: &mut Unstructured<'_>) -> Result<Change> {
    let key = input.choose(&["ns/pod/a", "ns/pod/b", "ns/configmap/a", "!streams"])?;
    let key = key.parse().expect("an entry key");
    if input.ratio(1, 3)? {
        return Ok(Change::Removed(Removed { key, uid: String::new() }));
    }
    let object = *input.choose(&["{}", "[]", "0123456789012345678901234567890123456789"])?;
    let (uid, resource_version) = (String::new(), String::new());
    let object = Bytes::from_static(object.as_bytes());
    Ok(Change::Applied(Applied { key, uid, resource_version, object }))
}

/// The state hash that these changes lead to, each key's last change counting.
fn hash_after(
    state: &StreamState,
    stream: &StreamId,
    mode: AdvanceMode,
    log_id: &LogId,
    gone: &RemovalRuns,
    changes: &[Change],
) -> StateHash {
    let reader = StreamReader::new(state.engine());
    let held = reader.entries(stream, Selection::All, None, ENTRIES_MAX).expect("written by us");
    let mut goes = gone.removals();
    let mut stays = |key: &EntryKey| match mode {
        AdvanceMode::Tail | AdvanceMode::Delta => true,
        AdvanceMode::Snapshot => false,
        AdvanceMode::Correction => key.resource().is_some() && !goes.next().unwrap_or_default(),
    };
    let held = held.into_iter().filter(|(key, _)| stays(key));
    let mut entries: BTreeMap<_, _> = held.map(|(key, entry)| (key, entry.object_hash)).collect();
    for change in changes {
        match change {
            Change::Applied(applied) => {
                entries.insert(applied.key.clone(), ObjectHash::of(&applied.object));
            }
            Change::Removed(removed) => {
                entries.remove(&removed.key);
            }
        }
    }
    let (hash_key, mut hash) = (HashKey::new(log_id), StateHash::EMPTY);
    entries.iter().for_each(|(key, object)| hash.add(&hash_key, key, object));
    hash
}
