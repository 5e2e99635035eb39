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
//! | wing | job |
//! |---|---|
//! | [`api`] | serves the local API: parses an operation, asks the owners, sends the result |
//! | [`connection`] | finds a hub, holds the session with it, retries |
//! | [`replica`] | owns the state database: folds pushes, syncs, serves reads and watches |
//! | [`upstream`] | owns the outbox database: identity, reports, pod statuses, MetaSync |
//! | [`meta`] | MetaManager's operations, objects and routing; no I/O |
//! | [`metrics`], [`dependencies`] | what the edge counts; its clocks and random numbers |
//!
//! A wing sends commands to the wings on its right, and none sends commands to the left: replies and
//! events return over channels that belong to the wing on the right.
//!
//! The modules at the top compose the wings. [`edge`] runs them on threads (`database_thread`) and tasks,
//! [`tasks`] gives them to a caller that runs them itself, and `parts` connects them by channels.
//! [`config`], [`status`] and [`exit`] are what a caller sees of them.
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
pub mod upstream;

pub use config::{EdgeConfig, Settings};
pub use connection::address::{HubAddress, HubAddressError};
pub use connection::backoff::BackoffSettings;
pub use dependencies::{Chance, Clock, EdgeDependencies, SystemChance, SystemClock};
pub use edge::{Edge, EdgeHandle, EdgeStopped};
pub use exit::{Database, EdgeExit, StartError};
pub use metrics::{EdgeCounts, EdgeMetrics};
pub use status::EdgeStatus;
pub use tasks::{EdgeTasks, HubDialer, HubStreams};
pub use upstream::contents::{OutboxContents, read_outbox};
