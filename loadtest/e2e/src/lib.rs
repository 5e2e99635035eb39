//! Tests with the real binary and real processes, and the tools that keep them short.

pub mod authority;
pub mod chance;
pub mod containers;
mod convergence;
pub mod evidence;
pub mod fleet;
pub mod invariants;
pub mod local_api;
pub mod memory;
pub mod part;
pub mod pressure;
pub mod proxy;
pub mod restless;
pub mod running;
pub mod small_disk;
pub mod source;
pub mod transcript;
