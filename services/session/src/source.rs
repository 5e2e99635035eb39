//! The interface through which a hub session reads the hub's fold.
//!
//! Reads neither wait nor change anything. A session reads again at every
//! [`crate::HubInput::Advanced`].

use std::collections::BTreeSet;
use std::sync::Arc;

use headwater_event::{
    Checkpoint, Envelope, Identity, LogId, NodeName, ResourceKey, Seq, StateHash, StreamId,
    WriterEpoch,
};

use crate::comparison::Comparison;
use crate::message::PushedChange;
use crate::shared_push::SharedPush;

/// The hub's fold of the downstream log.
///
/// The fold does not advance within one `step` of a session.
pub trait StreamSource {
    /// The id of the log; `None` until the hub has read its first record. A session delays its
    /// welcome until then.
    fn log_id(&self) -> Option<LogId>;

    /// Whether the session may begin a delta, a comparison or a snapshot now. A session calls it
    /// only when one is due. After `false`, the stream waits until the hub sends
    /// [`crate::HubInput::Advanced`] at the session's turn. This bounds the memory that a hub needs
    /// for all transfers.
    fn may_transfer(&self) -> bool {
        true
    }

    /// The streams of `node` according to its private stream, the private one included.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn streams(&self, node: &NodeName) -> Result<BTreeSet<StreamId>, SourceError>;

    /// Whether the hub knows the identities of `node` in the cloud. A session delays its welcome until
    /// then: an edge with an older identity is to learn what it must move past.
    fn knows_identities_of(&self, _node: &NodeName) -> bool {
        true
    }

    /// The highest identity of `node` in the cloud.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn known_identity(&self, node: &NodeName) -> Result<Option<Identity>, SourceError>;

    /// The fold's position in `stream`; seq 0 in a stream without events.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn status(&self, stream: &StreamId) -> Result<FoldStatus, SourceError>;

    /// The first seq in `stream` of the lowest writer epoch above `epoch`, where there is one.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn next_epoch_from(
        &self,
        stream: &StreamId,
        epoch: WriterEpoch,
    ) -> Result<Option<Seq>, SourceError>;

    /// The events of `(from, to]`, in order and without a gap: at least one, and further ones up to
    /// `bytes_max` (counted as [`crate::message::change_bytes`], with whole objects). Callers pass
    /// `from >= raw_from` of the [`FoldStatus`]. Empty: the first event's object is no longer
    /// stored, as a later event has replaced it; a delta has the later one.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn events(
        &self,
        stream: &StreamId,
        from: Seq,
        to: Seq,
        bytes_max: u64,
    ) -> Result<Vec<TailEvent>, SourceError>;

    /// The events behind `from` as one push that other sessions send too, at most `bytes_max`; a
    /// single event may be larger. Callers pass `from` as to [`StreamSource::events`]. `None`: the
    /// source shares no such push, and the session makes one of its own ([`crate::tail_push`]).
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn shared_tail(
        &self,
        _stream: &StreamId,
        _from: Seq,
        _status: &FoldStatus,
        _bytes_max: u64,
    ) -> Result<Option<Arc<SharedPush>>, SourceError> {
        Ok(None)
    }

    /// The latest change of each key that changed after `since`, removals included, up to the
    /// present position. Callers pass `since >= delta_from` of the [`FoldStatus`].
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn delta(&self, stream: &StreamId, since: Seq) -> Result<Box<dyn TransferReader>, SourceError>;

    /// Every entry of the present state, in key order. Callers need a reconciled fold.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn snapshot(&self, stream: &StreamId) -> Result<Box<dyn TransferReader>, SourceError>;

    /// Every entry of the present state that the edge of `comparison` lacks, in key order. It looks
    /// up every entry in `comparison` once. Callers need a reconciled fold.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn correction(
        &self,
        stream: &StreamId,
        comparison: &mut Comparison,
    ) -> Result<Box<dyn TransferReader>, SourceError>;

    /// Whether `key` is in the state of the node's private stream.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn has_object(&self, node: &NodeName, key: &ResourceKey) -> Result<bool, SourceError>;

    /// The objects to which those of the node's private stream refer: its pods, and what these name. It
    /// reads every pod.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn references(&self, node: &NodeName) -> Result<BTreeSet<ResourceKey>, SourceError>;
}

/// An event of a tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailEvent {
    /// Position in the stream.
    pub seq: Seq,
    /// The epoch of the writer that appended the event.
    pub epoch: WriterEpoch,
    /// The state hash after it.
    pub hash: StateHash,
    /// When the log appended it, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The change; `None`: the event is a head and changes nothing.
    pub change: Option<PushedChange>,
}

impl From<Envelope> for TailEvent {
    /// With the whole object.
    fn from(envelope: Envelope) -> Self {
        let Envelope { seq, epoch, hash, traceparent, time_ms, event, .. } = envelope;
        let appended_ms = Some(time_ms);
        let change = event.change();
        let change =
            change.map(|change| PushedChange { traceparent, appended_ms, ..change.into() });
        Self { seq, epoch, hash, time_ms, change }
    }
}

/// Reads a delta, snapshot or correction of the stream at the position of its request. Later
/// changes of the fold have no effect on it.
pub trait TransferReader: Send {
    /// Reads the next changes: at least one, and further ones up to `bytes_max`; none only at the
    /// end.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn next(&mut self, bytes_max: u64) -> Result<TransferPart, SourceError>;
}

/// A part of a delta, snapshot or correction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransferPart {
    /// The changes, in order.
    pub changes: Vec<PushedChange>,
    /// Whether this is the last part.
    pub last: bool,
}

/// A fold's status in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldStatus {
    /// The last event folded. The epoch is the highest one claimed in the folded part of the
    /// stream's partition. It may be above the last event's epoch: a claim settles the records
    /// before it, so that an edge with a lower epoch and a higher seq has diverged.
    pub checkpoint: Checkpoint,
    /// The state hash at the checkpoint.
    pub hash: StateHash,
    /// What the hub may serve from the fold.
    pub readiness: Readiness,
    /// The fold can read every event after this seq, up to the checkpoint.
    pub raw_from: Seq,
    /// A delta since this seq or a later one is complete: the fold has no hole after it, and still
    /// has every removal after it.
    pub delta_from: Seq,
}

/// What a hub may serve from its fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Readiness {
    /// Nothing: the fold has not reached the position at which the log ended when the fold began.
    Folding,
    /// Tails and deltas: the fold is complete, but the log may be half-written, so that absence
    /// means nothing (I14).
    Folded,
    /// Snapshots too: the fold is past the `Reconciled` of the newest claim.
    Reconciled,
}

/// The fold cannot be read. Its sessions end; the edges connect again and resume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub's fold cannot be read: {reason}")]
pub struct SourceError {
    /// The cause.
    pub reason: String,
}
