//! The append-only log.
//!
//! [`Log`] is the seam: the in-memory twin ([`memory`]), the embedded log and Kafka stand behind
//! it, and all pass one suite (`conformance`, with the feature `testing`). A log moves records;
//! it knows no event. What turns its records into the events of streams stands here too, pure
//! and above the seam: the writer's claim and fencing, and the rules by which a reader accepts a
//! record.
//!
//! | module | what it owns |
//! |---|---|
//! | [`metadata`] | the birth of a log: its id and partition count |
//! | [`mod@claim`] | how a process becomes the one writer |
//! | [`writer`] | the one writer: seq, epoch and state hash for every event |
//! | [`acceptance`] | which records are events |
//! | [`fold`] | how a reader without usable state begins |
//! | [`history`] | past states and events of one stream |
//! | [`value`] | how an object stands in a record's value |
//! | [`memory`] | the in-memory twin with its faults |

pub mod acceptance;
pub mod catch_up;
pub mod claim;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod fold;
pub mod history;
mod log;
pub mod memory;
pub mod metadata;
pub mod value;
pub mod writer;

pub use acceptance::{Acceptance, AcceptanceChanges, FoldRange, Outcome};
pub use catch_up::{CatchUpTarget, start_cursors};
pub use claim::{ClaimAttempt, ClaimError, Claimant, claim};
pub use fold::{begin_fold, begin_fold_of};
pub use history::{
    HistoryError, PastEntry, PastState, StreamHistory, Until, fold_stream, stream_events,
};
pub use log::{
    Append, AppendError, Batch, Bounds, DOWNSTREAM_TOPIC, Description, Log, ReadError, Reader,
    Record, RecordPosition, StoredRecord, UPSTREAM_TOPIC,
};
pub use memory::{AppendFault, MemoryLog, MemorySettings};
pub use metadata::{MetadataError, MetadataProposal, read_metadata, read_or_create_metadata};
pub use writer::{Draft, EventPosition, Writer, WriterError, repair};
