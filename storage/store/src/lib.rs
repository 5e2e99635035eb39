//! Ordered key-value engines, typed tables, and batches that carry their checkpoint.
//!
//! [`Engine`] is the seam: the in-memory engine ([`memory`]) and RocksDB stand behind it, and
//! both pass one suite ([`conformance`]). Above it, tables give keys and values their types.

mod engine;

pub use engine::{Durability, Engine, EngineError, KeyValue, Range, Snapshot, WriteBatch, WriteOp};
