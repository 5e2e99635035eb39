//! The log on Kafka: explicit partitions, a client that is discarded at an unknown outcome, and
//! readers that report when the log is no longer the one that they read before.
//!
//! - [`KafkaSettings`]: the brokers, and librdkafka's settings. The safe ones are in one place, each
//!   with its reason.
//! - [`KafkaLog`]: the log, on one topic.
//! - [`topics`]: creates topics, and finds dangerous settings of existing ones.
//!
//! A record is a Kafka record. Its key is text (`<stream> <resource key>`). Its value is the writer's
//! bytes, or null for a removal. Its binary header is the Kafka header [`HEADER`], its trace context
//! the Kafka header [`TRACEPARENT`].
//!
//! | module | what it owns |
//! |---|---|
//! | `log` | [`KafkaLog`], the handle |
//! | `appender` | sends records, and awaits their outcomes |
//! | `reader` | reads records, watches the topic, commits positions for display |
//! | `cluster` | requests about the topic |
//! | `topic_checks` | the ids of several topics, in one request |
//! | `answer_clock` | for how long the brokers have not answered |
//! | `client` | librdkafka's clients and their errors |
//! | `native` | the calls of librdkafka that rdkafka does not offer; all unsafe code |
//! | `topic_config` | the settings and the brokers of a topic |
//! | [`topics`] | creation, description, findings |
//! | `settings`, `metrics` | [`KafkaSettings`], [`KafkaMetrics`] |

mod answer_clock;
mod appender;
mod client;
mod cluster;
mod log;
mod metrics;
mod native;
mod reader;
mod settings;
mod topic_checks;
mod topic_config;
pub mod topics;

pub use log::KafkaLog;
pub use metrics::KafkaMetrics;
pub use settings::{KafkaSettings, SettingsError};

/// The name of the Kafka header that holds a record's binary header.
pub const HEADER: &str = "headwater";

/// The name of the Kafka header that holds a record's trace context, as W3C defines it.
pub const TRACEPARENT: &str = "traceparent";

/// What Kafka adds to a record within the topic's `max.message.bytes`, which limits a whole batch,
/// not a record: 61 bytes of batch header, at most 30 of lengths, the names of two headers,
/// and the 55 bytes of a trace context; rounded up.
pub const RECORD_OVERHEAD_BYTES: usize = 256;
