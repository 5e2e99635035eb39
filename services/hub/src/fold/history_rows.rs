//! The rows of the history, and their encoding.

use bytes::Bytes;
use headwater_event::{
    Applied, BodyAddress, BodyId, Change, EntryKey, Partition, Removed, Seq, StateHash, StreamId,
    WriterEpoch,
};
use headwater_object::patch::patched_bytes;
use headwater_session::TailEvent;
use headwater_session::message::{CHANGE_OVERHEAD_BYTES, PushedChange};
use headwater_store::{DecodeError, Folded, Json, Proto, Table, TableId};
use serde::{Deserialize, Serialize};

/// By stream and seq: the last change of a key. One row a key.
pub(super) const CHANGES: Table<(StreamId, Seq), Json<ChangeRow>, Folded> =
    Table::new(TableId::HubChanges);

/// By stream and key: the seq of the key's row in [`CHANGES`].
pub(super) const KEYS: Table<(StreamId, String), Seq, Folded> = Table::new(TableId::HubKeys);

/// By stream and seq: an event. Holds the newest events of a stream; `history` bounds their number.
pub(super) const EVENTS: Table<(StreamId, Seq), Proto<EventRow>, Folded> =
    Table::new(TableId::HubEvents);

/// By stream: which past the other tables hold.
pub(super) const STREAMS: Table<StreamId, Json<StreamHistory>, Folded> =
    Table::new(TableId::HubStreams);

/// The last change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangeRow {
    pub(super) key: EntryKey,
    /// The UID of the removed object; `None`: the key was applied, and its entry has the object.
    pub(super) removed: Option<String>,
    /// When the event was appended; rows of older builds lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) time_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traceparent: Option<String>,
}

/// Which past of a stream the tables hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamHistory {
    /// The newest folded event.
    pub(super) seq: Seq,
    /// Every event above this seq is in [`EVENTS`].
    pub(super) raw_from: Seq,
    /// Every key that changed above this seq is in [`CHANGES`].
    pub(super) delta_from: Seq,
    /// Rows of [`CHANGES`] that are removals.
    pub(super) removals: u64,
    /// The first seq of each of the newest epochs, in order.
    pub(super) epochs: Vec<(WriterEpoch, Seq)>,
    /// The newest epoch that is no longer in `epochs`; 0 while all are.
    #[serde(default)]
    pub(super) epochs_discarded: WriterEpoch,
}

impl StreamHistory {
    /// Notes that `epoch` begins at `first`, if it is a new one. At most `epochs_max` epochs stay.
    pub(super) fn begin_epoch(&mut self, epoch: WriterEpoch, first: Seq, epochs_max: usize) {
        if self.epochs.last().is_none_or(|(newest, _)| *newest < epoch) {
            self.epochs.push((epoch, first));
        }
        let excess = self.epochs.len().saturating_sub(epochs_max);
        if let Some((newest, _)) = self.epochs.drain(..excess).next_back() {
            self.epochs_discarded = newest;
        }
    }

    /// The first seq of the lowest epoch above `epoch`. If that epoch may be a discarded one, its
    /// first seq is unknown and taken for the lowest possible: the replica may hold events that
    /// the epoch replaced, and is compared with the fold instead of moved by a delta.
    pub(super) fn next_epoch_from(&self, epoch: WriterEpoch) -> Option<Seq> {
        if epoch < self.epochs_discarded {
            return Some(Seq::ZERO);
        }
        self.epochs.iter().find(|(above, _)| *above > epoch).map(|(_, first)| *first)
    }
}

/// An event, for tails. Tag 2 was the first seq of its epoch.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EventRow {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    #[prost(int64, tag = "3")]
    time_ms: i64,
    #[prost(bytes = "bytes", tag = "4")]
    hash: Bytes,
    #[prost(string, optional, tag = "5")]
    traceparent: Option<String>,
    /// Empty for a head.
    #[prost(string, tag = "6")]
    key: String,
    /// Empty when the object is a patch of the entry of `key` itself, as the UID stays.
    #[prost(string, tag = "7")]
    uid: String,
    #[prost(string, tag = "8")]
    resource_version: String,
    /// Unset for a head, a removal, and an object that `body` has; a patch if `base` is set.
    #[prost(bytes = "bytes", optional, tag = "9")]
    object: Option<Bytes>,
    /// The entry whose object before the event `object` is a patch of; empty: the entry of `key`.
    #[prost(string, optional, tag = "10")]
    base: Option<String>,
    /// The body that has the whole object.
    #[prost(message, optional, tag = "11")]
    body: Option<BodyReference>,
}

