//! The edge node: replication client, materialized view, outbox, MetaSync, local API.
//!
//! [`Edge::start`] runs one node over two engines that its caller opened: the state, which can
//! always be rebuilt from the hub, and the outbox, whose every write is synced. Nothing is told,
//! reported or acknowledged from above the durable position, and a report is forgotten only
//! when the cloud has it.
//!
//! | module | what it owns |
//! |---|---|
//! | [`config`] | what an edge is told, and its bounds |
//! | [`edge`] | the whole: its threads and tasks, the handle that others hold |
//! | `opened`, [`bare`] | its parts before they run; an edge that its caller drives |
//! | [`exit`] | why an edge did not start, and why one ended |
//! | [`status`] | where an edge stands |
//! | [`session`], `link`, `outgoing`, [`backoff`] | the conversation with a hub |
//! | [`address`], `dial` | where hubs are, and how a connection is made |
//! | [`replica`], `fold` | the materialized view |
//! | `intact` | whether a replica holds what was folded into it |
//! | [`watch`] | who waits for its changes |
//! | [`upstream`], [`outbox`], [`identity`], `pod_statuses` | what the node says; MetaSync |
//! | [`local`], `desk` | the local API, and who carries out what it is asked |
//! | [`held()`] | what an outbox database holds, for whoever looks into one |
//! | `operation`, [`routing`] | what MetaManager's operations mean, and who gets what (pure) |
//! | [`metrics`] | what an edge counts |
//! | [`seams`] | clocks and chance |

pub mod address;
pub mod backoff;
pub mod bare;
pub mod config;
mod desk;
mod dial;
pub mod edge;
pub mod exit;
mod fold;
pub mod held;
pub mod identity;
mod intact;
mod link;
pub mod local;
pub mod metrics;
mod opened;
mod operation;
pub mod outbox;
mod outgoing;
mod owner;
mod pod_statuses;
pub mod replica;
pub mod routing;
pub mod seams;
pub mod session;
pub mod status;
pub mod upstream;
pub mod watch;

pub use address::{HubAddress, HubAddressError};
pub use config::{EdgeConfig, Settings};
pub use edge::{Edge, EdgeHandle, Gone, Seams};
pub use exit::{Database, EdgeExit, StartError};
pub use held::{Held, held};
pub use metrics::{EdgeCounts, EdgeMetrics};
pub use seams::{Chance, Clock, SystemChance, SystemClock};
pub use status::EdgeStatus;
