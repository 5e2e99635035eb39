//! Views: the state that the hub, the controller and the edge fold from a log, and the loop around
//! the fold.
//!
//! - [`StreamState`] folds streams into an engine. Entries, state hash and position move in one
//!   batch. There are no derived pod rows: entries are stored by type, namespace and name, so the
//!   pods of a stream are one range (see [`Selection`]).
//! - [`Materializer`] commits batches of inputs and releases their effects once they are durable. A
//!   [`Projection`] turns one input into changes of the batch.
//! - [`PodStatusSnapshot`] summarizes what an edge reports of its pods. [`metasync`] computes the
//!   difference of two of them. [`PodStatusFold`] folds the reports in the cloud.
//!
//! Nothing here waits, or knows a clock, a log or a network. All I/O goes through an
//! [`Engine`](headwater_store::Engine).

mod materializer;
mod pod_status;
mod projection;
mod stream;

pub use materializer::{CommitBounds, Materializer, Release, SyncTicket};
pub use pod_status::{
    Closing, NODE_PODS_MAX, NodeStatuses, PodStatusFold, PodStatusSnapshot, ReportOutcome,
    ReportedStatus, StatusDigest, metasync,
};
pub use projection::Projection;
pub use stream::{
    ACCEPTANCE, Advance, AdvanceMode, Continuity, Effect, EffectKind, Entry, EntrySummary,
    FoldBounds, FoldError, IncomingChange, PositionChanges, Refusal, Selection, StatePosition,
    StreamReader, StreamState, Verification,
};
