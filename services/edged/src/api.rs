//! The client of the edge's local API: operations, the watch, and reports of pods.
//!
//! Every request goes to the edge's unix socket. The edge keeps reports and delivers them.

pub(crate) mod client;
pub(crate) mod event_recorder;
pub(crate) mod pod_reporter;
