//! The RocksDB engine.
//!
//! Only this crate names RocksDB. It sets every bound that RocksDB leaves open. Every failed write
//! is final for the instance. It reports damage and never repairs it.
//!
//! ```no_run
//! use headwater_rocks::{Budget, Role, RocksEngine, DatabaseMemory};
//! use headwater_store::{Engine, EngineError, schema};
//!
//! let shared = DatabaseMemory::new(Budget::EDGE);
//! let state = match RocksEngine::open("data/state", Role::State, &shared, schema::NODE_STATE) {
//!     Err(EngineError::Corrupt { .. }) => {
//!         headwater_rocks::move_aside("data/state").expect("a rename");
//!         RocksEngine::open("data/state", Role::State, &shared, schema::NODE_STATE)?
//!     }
//!     opened => opened?,
//! };
//! state.sync()?;
//! # Ok::<(), EngineError>(())
//! ```
//!
//! After any failed write the caller drops the engine and opens it again. If the disk is full, the
//! caller first releases the [`Ballast`], because the open needs free space.
//!
//! | module | what it owns |
//! |---|---|
//! | [`engine`] | the engine |
//! | `open`, `error` | the open of a database with its checks; RocksDB's errors |
//! | [`role`] | the purpose of a database, and its options |
//! | [`memory`] | the memory of all databases of a process |
//! | [`directory`] | durable creation of directories |
//! | [`quarantine`] | a damaged database is moved aside |
//! | [`ballast`] | space reserved for the recovery from a full disk |

pub mod ballast;
pub mod directory;
pub mod engine;
mod error;
pub mod memory;
mod open;
pub mod quarantine;
pub mod role;

pub use ballast::Ballast;
pub use directory::create_durably;
pub use engine::{RocksEngine, Stats};
pub use memory::{Budget, DatabaseMemory, MemoryStats};
pub use quarantine::move_aside;
pub use role::Role;
