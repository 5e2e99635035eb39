//! The append-only log, and the rules that turn its records into the events of streams.
//!
//! [`Log`] is the trait of all logs: the in-memory twin ([`memory`]), the embedded log and Kafka
//! implement it, and all pass one suite (`conformance`, with the feature `testing`). A log moves
//! records and knows no event. Above the trait, pure: the writer's claim and fencing, and the rules
//! by which a reader accepts a record.
//!
//! | module | what it owns |
//! |---|---|
//! | `log` | the trait [`Log`], its records and errors |
//! | [`metadata`] | the metadata of a log: its id and partition count |
//! | [`mod@claim`] | the claim by which a process becomes the one writer |
//! | [`writer`] | the one writer: seq, epoch and state hash for every event |
//! | [`acceptance`] | the rules by which a record is an event |
//! | [`bodies`] | the objects that several events refer to |
//! | [`fold`] | the fold from the start, for a reader without usable state |
//! | [`catch_up`] | the catch-up target: the ends that a reader must reach |
//! | [`history`] | past states and events of one stream |
//! | `upstream_log` | the upstream log on two topics: reports, positions |
//! | [`value`] | the encoding of an object in a record's value |
//! | [`memory`] | the in-memory twin with its faults |
//! | `conformance` | the suite that every log must pass (feature `testing`) |

pub mod acceptance;
pub mod bodies;
pub mod catch_up;
pub mod claim;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod fold;
pub mod history;
mod log;
pub mod memory;
pub mod metadata;
mod upstream_log;
pub mod value;
pub mod writer;

pub use acceptance::{Acceptance, AcceptanceChanges, FoldRange, Outcome};
pub use bodies::{Bodies, Body, MemoryBodies};
pub use catch_up::{CatchUpTarget, start_cursors};
pub use claim::{ClaimAttempt, ClaimError, Claimant, MARKS_WITHIN, claim};
pub use fold::{begin_fold, begin_fold_of};
pub use history::{
    HistoryError, PastEntry, PastState, StateWindow, StreamHistory, Until, fold_stream,
    stream_events, stream_window,
};
pub use log::{
    Append, AppendError, Batch, Bounds, DOWNSTREAM_TOPIC, Description, Log, LogContact,
    POSITIONS_FROM, POSITIONS_TOPIC, ReadError, Reader, Record, RecordPosition, StoredRecord,
    UPSTREAM_TOPIC,
};
pub use memory::{AppendFault, MemoryLog, MemorySettings, PartitionFault};
pub use metadata::{
    MetadataError, MetadataProposal, read_metadata, read_or_create_metadata,
    read_or_create_upstream_metadata,
};
pub use upstream_log::{UpstreamLog, is_of_positions, partition_name};
pub use writer::{
    BegunAppend, Draft, EventPosition, FinishedAppend, Heartbeats, InFlightEntry, InFlightUsage,
    SHARED_BYTES_MIN, Writer, WriterError, repair,
};
