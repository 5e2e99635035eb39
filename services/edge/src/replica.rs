//! The replica: the node's materialized view. One thread owns the state database, serves its
//! readers and its watches.
//!
//! ```text
//!  session --Apply--> fold --commit--> applied --sync--> durable --> watches, outbox thread
//!             ^         | Applied                 | Durable
//!             |         v                         v
//!             +------ session <-------------------+
//! ```
//!
//! | module | job |
//! |---|---|
//! | `owner` | runs the commands |
//! | `durability` | commits, has it synced, releases what is durable |
//! | `push_fold` | folds pushes into a batch, commits it |
//! | `fold` | a push as the input of the fold, and the effects with their traces |
//! | `sync` | runs one sync at a time, on a thread of its own |
//! | `view_reader` | what the replica reads for others |
//! | `subscribers` | the session, the outbox thread and the watches, as receivers |
//! | [`watch`] | a bounded queue for each watch |
//! | `counts` | the metrics of the replica |
//!
//! The owner folds queued pushes into a bounded batch and commits it unsynced. It requests a sync
//! at once when an effect waits for it, else by the clock, and folds on while the sync runs.
//! Subscribers, the session and the outbox thread receive only durable changes: before the owner
//! answers a read, it makes all that is applied durable.

mod counts;
mod durability;
pub(crate) mod fold;
mod owner;
mod push_fold;
mod subscribers;
mod sync;
mod view_reader;
pub mod watch;

use std::time::Duration;

use headwater_event::{Checkpoint, EntryDigest, ResourceKey, StateHash, StreamId};
use headwater_store::EngineError;
use headwater_view::{CommitBounds, FoldError, Refusal};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use self::fold::PreparedPush;
pub(crate) use self::owner::EdgeReplica;
pub(crate) use self::sync::Syncer;
use self::watch::{Filter, TooManyWatches, Watch, WatchSettings};
use crate::meta::object::Object;
use crate::meta::operation::Operation;
use crate::meta::routing::Group;

/// How long applied state may stay unsynced when no effect waits for it. A power cut costs this much
/// of a tail, which the edge reads again from the hub.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// How many commits may wait during a sync, with those that it covers. Beyond that the replica folds
/// nothing until the sync ends. One commit is synced, one is written, two gather for the next sync:
/// 4 MiB of objects, as much as a session's window.
pub const COMMITS_WAITING_MAX: usize = 4;

/// The bounds of the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// See [`SYNC_INTERVAL`].
    pub sync_interval: Duration,
    /// See [`COMMITS_WAITING_MAX`].
    pub commits_waiting_max: usize,
    /// The bounds of one commit.
    pub bounds: CommitBounds,
    /// The bounds of watches.
    pub watch: WatchSettings,
}

/// What other tasks ask of the replica.
#[derive(Debug)]
pub(crate) enum ReplicaCommand {
    /// Fold a push, or a part of one. `room` is its share of the intake until then.
    Apply { push: PreparedPush, room: Option<OwnedSemaphorePermit> },
    /// Remove a stream that the node no longer has.
    Drop(StreamId),
    /// Send the digests of a stream's entries, if there are at most `entries_max`.
    Summarize { stream: StreamId, nonce: u64, entries_max: usize },
    /// Make everything applied durable, and send the position of every stream.
    Sync,
    /// The monotonic clock, in milliseconds.
    Tick(u64),
    /// Open a watch.
    Watch { filter: Filter, reply: oneshot::Sender<Result<Watch, TooManyWatches>> },
    /// Look up one object.
    Find { key: ResourceKey, reply: oneshot::Sender<Option<Object>> },
    /// Look up all objects of a type.
    List { namespace: Option<String>, kind: String, reply: oneshot::Sender<Vec<Object>> },
    /// Deliver an operation to the watches of a group. The reply: how many took it.
    Deliver { group: Group, operation: Operation, reply: oneshot::Sender<usize> },
    /// Make everything applied durable, and end.
    Stop,
}

/// What the replica sends to the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplicaEvent {
    /// A push is visible, or its hash does not agree.
    Applied { stream: StreamId, checkpoint: Checkpoint, hash: StateHash },
    /// A stream is synced up to here.
    Durable { stream: StreamId, checkpoint: Checkpoint },
    /// The digests of a stream's entries; empty where there are too many.
    Summarized { stream: StreamId, nonce: u64, digests: Vec<EntryDigest> },
}

/// Why the replica cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ReplicaError {
    /// The engine failed.
    #[error("the state engine failed")]
    Engine(#[from] EngineError),
    /// The syncer ended first: a defect.
    #[error("the syncer of the state database ended before the replica")]
    SyncerEnded,
    /// The state refuses a push that the session accepted: a defect.
    #[error("a push that the session accepted was refused")]
    Defect(#[source] Refusal),
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        Self {
            sync_interval: SYNC_INTERVAL,
            commits_waiting_max: COMMITS_WAITING_MAX,
            bounds: CommitBounds::default(),
            watch: WatchSettings::default(),
        }
    }
}

impl From<FoldError<Refusal>> for ReplicaError {
    fn from(error: FoldError<Refusal>) -> Self {
        match error {
            FoldError::Refused(refusal) => Self::Defect(refusal),
            FoldError::Engine(error) => Self::Engine(error),
        }
    }
}
