//! What a hub session reads of the hub's fold.
//!
//! Pure reads: nothing here waits or changes anything. A session asks again at every
//! [`crate::HubInput::Advanced`].

use std::collections::BTreeSet;

use headwater_event::{
    Checkpoint, Envelope, Identity, LogId, NodeName, ResourceKey, Seq, StateHash, StreamId,
    WriterEpoch,
};

use crate::comparison::Comparison;
use crate::message::PushedChange;

/// The hub's fold of the downstream log, as far as sessions read it.
///
/// Within one `step` of a session the fold does not move.
pub trait StreamSource {
    /// The life of the log that is folded; `None` until its first record has been read: a
    /// session waits that long with its welcome.
    fn log_id(&self) -> Option<LogId>;

    /// Whether the session may begin a delta, a comparison or a snapshot now. Asked only when one
    /// is due; where the answer is no, the stream waits for the [`crate::HubInput::Advanced`] that
    /// is given when it is the session's turn. A hub so bounds what it holds in memory for all of
    /// them.
    fn may_catch_up(&self) -> bool {
        true
    }

    /// The streams of `node` as its private stream says, the private one included.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn streams(&self, node: &NodeName) -> Result<BTreeSet<StreamId>, SourceError>;

    /// The highest identity that the cloud knows of `node`.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn known_identity(&self, node: &NodeName) -> Result<Option<Identity>, SourceError>;

    /// Where the fold stands in `stream`; seq 0 in a stream without events.
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

    /// The events of `(from, to]`, in order and without a gap, cut where they exceed
    /// `bytes_max` (counted as [`crate::message::change_bytes`], with whole objects) but at least
    /// one. Asked only for `from >= raw_from` of the standing.
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

    /// Each key changed after `since`, once, its latest change, removals included. Asked only
    /// for `since >= delta_from` of the standing. Ends at the present standing.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn delta(&self, stream: &StreamId, since: Seq) -> Result<Box<dyn CatchUp>, SourceError>;

    /// Every entry of the present state, in key order. Asked only of a reconciled fold.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn snapshot(&self, stream: &StreamId) -> Result<Box<dyn CatchUp>, SourceError>;

    /// Every entry of the present state that the edge of `comparison` does not have, in key order;
    /// every entry is asked of it, once. Asked only of a reconciled fold.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn correction(
        &self,
        stream: &StreamId,
        comparison: &mut Comparison,
    ) -> Result<Box<dyn CatchUp>, SourceError>;

    /// Whether `node` may ask the cloud for `key`: the key is in its private stream's state, or
    /// an object there names it.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn may_request(&self, node: &NodeName, key: &ResourceKey) -> Result<bool, SourceError>;
}

/// An event, as a tail tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailEvent {
    /// Position in the stream.
    pub seq: Seq,
    /// The writer that appended it.
    pub epoch: WriterEpoch,
    /// The state hash after it.
    pub hash: StateHash,
    /// When the log appended it, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// What it changes; `None`: nothing, it is a head.
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

/// A delta, snapshot or correction being read: the stream as it stood when it was asked for,
/// whatever the fold does meanwhile.
pub trait CatchUp: Send {
    /// The next changes, cut where they exceed `bytes_max` but at least one; fewer than one
    /// only at the end.
    ///
    /// # Errors
    /// When the fold cannot be read.
    fn next(&mut self, bytes_max: u64) -> Result<CatchUpPart, SourceError>;
}

/// A piece of a delta, snapshot or correction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatchUpPart {
    /// The changes, in order.
    pub changes: Vec<PushedChange>,
    /// Whether nothing comes behind it.
    pub last: bool,
}

/// Where a fold stands in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldStatus {
    /// The last event folded. The epoch is the highest one claimed in the stream's partition as
    /// far as it is folded, which may be above the last event's: a claim settles what came
    /// before it, so that an edge with a lower epoch and a higher seq has diverged.
    pub checkpoint: Checkpoint,
    /// The state hash there.
    pub hash: StateHash,
    /// What may be served.
    pub readiness: Readiness,
    /// Every event behind this seq, up to the checkpoint, can be read as such.
    pub raw_from: Seq,
    /// A delta since this seq or a later one is complete: no hole of the fold lies behind it,
    /// and removals have not been forgotten since.
    pub delta_from: Seq,
}

/// What a fold may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Readiness {
    /// Nothing: the fold has not reached the end of the log as it was when it began.
    Folding,
    /// Tail and delta: the fold is complete, but the log may be half-written, so that absence
    /// means nothing (I14).
    Folded,
    /// Snapshots too: the fold is past the `Reconciled` of the newest claim.
    Reconciled,
}

/// The fold cannot be read; sessions over it end and are resumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub's fold cannot be read: {reason}")]
pub struct SourceError {
    /// What happened.
    pub reason: String,
}
