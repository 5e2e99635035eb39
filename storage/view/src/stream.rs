//! Streams folded into an engine.
//!
//! ```text
//!  event, push ──check──► draft ──hash agrees──► open batch ──commit──► applied ──sync──► durable
//!                  │                  │
//!               Refusal            Refusal       (the input leaves no trace)
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `state` | [`StreamState`]: folds events and advances, commits |
//! | `reader` | [`StreamReader`]: reads what is committed |
//! | `advance`, `change` | the inputs: a push, and its prepared changes |
//! | `admission`, `refusal`, `fold_error` | which inputs are accepted, and why others are not |
//! | `effect` | what a fold changed |
//! | `open_batch`, `loaded_stream` | what is folded and not committed, and the streams in memory |
//! | `generation`, `draft` | the entries of a stream, and changes to them on trial |
//! | `staging`, `staged_advance`, `correction` | advances that need more than one batch |
//! | `body` | objects to which entries of several streams refer |
//! | `entry`, `row_key`, `stream_row`, `position` | the stored form |

mod admission;
mod advance;
mod body;
mod change;
mod correction;
mod draft;
mod effect;
mod entry;
mod fold_error;
mod generation;
#[cfg(test)]
pub(crate) mod history;
mod loaded_stream;
mod open_batch;
mod position;
mod reader;
mod refusal;
mod row_key;
mod staged_advance;
mod staging;
mod state;
mod stream_row;

pub use advance::{Advance, AdvanceMode, Continuity};
pub use change::IncomingChange;
pub use effect::{Effect, EffectKind};
pub use entry::{Entry, EntrySummary};
pub use fold_error::FoldError;
pub use open_batch::FoldBounds;
pub use position::{PositionChanges, StatePosition};
pub use reader::{Selection, StreamReader, Verification};
pub use refusal::Refusal;
pub use state::{ACCEPTANCE, StreamState};
