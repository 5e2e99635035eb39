//! The cloud end: folds the log and serves it to edge sessions.
//!
//! A hub is a view of the downstream log ([`Hub`] follows it into its own store) around which
//! one task per connected edge runs the pure session of `headwater-session`. What edges report
//! is appended to the upstream log, and answered once it is durable there. The hub's disk is a
//! cache: nothing that it alone knows is ever needed.

mod fold;
mod following;
mod hub;
mod known;
pub mod limits;
mod metrics;
mod pace;
mod peer;
mod reports;
mod said;
mod service;
mod session;
mod shared;
mod socket;
mod spans;
mod standing;
mod tally;
mod turns;
mod wakers;

pub use hub::{Hub, HubConfig, HubError, HubHandle, HubSeams, HubView, Lag};
pub use limits::HubLimits;
pub use metrics::HubMetrics;
pub use shared::{Answers, NoAnswers, WallClock};
