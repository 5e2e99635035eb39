//! The disk of one node.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use headwater_check::state::{Entry, State};
use headwater_edge::{OutboxContents, read_outbox};
use headwater_event::{Checkpoint, EntryKey, NodeName, ObjectHash, StateHash, StreamId};
use headwater_rocks::Role;
use headwater_store::{EngineError, Read, schema};
use headwater_view::{Selection, StreamReader};

use super::{Copies, Unreadable, unreadable};

/// The disk of one node.
#[derive(Debug, Default)]
pub struct NodeEvidence {
    /// Its replica of each stream.
    pub replicas: BTreeMap<StreamId, Replica>,
    /// Its outbox; `None`: it has none yet.
    pub outbox: Option<OutboxContents>,
    /// Whether its edge was ended: it need not be in step.
    pub is_away: bool,
}

/// The replica of one stream.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Its position.
    pub checkpoint: Checkpoint,
    /// The state hash that is kept with the position.
    pub kept: StateHash,
    /// The entries.
    pub state: State,
    /// Their bytes.
    pub objects: BTreeMap<EntryKey, Bytes>,
}

impl NodeEvidence {
    pub(super) fn of(folder: &Path, node: &NodeName, copies: &Copies) -> Result<Self, Unreadable> {
        let mut evidence = Self::default();
        let state = folder.join("state");
        if let Some(engine) = copies.open(&state, Role::State, schema::NODE_STATE)? {
            evidence.replicas = replicas(&*engine).map_err(|error| unreadable(&state, &error))?;
        }
        let outbox = folder.join("outbox");
        if let Some(engine) = copies.open(&outbox, Role::Outbox, schema::OUTBOX)? {
            let contents =
                read_outbox(&*engine, node).map_err(|error| unreadable(&outbox, &error))?;
            evidence.outbox = Some(contents);
        }
        Ok(evidence)
    }
}

/// The replicas that a state database holds.
///
/// # Errors
/// When it cannot be read.
pub fn replicas(from: &dyn Read) -> Result<BTreeMap<StreamId, Replica>, EngineError> {
    let reader = StreamReader::new(from);
    let mut replicas = BTreeMap::new();
    for position in reader.streams()? {
        let entries = reader.entries(&position.stream, Selection::All, None, usize::MAX)?;
        let mut replica = Replica {
            checkpoint: position.checkpoint,
            kept: position.hash,
            state: State::default(),
            objects: BTreeMap::new(),
        };
        for (key, entry) in entries {
            // Of the bytes, not as stored: a byte that rotted must be found.
            let object = ObjectHash::of(&entry.object);
            replica.state.entries.insert(key.clone(), Entry { uid: entry.uid, object });
            replica.objects.insert(key, entry.object);
        }
        replicas.insert(position.stream, replica);
    }
    Ok(replicas)
}
