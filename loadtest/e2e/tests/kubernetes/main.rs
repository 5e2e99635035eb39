//! Headwater on a real Kubernetes API: the built program, and a control plane on loopback.

mod bad_input;
mod conformance;
mod controllers;
mod pods;
mod readme;
mod requests;
mod streams;
mod world;
