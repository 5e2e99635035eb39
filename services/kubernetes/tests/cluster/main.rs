//! The source against a real Kubernetes API: a controller on logs in memory follows a control plane on
//! loopback.

mod failures;
mod follow;
mod identity;
mod roles;
mod world;
