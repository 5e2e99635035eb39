//! The log on Kafka, against a real broker on loopback.

mod conformance;
mod page;
mod partitions;
mod replaced;
mod rights;
mod rights_table;
mod safety;
mod security;
mod sizes;
mod support;
mod traps;
