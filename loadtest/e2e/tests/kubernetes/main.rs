//! Headwater on a real Kubernetes API: the built program, and a control plane on loopback.

mod applications;
mod bad_input;
mod case_list;
mod conformance;
mod controllers;
mod log_away;
mod mirrors;
mod node_cases;
mod pods;
mod readme;
mod requests;
mod storage;
mod streams;
mod top;
mod world;
