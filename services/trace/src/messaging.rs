//! The names under which spans say which log they are about: OpenTelemetry's conventions for
//! messaging, as of version 1.44. They are not stable yet, so they stand here alone.

/// What kind of log it is.
pub const SYSTEM: &str = "messaging.system";
/// What is done, in the system's own word.
pub const OPERATION_NAME: &str = "messaging.operation.name";
/// What is done, in the conventions' word: see [`SEND`] and [`PROCESS`].
pub const OPERATION_TYPE: &str = "messaging.operation.type";
/// The topic.
pub const DESTINATION: &str = "messaging.destination.name";
/// The partition of the topic, as text.
pub const PARTITION: &str = "messaging.destination.partition.id";
/// Where the record lies in the partition.
pub const OFFSET: &str = "messaging.kafka.offset";

/// [`SYSTEM`] of every log of Headwater, whatever it is kept in.
pub const HEADWATER: &str = "headwater";
/// [`OPERATION_TYPE`] of an append.
pub const SEND: &str = "send";
/// [`OPERATION_TYPE`] of a fold.
pub const PROCESS: &str = "process";
