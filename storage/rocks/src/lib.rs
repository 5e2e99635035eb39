//! The RocksDB engine.
//!
//! The only crate that names RocksDB. What it adds to the library is caution: every bound that
//! RocksDB leaves open is set, every error is final for the instance, and damage is reported
//! instead of repaired.
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
//! After any failed write the caller drops the engine and opens it again. If the disk is full,
//! it releases the [`Ballast`] before, because opening needs room too.
//!
//! | module | what it owns |
//! |---|---|
//! | [`engine`] | the engine |
//! | [`role`] | what a database is for, and the options that follow |
//! | [`memory`] | the memory of all databases of a process |
//! | [`directory`] | directories that are there after a power cut |
//! | [`quarantine`] | moving a damaged database aside |
//! | [`ballast`] | room kept back for a full disk |

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
