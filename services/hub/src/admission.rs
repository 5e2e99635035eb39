//! Which hellos and which catch-ups a hub admits, and the table of what it admitted.
//!
//! | module | what it owns |
//! |---|---|
//! | `sessions` | the sessions of the hub, the nodes behind them, cut links |
//! | `rate_limiter` | how many hellos a second are admitted, of all nodes and of each |
//! | `catch_up_limiter` | how many sessions hold a catch-up in memory at once |
//! | `positions` | which positions of an ended session are kept |

mod catch_up_limiter;
mod positions;
mod rate_limiter;
mod sessions;

pub(crate) use catch_up_limiter::{CatchUpLimiter, CatchUpSlot};
pub(crate) use sessions::{AdmissionError, Dismissal, HUB_STOPS, Sessions};
