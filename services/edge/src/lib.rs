//! The edge node: replication client, materialized view, outbox, MetaSync, local API.
//!
//! [`Edge::start`] runs one node over two engines that the caller opened: the state, which can
//! always be rebuilt from the hub, and the outbox, whose every write is synced.
//!
//! ```text
//!   api ----> connection ----> replica ----> upstream
//!    |            |               |              |
//!    +------------+-------+-------+--------------+
//!                         v
//!             meta, metrics, dependencies
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`api`] | serves the local API: parses an operation, asks the owners, sends the result |
//! | [`connection`] | finds a hub, holds the session with it, retries |
//! | [`replica`] | owns the state database: folds pushes, syncs, serves reads and watches |
//! | [`upstream`] | owns the outbox database: identity, reports, pod statuses, MetaSync |
//! | [`tunnel`] | the second connection: streams from clients of the hub to the node's pods |
//! | [`meta`] | MetaManager's operations, objects and routing; no I/O |
//! | [`metrics`], [`dependencies`] | the counts of the edge; its clocks and random numbers |
//! | `parts` | the upper four, opened and connected by channels |
//! | [`edge`], `database_thread` | runs them on threads and tasks |
//! | [`tasks`] | gives them to a caller that runs them itself |
//! | [`config`], [`status`], [`exit`] | the configuration, the status and the end of an edge |
//!
//! Of the upper four, each sends commands only to those on its right. Replies and events return over
//! channels that belong to the one on the right.
//!
//! Two invariants hold everywhere. Subscribers, the hub and the outbox receive only durable
//! changes of the view. A report leaves the outbox only when the cloud has acknowledged it.

pub mod api;
pub mod config;
pub mod connection;
mod database_thread;
pub mod dependencies;
pub mod edge;
pub mod exit;
pub mod meta;
pub mod metrics;
mod parts;
pub mod replica;
pub mod status;
pub mod tasks;
pub mod tunnel;
pub mod upstream;

pub use config::{EdgeConfig, LocalUser, Settings};
pub use connection::address::{HubAddress, HubAddressError};
pub use connection::backoff::BackoffSettings;
pub use dependencies::{Chance, Clock, EdgeDependencies, SystemChance, SystemClock};
pub use edge::{Edge, EdgeHandle, EdgeStopped};
pub use exit::{Database, EdgeExit, StartError};
pub use metrics::{EdgeCounts, EdgeMetrics};
pub use status::EdgeStatus;
pub use tasks::{EdgeTasks, HubDialer, HubStreams};
pub use tunnel::TunnelSettings;
pub use upstream::contents::{OutboxContents, read_outbox};
