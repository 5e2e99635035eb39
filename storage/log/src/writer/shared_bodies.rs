//! The bodies of a writer: which body has a shared object, and which bodies are in use.
//!
//! A writer refers only to bodies that it appended itself. So a record of another writer, however
//! late, can neither retire a body that is in use nor change what a reference means.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use headwater_event::{Applied, BodyAddress, BodyHeader, BodyId, ObjectHash, Partition};
use headwater_event::{RecordKey, WriterEpoch};

use crate::log::{Append, Record};
use crate::value::ValueEncoder;

/// The smallest object that is shared, in bytes. Body and reference together take about 200 bytes
/// besides the object, and people read objects in place with ordinary tools.
pub const SHARED_BYTES_MIN: usize = 256;

/// An object in one partition.
type ObjectPlace = (Partition, ObjectHash);

/// The bodies that a writer has appended and not retired.
#[derive(Debug, Default)]
pub(super) struct SharedBodies {
    last_number: u64,
    present: HashMap<ObjectPlace, LiveBody>,
    /// How many references to a body were appended and not read back. A later event under the same
    /// key changes nothing: the log may take the reference and lose that event.
    unread: HashMap<BodyAddress, usize>,
    /// Bodies whose tombstone was appended and not read back.
    retiring: HashSet<BodyAddress>,
}

/// A body to which events may refer.
#[derive(Clone, Debug)]
struct LiveBody {
    id: BodyId,
    uid: String,
    resource_version: String,
}

/// The hashes of the objects of one append. Events in a row often have one object in memory, which
/// is hashed once.
#[derive(Default)]
pub(super) struct ObjectHashes {
    last: Option<(Bytes, ObjectHash)>,
}

/// The bodies of an append in preparation.
#[derive(Debug, Default)]
pub(super) struct StagedBodies {
    last_number: Option<u64>,
    added: HashMap<ObjectPlace, LiveBody>,
    references: Vec<BodyAddress>,
}

/// The body of one event.
pub(super) struct BodyOfEvent {
    /// Where it is.
    pub(super) at: BodyAddress,
    /// Its record, if the log does not have it yet.
    pub(super) record: Option<Record>,
}

impl ObjectHashes {
    /// The hash of an object.
    pub(super) fn of(&mut self, object: &Bytes) -> ObjectHash {
        let place = |object: &Bytes| (object.as_ptr(), object.len());
        match &self.last {
            Some((last, hash)) if place(last) == place(object) => *hash,
            _ => {
                let hash = ObjectHash::of(object);
                self.last = Some((object.clone(), hash));
                hash
            }
        }
    }
}

impl SharedBodies {
    /// The body for an event whose object is shared: one that the log has, or a new one. `None`: the
    /// object is small, and the event carries it.
    pub(super) fn body_of(
        &self,
        staged: &mut StagedBodies,
        encoder: &mut ValueEncoder,
        (partition, epoch): (Partition, WriterEpoch),
        (applied, object_hash): (&Applied, ObjectHash),
    ) -> Option<BodyOfEvent> {
        if applied.object.len() < SHARED_BYTES_MIN {
            return None;
        }
        let place = (partition, object_hash);
        let present = staged.added.get(&place).or_else(|| self.present.get(&place));
        if let Some(body) = present.filter(|body| body.is_of(applied)) {
            let at = BodyAddress { partition, id: body.id };
            staged.references.push(at);
            return Some(BodyOfEvent { at, record: None });
        }
        let number = staged.last_number.unwrap_or(self.last_number) + 1;
        staged.last_number = Some(number);
        let id = BodyId { epoch, number };
        let Applied { uid, resource_version, object, .. } = applied;
        let (uid, resource_version) = (uid.clone(), resource_version.clone());
        let header = BodyHeader {
            uid: uid.clone(),
            resource_version: resource_version.clone(),
            object_hash,
        };
        staged.added.insert(place, LiveBody { id, uid, resource_version });
        let record = Record {
            key: RecordKey::Body(id).to_string().into(),
            value: Some(encoder.encode(object)),
            header: header.encode().into(),
            traceparent: None,
        };
        let at = BodyAddress { partition, id };
        staged.references.push(at);
        Some(BodyOfEvent { at, record: Some(record) })
    }

    /// Takes over the bodies of an append that has begun.
    pub(super) fn begun(&mut self, staged: StagedBodies) {
        self.last_number = staged.last_number.unwrap_or(self.last_number);
        self.present.extend(staged.added);
        for at in staged.references {
            *self.unread.entry(at).or_default() += 1;
        }
    }

    /// Takes note of a reference that was read back.
    pub(super) fn read_back(&mut self, at: &BodyAddress) {
        if let Some(unread) = self.unread.get_mut(at) {
            *unread -= 1;
            if *unread == 0 {
                self.unread.remove(at);
            }
        }
    }

    /// Returns the tombstones of those `bodies` that are not being retired and to which no reference
    /// is in flight, and forgets the bodies.
    pub(super) fn retire(&mut self, bodies: impl IntoIterator<Item = BodyAddress>) -> Vec<Append> {
        let mut tombstones = Vec::new();
        for at in bodies {
            if !self.unread.contains_key(&at) && self.retiring.insert(at) {
                tombstones.push(tombstone(at));
            }
        }
        let retiring = &self.retiring;
        self.present.retain(|(partition, _), body| {
            !retiring.contains(&BodyAddress { partition: *partition, id: body.id })
        });
        tombstones
    }

    /// Takes note of a tombstone that was read back.
    pub(super) fn retired(&mut self, at: &BodyAddress) {
        self.retiring.remove(at);
    }
}

impl LiveBody {
    /// Whether a reference to it means `applied`, whose object it has.
    fn is_of(&self, applied: &Applied) -> bool {
        self.uid == applied.uid && self.resource_version == applied.resource_version
    }
}

fn tombstone(at: BodyAddress) -> Append {
    let record = Record {
        key: RecordKey::Body(at.id).to_string().into(),
        value: None,
        header: Bytes::new(),
        traceparent: None,
    };
    Append { partition: at.partition, record }
}
