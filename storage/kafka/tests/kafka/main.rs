//! The log on Kafka, against a real broker on loopback.

mod conformance;
mod safety;
mod security;
mod support;
mod traps;
