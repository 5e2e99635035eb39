//! The server beside a pod worker whose runtime is in memory, with a server of streams that echoes; and the
//! server of many nodes.

mod bench;
mod bounds;
mod certificates;
#[allow(dead_code, reason = "the tests of the pod worker use all of it")]
#[path = "../../../edged/tests/edged/fake_edge.rs"]
mod fake_edge;
mod fleet;
mod streams;
