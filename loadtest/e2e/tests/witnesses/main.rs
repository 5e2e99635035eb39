//! Counts that do not move with a noisy neighbour: what one event costs in writes, syncs, reads,
//! messages and allocations.
//!
//! A hub and an edge, all of what they are but their sockets, over RocksDB, on one thread whose
//! clock is paused while a task has work: the counts are the same on every machine. The bounds are
//! therefore narrow and show at once that a change makes an event more expensive.

mod allocations;
mod burst;
mod cloud;
mod controller;
mod counted;
mod edge;
mod figure;
mod one_by_one;
mod pods;
mod scene;
mod sessions;
mod wire;
