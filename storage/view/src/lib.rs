//! Materialized state: what hub, controller and edge fold from the log, and the loop around it.
//!
//! [`StreamState`] folds streams into an engine: entries, state hash and position move in one
//! batch. A [`Projection`] says how one input becomes changes of that batch, and the
//! [`Materializer`] commits batches and lets their effects out once they are durable.
//! Upstream, a [`PodStatusSnapshot`] is what an edge says about its pods, MetaSync
//! ([`metasync`]) is the difference of two of them, and [`PodStatusFold`] is the cloud's side.
//!
//! Nothing here waits, knows a clock or a runtime; all I/O goes through an
//! [`Engine`](headwater_store::Engine).
//!
//! There are no derived pod rows: entries lie on disk by type, namespace and name, so the pods
//! of a stream are one range of its entries already (see [`Selection`]).

mod admission;
mod advance;
mod correction;
mod effect;
mod entry;
mod generation;
#[cfg(test)]
mod history;
mod materializer;
pub mod metasync;
mod node_statuses;
mod pod_status_fold;
mod pod_status_snapshot;
mod position;
mod prepared;
mod projection;
mod refusal;
mod slot;
mod staging;
mod stream_reader;
mod stream_row;
mod stream_state;

pub use advance::{Advance, AdvanceMode, Continuity};
pub use effect::{Effect, EffectKind};
pub use entry::{Entry, EntrySummary};
pub use materializer::{CommitBounds, Materializer, Release, SyncTicket};
pub use node_statuses::{Closing, NodeStatuses, ReportOutcome};
pub use pod_status_fold::{PodStatusFold, ReportedStatus};
pub use pod_status_snapshot::{PodStatusSnapshot, StatusDigest};
pub use position::{PositionChanges, StatePosition};
pub use prepared::IncomingChange;
pub use projection::{FoldError, Projection};
pub use refusal::Refusal;
pub use stream_reader::{Selection, StreamReader, Verification};
pub use stream_state::{ACCEPTANCE, FoldBounds, StreamState};
