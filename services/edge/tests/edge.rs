//! A whole edge: real gRPC to a hub on loopback, a real client on its unix socket, engines that
//! forget what was not synced.

#[path = "edge/bench.rs"]
mod bench;
#[path = "edge/hub.rs"]
mod hub;

#[path = "edge/admission.rs"]
mod admission;
#[path = "edge/certificates.rs"]
mod certificates;
#[path = "edge/faults.rs"]
mod faults;
#[path = "edge/half_open.rs"]
mod half_open;
#[path = "edge/life.rs"]
mod life;
#[path = "edge/operations.rs"]
mod operations;
#[path = "edge/power.rs"]
mod power;
#[path = "edge/tokens.rs"]
mod tokens;
