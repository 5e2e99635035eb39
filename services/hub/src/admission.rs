//! Which hellos and which transfers a hub admits, and the table of what it admitted.
//!
//! | module | what it owns |
//! |---|---|
//! | `sessions` | the sessions of the hub, the nodes behind them, cut links |
//! | `rate_limiter` | how many hellos a second are admitted, of all nodes and of each |
//! | `report_limiter` | how fast the reports of each node are appended |
//! | `token_bucket` | a rate with a burst |
//! | `transfer_limiter` | how many sessions have a transfer in memory at once |
//! | `error` | why a session is not admitted |
//! | `positions` | which positions of an ended session are kept |

mod error;
mod positions;
mod rate_limiter;
mod report_limiter;
mod sessions;
mod token_bucket;
mod transfer_limiter;

pub(crate) use error::HUB_STOPS;
pub(crate) use report_limiter::ReportLimiter;
pub(crate) use sessions::{Dismissal, LiveSession, Sessions};
pub(crate) use token_bucket::TokenBucket;
pub(crate) use transfer_limiter::{TransferLimiter, TransferSlot};
