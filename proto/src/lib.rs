//! Wire messages of Headwater and their conversions.
//!
//! Generated types stop here: [`wire`] turns the messages of the replication protocol into those
//! of `headwater-session` and back, and refuses what the protocol does not allow.

pub mod codec;
mod generated;
pub mod wire;

pub use generated::{FILE_DESCRIPTOR_SET, local, log, operator, replication};
