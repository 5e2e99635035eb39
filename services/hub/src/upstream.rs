//! The way of reports into the upstream log.
//!
//! | module | what it owns |
//! |---|---|
//! | `appender` | the task that appends reports and positions |
//! | `bases` | on disk, the reports that the next patches of a session apply to |
//! | `spans` | the span of a traced report |

mod appender;
mod bases;
mod spans;

pub(crate) use appender::UpstreamAppender;
pub(crate) use bases::{ReportBases, wipe_bases};

#[cfg(test)]
pub(crate) use bases::base_count;
