//! The embedded log: one log on one storage engine.
//!
//! ```text
//!  append ──► queue ──► appender thread: one synced write for all that is queued
//!                            │ then, in this order: tail in memory, bell, answers
//!  reader ◄── tail ◄─────────┘
//!  reader ◄── engine, for what lies before the tail
//!  compact ──► engine, a bounded number of records a run
//! ```
//!
//! What an append returned survives power loss. Compaction follows Kafka's rules, so that what
//! works here works there.
//!
//! | module | what it owns |
//! |---|---|
//! | `log` | [`EmbeddedLog`], the handle |
//! | `appender` | the thread that writes |
//! | `shared` | what the thread and the readers share: where the log ends, its newest records |
//! | `reader` | reading on, from the tail or from the engine |
//! | `compaction` | dropping what is superseded, and tombstones |
//! | `layout` | keys and values in the engine |
//! | `metrics` | [`LogMetrics`]: what the logs of a process count |

mod appender;
mod compaction;
mod layout;
mod log;
mod metrics;
mod reader;
mod shared;

pub use compaction::CompactionRun;
pub use layout::LogTopic;
pub use log::{Clock, EmbeddedError, EmbeddedLog, EmbeddedSettings};
pub use metrics::LogMetrics;
