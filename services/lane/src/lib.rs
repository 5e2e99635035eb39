//! The lane between hubs and the active controller, beside the log.
//!
//! ```text
//!   hub                                        controller
//!   presence ──► LaneClient ───── gRPC ─────► LaneServer ──► PresenceIntake
//!   LaneAsker ─►     ▲                             │     ──► AskHandler
//!                    └──── address in the claim ◄──┘
//! ```
//!
//! The writer of the log listens, and its claim carries the address. Each hub holds one stream to it
//! and moves with the claim. What goes over the lane needs no later reader, and the lane works while
//! the log is away. Up go the presence of nodes and what nodes ask, down the answers. Presence goes
//! before asks, and an ask that has no answer is not repeated here. Both ends verify the certificate of the other one.
//!
//! | module | what it owns |
//! |---|---|
//! | `client` | the hub's end: the stream to the present writer |
//! | `attempts` | when a hub connects: at each claim, and again after each failure |
//! | `asks` | the hub's end of the requests of nodes |
//! | `answers` | the controller's end of the requests of nodes, and their bounds |
//! | `dial` | a connection to a controller, with TLS or on loopback |
//! | `server` | the controller's end: the streams of hubs |
//! | `socket` | a connection as the controller accepts it |
//! | `metrics` | whether the lane is up |

mod answers;
mod asks;
mod attempts;
mod client;
mod dial;
mod metrics;
mod server;
mod socket;

use headwater_event::PresenceUpdate;
use headwater_event::request::REQUEST_BODY_BYTES_MAX;

pub use answers::{AskHandler, HUB_ASKS_MAX, NODE_ASKS_MAX};
pub use asks::{AskIntake, LaneAsker};
pub use client::{LaneClient, PresenceSource};
pub use dial::DialError;
pub use metrics::LaneMetrics;
pub use server::{LANES_MAX, LaneServer, PresenceIntake};

/// The version of the protocol. Both ends speak the same one.
pub const PROTOCOL: u32 = 1;

/// Bytes of the largest message: a body of a request or an answer, with its key and node. An update names
/// at most [`PRESENCE_NODES_MAX`](headwater_proto::wire::PRESENCE_NODES_MAX) nodes of at most 253 bytes,
/// which is less.
const MESSAGE_BYTES_MAX: usize = REQUEST_BODY_BYTES_MAX + (64 << 10);

/// Receives the updates of one hub. When it is dropped, the stream of the hub has ended.
pub type UpdateHandler = Box<dyn FnMut(PresenceUpdate) + Send>;
