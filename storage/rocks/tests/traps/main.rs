//! The traps of RocksDB, each with a test named after what it shows.

mod bounds;
mod child;
mod conformance;
mod crash;
mod damage;
mod files;
mod full_disk;
mod refusal;
