//! The embedded log: one log on one storage engine.
//!
//! ```text
//!  append ──► queue ──► appender thread: one synced write for all queued appends
//!                            │ then, in this order: tail in memory, notification, responses
//!  reader ◄── tail ◄─────────┘
//!  reader ◄── engine, for records before the tail
//!  compact ──► engine, a bounded number of records a run
//! ```
//!
//! A record survives power loss once its append has returned. Compaction follows Kafka's rules, so
//! what works here works there.
//!
//! | module | what it owns |
//! |---|---|
//! | `log` | [`EmbeddedLog`], the handle |
//! | `settings` | [`EmbeddedSettings`] |
//! | `appender` | the thread that writes |
//! | `reader` | reading from the tail or from the engine |
//! | `compaction` | dropping superseded records, and tombstones |
//! | `compaction_run` | [`CompactionRun`]: the result of one run |
//! | `log_state` | what these share: the ends of the partitions, their newest records |
//! | `layout` | keys and values in the engine |
//! | `metrics` | [`LogMetrics`]: the metrics of all logs of a process |

mod appender;
mod compaction;
mod compaction_run;
mod layout;
mod log;
mod log_state;
mod metrics;
mod reader;
mod settings;

pub use compaction_run::CompactionRun;
pub use layout::LogTopic;
pub use log::{EmbeddedError, EmbeddedLog};
pub use metrics::LogMetrics;
pub use settings::{Clock, EmbeddedSettings};
