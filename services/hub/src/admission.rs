//! Which hellos and which catch-ups a hub admits, and the table of what it admitted.
//!
//! | module | what it owns |
//! |---|---|
//! | `sessions` | the sessions of the hub, the nodes behind them, cut links |
//! | `rate_limiter` | how many hellos a second are admitted, of all nodes and of each |
//! | `catch_up_limiter` | how many sessions hold a catch-up in memory at once |
//! | `error` | why a session is not admitted |
//! | `positions` | which positions of an ended session are kept |

mod catch_up_limiter;
mod error;
mod positions;
mod rate_limiter;
mod sessions;

pub(crate) use catch_up_limiter::{CatchUpLimiter, CatchUpSlot};
pub(crate) use error::HUB_STOPS;
pub(crate) use sessions::{Dismissal, Sessions};
