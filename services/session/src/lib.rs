//! The replication protocol as a pure state machine, both ends.
//!
//! No socket, no clock, no task: inputs go in, outputs come out. [`message`] holds what the two
//! ends say; `headwater-proto` puts it on the wire.

pub mod message;
