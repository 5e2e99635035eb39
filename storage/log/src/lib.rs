//! The append-only log.
//!
//! [`Log`] is the seam: the in-memory twin ([`memory`]), the embedded log and Kafka stand behind
//! it, and all pass one suite ([`conformance`]). A log moves records; it knows no event.
//! What turns its records into the events of streams stands here too, pure and above the seam:
//! the writer's claim and fencing ([`writer`]) and the rules by which a reader accepts a record
//! ([`acceptance`]).

mod contract;

pub use contract::{
    Append, AppendError, Appended, Batch, Bounds, Description, Log, ReadError, Reader, Record,
    Recorded,
};
