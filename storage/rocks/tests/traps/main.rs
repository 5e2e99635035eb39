//! The pitfalls of RocksDB; each test is named after its sentence.

mod bounds;
mod child;
mod conformance;
mod crash;
mod damage;
mod files;
mod full_disk;
mod refusal;
