//! The cloud end: folds the log and serves it to edge sessions.
//!
//! A hub reads the downstream log into its own store, the *fold*. One task per connected edge runs
//! the pure session of `headwater-session` over that fold. The hub appends the reports of edges to
//! the upstream log and acknowledges a report once the log has it durably. The hub's store is a
//! cache: both logs can rebuild it.
//!
//! | module | job |
//! |---|---|
//! | `hub` | starts and stops a hub; the handle, and the view that other parts read |
//! | `server` | listens, shakes hands, knows the peer; the gRPC service up to the hello |
//! | `session` | one task per edge: waits, steps the pure session, carries its outputs out |
//! | `admission` | which hellos and transfers are admitted; the table of sessions and nodes |
//! | `requests` | what nodes ask of the cloud: bounds, deadline, handlers |
//! | `upstream` | appends reports and positions; keeps the bases of report patches |
//! | `fold` | follows both logs; answers the questions of sessions; notifies them of changes |
//! | `tunnels` | streams to nodes, for clients of the hub |
//! | `presence` | which nodes are connected, for the active controller |
//! | `limits`, `backoff` | the bounds of a hub, and their defaults; the waits before retries |
//! | `watched_value` | a value for whose changes one task waits |
//! | `metrics` | what a hub counts |
//!
//! ```text
//!   hub ──► server ──► session ──► admission
//!                         │ │ └──► requests ──┐
//!                         │ └────► upstream   │
//!                         └──────► fold ◄─────┘        all of them: limits, metrics
//! ```

mod admission;
mod backoff;
mod fold;
mod hub;
pub mod limits;
mod metrics;
mod presence;
mod requests;
mod server;
mod session;
mod tunnels;
mod upstream;
mod watched_value;

pub use headwater_follow::WallClock;

pub use hub::{Hub, HubConfig, HubDependencies, HubError, HubHandle, HubView, Lag};
pub use limits::HubLimits;
pub use metrics::HubMetrics;
pub use presence::PresenceFeed;
pub use requests::{NoRequestHandler, RequestHandler};
pub use tunnels::DialError;
