//! The bodies of a partition, as a reader keeps them: objects that events refer to.
//!
//! A reader mirrors the body records of the log: a record adds a body, its tombstone removes it. So
//! the reader has a body for as long as the latest event of any key may refer to it, and counts
//! nothing. The writer decides when a body is retired.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use headwater_event::{BodyAddress, BodyHeader, ObjectHash};

use crate::acceptance::MalformedReason;
use crate::log::Record;
use crate::value::decode_value;

/// A body that was read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// UID, resource version and hash of the object.
    pub header: BodyHeader,
    /// The object.
    pub object: Bytes,
}

/// The bodies that a reader keeps. They move with its cursor, in the same batch.
pub trait Bodies {
    /// Why a body cannot be read.
    type Error;

    /// Adds a body.
    fn put(&mut self, at: BodyAddress, body: Body);

    /// Removes a body.
    fn remove(&mut self, at: BodyAddress);

    /// Returns a body. Many events in a row refer to the same one.
    ///
    /// # Errors
    /// When the reader's store fails.
    fn get(&mut self, at: BodyAddress) -> Result<Option<Body>, Self::Error>;
}

/// Bodies in memory, for a reader that stores nothing. It has every body of the partitions that it
/// reads.
#[derive(Clone, Debug, Default)]
pub struct MemoryBodies(BTreeMap<BodyAddress, Body>);

impl Bodies for MemoryBodies {
    type Error = Infallible;

    fn put(&mut self, at: BodyAddress, body: Body) {
        self.0.insert(at, body);
    }

    fn remove(&mut self, at: BodyAddress) {
        self.0.remove(&at);
    }

    fn get(&mut self, at: BodyAddress) -> Result<Option<Body>, Infallible> {
        Ok(self.0.get(&at).cloned())
    }
}

impl MemoryBodies {
    /// The bodies, in order.
    pub fn addresses(&self) -> impl Iterator<Item = &BodyAddress> {
        self.0.keys()
    }
}

impl Body {
    /// Decodes a body record; `None`: the body is retired.
    pub(crate) fn decode(record: &Record) -> Result<Option<Self>, MalformedReason> {
        let Some(value) = &record.value else { return Ok(None) };
        let header = BodyHeader::decode(&record.header)?;
        let object = decode_value(value)?;
        if ObjectHash::of(&object) != header.object_hash {
            return Err(MalformedReason::BodyHash);
        }
        Ok(Some(Self { header, object }))
    }
}
