//! What an operator sees of a process from outside: metrics, health, log lines, traces.
//!
//! | module | what it owns |
//! |---|---|
//! | `trace_context` | the W3C `traceparent` that travels with an event |
//! | [`messaging`] | span attributes that name a log |
//! | [`traces`] | export of spans to an OTLP receiver |
//! | [`log`] | log lines: text for people, or JSON |
//! | `families` | metrics that a crate updates itself |
//! | [`scraped_family`], [`process`] | metrics that are read from the system at each scrape |
//! | [`health`] | `livez` and `readyz` checks |
//! | [`server`] | metrics and health over HTTP, at one address |
//! | `node_names` | whether metrics name nodes |
//! | `error_chain` | an error with its sources, in one line |
//! | `testing` | finished spans, for tests (feature `testing`) |
//!
//! The crate knows no other crate of Headwater. Each service registers its own metrics in the
//! registry that the binary hands to it.

mod error_chain;
mod families;
pub mod health;
pub mod log;
pub mod messaging;
mod node_names;
pub mod process;
pub mod scraped_family;
pub mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trace_context;
pub mod traces;

pub use self::error_chain::error_chain;
pub use self::families::Families;
pub use self::node_names::NodeNames;
pub use self::trace_context::{TRACEPARENT, continue_from, has_exporter, traceparent};
