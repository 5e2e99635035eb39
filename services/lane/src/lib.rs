//! The lane between hubs and the active controller, beside the log.
//!
//! ```text
//!   hub                                        controller
//!   presence ──► LaneClient ───── gRPC ─────► LaneServer ──► PresenceIntake
//!                    ▲                             │
//!                    └──── address in the claim ◄──┘
//! ```
//!
//! The writer of the log listens, and its claim carries the address. Each hub holds one stream to it
//! and moves with the claim. What goes over the lane needs no later reader, and the lane works while
//! the log is away. Both ends verify the certificate of the other one.
//!
//! | module | what it owns |
//! |---|---|
//! | `client` | the hub's end: the stream to the present writer |
//! | `dial` | a connection to a controller, with TLS or on loopback |
//! | `server` | the controller's end: the streams of hubs |
//! | `socket` | a connection as the controller accepts it |
//! | `metrics` | whether the lane is up |

mod client;
mod dial;
mod metrics;
mod server;
mod socket;

use headwater_event::PresenceUpdate;

pub use client::{LaneClient, PresenceSource};
pub use dial::DialError;
pub use metrics::LaneMetrics;
pub use server::{LANES_MAX, LaneServer, PresenceIntake};

/// The version of the protocol. Both ends speak the same one.
pub const PROTOCOL: u32 = 1;

/// Bytes of the largest message: an update names at most
/// [`PRESENCE_NODES_MAX`](headwater_proto::wire::PRESENCE_NODES_MAX) nodes of at most 253 bytes, and
/// a disconnected one takes some 15 bytes more.
const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Receives the updates of one hub. When it is dropped, the stream of the hub has ended.
pub type UpdateHandler = Box<dyn FnMut(PresenceUpdate) + Send>;
