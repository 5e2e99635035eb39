//! An edge's state disk: the memory engine, and what of it was ever durable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use headwater_check::{Entry, State};
use headwater_event::{Checkpoint, Seq, StreamId};
use headwater_store::{
    Durability, Engine, EngineError, KeyValue, MemoryEngine, Range, Read, Survival, TableId,
    WriteBatch, WriteOp,
};
use headwater_view::{Selection, StreamReader};

use crate::frame::lock;

/// More entries than any stream of a simulation has.
const ENTRIES_MAX: usize = 4_096;

/// A stream as a disk has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamOnDisk {
    pub(crate) at: Option<Checkpoint>,
    pub(crate) state: State,
}

/// What a disk holds of each stream.
pub(crate) type Streams = BTreeMap<StreamId, StreamOnDisk>;

/// What was durable.
#[derive(Debug, Default)]
pub(crate) struct Durable {
    pub(crate) streams: Arc<Streams>,
    /// How far each stream ever was: seqs begin anew with another log.
    pub(crate) highest: BTreeMap<StreamId, Seq>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) engine: MemoryEngine,
    pub(crate) durable: Arc<Mutex<Durable>>,
    /// What was found at the last look; `None` once a write may have changed it.
    found: Mutex<Option<Arc<Streams>>>,
}

impl Disk {
    /// A disk with what `engine` has, all of which is durable.
    pub(crate) fn new(engine: MemoryEngine) -> Self {
        let disk = Self { engine, durable: Arc::default(), found: Mutex::default() };
        disk.look();
        disk
    }

    /// The disk as it is found after the process died, or its machine did.
    pub(crate) fn crash(&self, survives: Survival) -> MemoryEngine {
        self.engine.crash(survives)
    }

    /// What is there now.
    pub(crate) fn streams(&self) -> Arc<Streams> {
        let mut found = lock(&self.found);
        found.get_or_insert_with(|| Arc::new(streams(&self.engine))).clone()
    }

    fn look(&self) {
        let streams = self.streams();
        let mut durable = lock(&self.durable);
        if Arc::ptr_eq(&streams, &durable.streams) {
            return;
        }
        for (stream, held) in &*streams {
            let highest = durable.highest.entry(stream.clone()).or_default();
            *highest = held.at.map_or(*highest, |at| at.seq.max(*highest));
        }
        durable.streams = streams;
    }
}

/// Whether a write touches what [`streams`] reads.
fn is_of_streams(op: &WriteOp) -> bool {
    let tables = [TableId::Checkpoints, TableId::Entries].map(TableId::prefix);
    match op {
        WriteOp::Put(key, _) | WriteOp::Delete(key) => {
            key.first().is_none_or(|table| tables.contains(table))
        }
        WriteOp::DeleteRange(..) => true,
    }
}

/// What `engine` holds of each stream.
pub(crate) fn streams(engine: &dyn Read) -> Streams {
    let reader = StreamReader::new(engine);
    let positions = reader.streams().unwrap_or_default();
    let held = positions.into_iter().map(|position| {
        let entries = reader.entries(&position.stream, Selection::All, None, ENTRIES_MAX);
        let entries = entries.unwrap_or_default().into_iter();
        let entries = entries
            .map(|(key, entry)| (key, Entry { uid: entry.uid, object: entry.object_hash }))
            .collect();
        (position.stream, StreamOnDisk { at: Some(position.checkpoint), state: State { entries } })
    });
    held.collect()
}

impl Read for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.engine.get(key)
    }

    fn scan(&self, range: &Range, limit: usize) -> Result<Vec<KeyValue>, EngineError> {
        self.engine.scan(range, limit)
    }

    fn last(&self, range: &Range) -> Result<Option<KeyValue>, EngineError> {
        self.engine.last(range)
    }
}

impl Engine for Disk {
    fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), EngineError> {
        let may_change = batch.ops.iter().any(is_of_streams);
        let written = self.engine.write(batch, durability);
        if may_change {
            *lock(&self.found) = None;
        }
        written?;
        if durability == Durability::Synced {
            self.look();
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()?;
        self.look();
        Ok(())
    }

    fn snapshot(&self) -> Box<dyn Read + '_> {
        self.engine.snapshot()
    }
}
