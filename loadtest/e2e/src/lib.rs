//! Tests with the real binary and real processes, and what they need to be told in few words.

pub mod chance;
pub mod containers;
pub mod evidence;
pub mod fleet;
pub mod invariants;
pub mod memory;
pub mod part;
pub mod proxy;
pub mod restless;
pub mod running;
pub mod small_disk;
pub mod source;
pub mod transcript;
