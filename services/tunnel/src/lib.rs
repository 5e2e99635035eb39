//! Byte streams between a hub and the pods of a node: what both ends share.
//!
//! The hub sends a `Dial` in the session of a node. The edge then calls `Tunnel.Stream` on a second
//! connection, and each end relays between the call and a connection of its own: the hub's is that of an
//! API server, the edge's is that of the kubelet's server of the node.
//!
//! ```text
//!   API server <--> hub <== relay == call == relay ==> edge <--> kubelet's server
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`frame`] | the frames of a call |
//! | [`relay`](mod@relay) | bytes between a call and a connection, bounded in flight |
//! | [`rate`] | the bytes a second of all streams together |
//!
//! Neither end reads the bytes. A stream never has more than [`WINDOW_BYTES`] in flight in one direction,
//! so that a stream whose reader is slow delays no other one on the connection.

pub mod frame;
pub mod rate;
pub mod relay;

pub use rate::RateLimiter;
pub use relay::{End, RelayError, relay};

/// Bytes of one direction of a stream that the other end has not handed on: 20 Mbit/s over a round trip of
/// 100 ms, and 4 MiB for all streams of an edge.
pub const WINDOW_BYTES: usize = 256 << 10;

/// The most bytes of one frame: a frame of another stream waits for at most one of these.
pub const FRAME_BYTES_MAX: usize = 32 << 10;

/// Streams of one edge at a time. Each is a command, a log or a port of a person.
pub const STREAMS_MAX: usize = 16;

/// Frames that wait for the connection. The window bounds their bytes.
pub const FRAMES_MAX: usize = 8;
