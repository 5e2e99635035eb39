//! Ordered key-value engines, typed tables, and batches that carry their position.
//!
//! [`Engine`] is the seam. The in-memory engine ([`memory`]) and RocksDB implement it, and both
//! pass one suite (`conformance`). Above it, tables give keys and values their types, and a batch
//! commits folded state only with its position:
//!
//! ```
//! use headwater_event::{Cursor, LeaderEpoch, NodeName, Offset, Partition, TopicId};
//! use headwater_store::{Batch, Durability, Folded, MemoryEngine, Table, TableId, schema};
//!
//! const PODS: Table<(NodeName, String), String, Folded> = Table::new(TableId::Pods);
//!
//! let engine = MemoryEngine::new();
//! schema::HUB.check(&engine)?;
//!
//! let node: NodeName = "gw-1".parse().expect("a node name");
//! let cursor = Cursor {
//!     topic: TopicId(uuid::Uuid::nil()),
//!     partition: Partition(0),
//!     next: Offset(1),
//!     leader_epoch: LeaderEpoch(0),
//! };
//! let mut batch = Batch::new();
//! batch.put(&PODS, &(node.clone(), "web-0".to_owned()), &"Running".to_owned());
//! batch.commit(&engine, &[cursor], Durability::Buffered)?;
//!
//! let rows: Result<Vec<_>, _> = PODS.rows_of(&engine, &node).collect();
//! assert_eq!(rows?, [((node, "web-0".to_owned()), "Running".to_owned())]);
//! # Ok::<(), headwater_store::EngineError>(())
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `engine` | the trait [`Engine`] |
//! | [`registry`] | the first byte of each table |
//! | [`key`] | order-preserving keys |
//! | [`codec`] | values |
//! | `encoding_error` | bytes that are no key or value |
//! | [`table`] | typed tables and iteration |
//! | [`batch`] | batches, and the commit of folded state with its position |
//! | [`position`] | the stored positions of a folded state |
//! | [`schema`] | the kind of a database and the version of its schema |
//! | [`memory`] | the in-memory engine with its faults |
//! | `conformance`, `damage` | the suite that every engine must pass; damaged rows |

pub mod batch;
pub mod codec;
#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod damage;
mod encoding_error;
mod engine;
pub mod key;
pub mod memory;
pub mod position;
pub mod registry;
pub mod schema;
pub mod table;

pub use batch::{BATCH_BYTES_MAX, Batch, CommitPosition};
pub use codec::{Json, Proto, Value};
pub use encoding_error::{DecodeError, EncodeError};
pub use engine::{Durability, Engine, EngineError, KeyValue, Range, Read, WriteBatch, WriteOp};
pub use key::{Key, PrefixOf, TextStart};
pub use memory::{Failure, MemoryEngine, Survival};
pub use position::StreamCheckpoint;
pub use registry::{FOLD_TABLES_END, TableId};
pub use schema::Schema;
pub use table::{Folded, Free, Rows, Table};
