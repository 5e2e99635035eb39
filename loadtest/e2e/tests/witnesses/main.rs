//! Counts that do not move with a noisy neighbour: what one event costs in writes, syncs, reads,
//! messages and allocations.
//!
//! A hub and an edge, all of what they are but their sockets, over RocksDB, on one thread whose
//! clock stands still while anything is left to do: the same counts on every machine. So bounds are
//! narrow, and a change that makes an event dearer is seen at once.

mod allocations;
mod burst;
mod cloud;
mod counted;
mod edge;
mod figure;
mod one_by_one;
mod pods;
mod scene;
mod wire;
