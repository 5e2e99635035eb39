//! Hubs and their edges as processes, on a real Kafka: edges that go to another hub, hubs that come
//! and go, and what all that costs on the wire and in memory.

mod broker_away;
mod bytes;
mod lost_disk;
mod presence;
mod requests;
mod rolling;
mod site;
mod slow;

/// Few, so that a claim in each is quick.
const PARTITIONS: u32 = 3;

/// The arguments of edges and hubs without certificates.
const PLAIN: [&str; 1] = ["--insecure-loopback"];
