//! Wire messages of Headwater and their conversions.
//!
//! [`wire`] converts the generated messages of the replication protocol into those of
//! `headwater-session` and back, and refuses messages that the protocol does not allow.

pub mod codec;
mod generated;
pub mod wire;

pub use generated::{FILE_DESCRIPTOR_SET, cloud, local, log, operator, replication};