/// A body, and the size of its object.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct BodyReference {
    #[prost(uint32, tag = "1")]
    partition: u32,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(uint64, tag = "3")]
    number: u64,
    #[prost(uint64, tag = "4")]
    object_bytes: u64,
}

impl BodyReference {
    fn address(&self) -> BodyAddress {
        let id = BodyId { epoch: WriterEpoch(self.epoch), number: self.number };
        BodyAddress { partition: Partition(self.partition), id }
    }
}

impl EventRow {
    /// The row of an event. `body` is the body that has its object, if the fold stores it there.
    pub(super) fn of(event: &TailEvent, body: Option<&BodyAddress>) -> Self {
        let mut row = Self {
            epoch: event.epoch.0,
            time_ms: event.time_ms,
            hash: Bytes::copy_from_slice(&event.hash.to_bytes()),
            ..Self::default()
        };
        let Some(pushed) = &event.change else { return row };
        row.traceparent.clone_from(&pushed.traceparent);
        row.key = pushed.change.key().as_str().to_owned();
        match &pushed.change {
            Change::Applied(Applied { key, uid, resource_version, object }) => {
                row.uid.clone_from(uid);
                row.resource_version.clone_from(resource_version);
                let base = pushed.base.as_ref();
                match body.filter(|_| base.is_none()) {
                    None => row.object = Some(object.clone()),
                    Some(BodyAddress { partition, id }) => {
                        row.body = Some(BodyReference {
                            partition: partition.0,
                            epoch: id.epoch.0,
                            number: id.number,
                            object_bytes: object.len() as u64,
                        });
                    }
                }
                let other =
                    |base: &EntryKey| if base == key { "" } else { base.as_str() }.to_owned();
                row.base = base.map(other);
            }
            Change::Removed(removed) => row.uid.clone_from(&removed.uid),
        }
        row
    }

    /// The bytes of the change in a push, with the whole object.
    pub(super) fn change_bytes(&self) -> u64 {
        let object = self.object.as_ref().map_or(0, |object| match &self.base {
            Some(_) => patched_bytes(object).unwrap_or(object.len()),
            None => object.len(),
        });
        let in_body = self.body.map_or(0, |body| body.object_bytes);
        let texts = self.key.len() + self.uid.len() + self.resource_version.len();
        (texts + object) as u64 + in_body + CHANGE_OVERHEAD_BYTES
    }

    /// The body that has the event's object; `None`: the row has it.
    pub(super) fn body(&self) -> Option<BodyAddress> {
        self.body.as_ref().map(BodyReference::address)
    }

    /// The event of the row at `seq`; `in_body` is the object in [`EventRow::body`].
    ///
    /// # Errors
    /// When the row is malformed.
    pub(super) fn tail_event(
        self,
        seq: Seq,
        in_body: Option<Bytes>,
    ) -> Result<TailEvent, DecodeError> {
        let malformed =
            |reason: &dyn std::fmt::Display| DecodeError::malformed("event row", reason);
        let hash: [u8; 32] = self
            .hash
            .as_ref()
            .try_into()
            .map_err(|_| malformed(&"its hash is not 32 bytes long"))?;
        let (epoch, hash) = (WriterEpoch(self.epoch), StateHash::from_bytes(&hash));
        let time_ms = self.time_ms;
        if self.key.is_empty() {
            return Ok(TailEvent { seq, epoch, hash, time_ms, change: None });
        }
        let key: EntryKey = self.key.parse().map_err(|error| malformed(&error))?;
        let base = match self.base.as_deref() {
            None => None,
            Some("") => Some(key.clone()),
            Some(base) => Some(base.parse().map_err(|error| malformed(&error))?),
        };
        // Rows of older builds hold the UID also when it stays.
        let uid = if base.as_ref() == Some(&key) { String::new() } else { self.uid };
        let resource_version = self.resource_version;
        let change = match self.object.or(in_body) {
            Some(object) => Change::Applied(Applied { key, uid, resource_version, object }),
            None => Change::Removed(Removed { key, uid }),
        };
        let (traceparent, appended_ms) = (self.traceparent, Some(time_ms));
        let change = PushedChange { change, base, traceparent, appended_ms };
        Ok(TailEvent { seq, epoch, hash, time_ms, change: Some(change) })
    }
}
