//! The RocksDB engine.
