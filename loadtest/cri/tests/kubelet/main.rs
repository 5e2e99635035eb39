//! The kubelet's server on a real containerd: a person's commands by WebSocket, and kubectl through a
//! real API server by SPDY.

mod bench;
#[allow(dead_code, reason = "the tests of the pod worker use all of it")]
#[path = "../../../../services/edged/tests/edged/fake_edge.rs"]
mod fake_edge;
mod kubectl;
mod person;
