//! The way of reports into the upstream log.
//!
//! ```text
//!  session ──permit──► queue of the partition ──► partition appender ──► log
//!     ▲                                                  │
//!     └────────────────── receipt ◄──────────────────────┘
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `appender` | the handle of the sessions: room in the queue of a partition |
//! | `topic` | the topic in its present life: its partitions and their tasks |
//! | `partition_appender` | the task that appends to one partition |
//! | `record_group` | the records of one node that are appended in order |
//! | `receipt` | what became of the reports of a session |
//! | `event_limiter` | how many Events of each node are appended |
//! | `positions` | the task that appends positions |
//! | `bases` | on disk, the reports that the next patches of a session apply to |
//! | `spans` | the span of a traced report |

mod appender;
mod bases;
mod event_limiter;
mod partition_appender;
mod positions;
mod receipt;
mod record_group;
mod spans;
mod topic;

pub(crate) use appender::{AppendPermit, UpstreamAppender};
pub(crate) use bases::{ReportBases, wipe_bases};
pub(crate) use positions::PositionAppender;
pub(crate) use receipt::AppendOutcome;

#[cfg(test)]
pub(crate) use bases::base_count;
