//! Span attributes that name a log: OpenTelemetry's conventions for messaging, as of version 1.44.
//! They are not stable yet, so only this file has them.

/// The kind of log.
pub const SYSTEM: &str = "messaging.system";
/// The operation, by the system's own name.
pub const OPERATION_NAME: &str = "messaging.operation.name";
/// The operation, by the name of the conventions: see [`SEND`] and [`PROCESS`].
pub const OPERATION_TYPE: &str = "messaging.operation.type";
/// The topic.
pub const DESTINATION: &str = "messaging.destination.name";
/// The partition of the topic, as text.
pub const PARTITION: &str = "messaging.destination.partition.id";
/// The offset of the record in the partition.
pub const OFFSET: &str = "messaging.kafka.offset";

/// [`SYSTEM`] of every log of Headwater, on each engine.
pub const HEADWATER: &str = "headwater";
/// [`OPERATION_TYPE`] of an append.
pub const SEND: &str = "send";
/// [`OPERATION_TYPE`] of a fold.
pub const PROCESS: &str = "process";
