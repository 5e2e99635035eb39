//! Topics: created with the settings that the log's promises rest on, and checked for them.
//!
//! A topic's settings, and some of the broker's own, decide what a broker does to a log.
//! [`findings`] is pure: it names each setting that differs, with its cost and the command that
//! fixes it.

mod admin;
mod findings;
mod plan;

pub use crate::topic_config::{ConfigValues, PartitionAssignment};
pub use admin::{Broker, Topic, TopicError, brokers, create, describe, offsets};
pub use findings::{Finding, Severity, Subject, broker_findings, findings, under_replicated};
pub use plan::{Direction, TopicPlan};
