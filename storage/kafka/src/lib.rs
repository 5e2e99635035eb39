//! The log on Kafka: explicit partitions, a writer that stops at the first unknown outcome, and
//! readers that say when what they read is no longer what they read before.
//!
//! - [`KafkaSettings`]: where the brokers are, and librdkafka's settings, the safe ones in one
//!   place with the reason for each.
//! - [`KafkaLog`]: the log, on one topic.
//! - [`topics`]: makes topics, and says what is dangerous about those that are there.
//!
//! A record is a Kafka record: its key is text (`<stream> <resource key>`), its value the bytes
//! that the writer gave or null for a removal, its binary header the Kafka header
//! [`HEADER`], its trace context the Kafka header [`TRACEPARENT`].

mod asking;
mod clients;
mod log;
mod metrics;
mod native;
mod polled;
mod positions;
mod producing;
mod reading;
mod settings;
pub mod topics;

pub use log::KafkaLog;
pub use metrics::KafkaMetrics;
pub use settings::{KafkaSettings, SettingsError};

/// The name of the Kafka header that holds a record's binary header.
pub const HEADER: &str = "headwater";

/// The name of the Kafka header that holds a record's trace context, as W3C spells it.
pub const TRACEPARENT: &str = "traceparent";

/// What Kafka adds to a record within the topic's `max.message.bytes`, which counts a whole batch
/// and not a record: 61 bytes of batch header, at most 30 of lengths, the names of two headers,
/// and the 55 bytes of a trace context; rounded up.
pub const RECORD_OVERHEAD_BYTES: usize = 256;
