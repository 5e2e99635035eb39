//! The log on Kafka, against a real broker on loopback.

mod conformance;
mod page;
mod replaced;
mod rights;
mod safety;
mod security;
mod sizes;
mod support;
mod traps;
