//! The source and the sink against a Kubernetes API: a controller on logs in memory follows a control
//! plane on loopback, or its twin in memory. One suite holds both servers to
//! the same.

mod cloud;
mod conformance;
mod deployment;
mod failures;
mod follow;
mod identity;
mod in_memory;
mod not_followed;
mod other_server;
mod recovery;
mod roles;
mod sink;
mod world;
