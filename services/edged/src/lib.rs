//! The pod worker: desired pods, plan, runtime, status.
//!
//! It reads what should run from the edge's local API, never from the network, and tells the edge
//! what does run. A stop or crash leaves pods running; the next start adopts them.
//!
//! ```text
//!   edge's unix socket
//!      | watch                          ^ pod status, node, delete requests
//!      v                                |
//!   desired --> roster --> one worker per pod: look -> plan -> act -> report
//!                                       |
//!                                       v
//!                               runtime: process | hollow
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | [`config`] | what a pod worker is told, and its bounds |
//! | [`edged`] | the whole, and the handle that others hold |
//! | `desired`, `objects` | the fold of the edge's watch; when absence counts |
//! | `packed` | objects at rest |
//! | [`roster`] | which pods have a worker (pure) |
//! | [`plan`] | what to do next for one pod (pure) |
//! | [`mod@preview`] | what a node would make of pods, without running any (pure) |
//! | `worker` | the task that carries it out |
//! | `status` | a pod's status, as a kubelet reports it (pure) |
//! | `volume`, `environment`, `field` | what containers see (pure) |
//! | `probe`, `handler` | probes and hooks |
//! | `report`, `node`, `local` | what the edge is told, and how |
//! | `cause` | the traces that a pod's changes are part of |
//! | [`metrics`] | what a pod worker counts |
//! | [`runtime`] | the seam to what runs containers |
//! | `process`, `attempt`, [`shim`] | containers as processes of the host |
//! | `hollow` | containers that are only counted |

mod attempt;
mod backoff;
mod cause;
pub mod config;
mod desired;
mod durable;
pub mod edged;
mod environment;
mod field;
mod handler;
mod hollow;
mod identity;
mod local;
pub mod metrics;
mod node;
mod objects;
mod packed;
mod paths;
pub mod plan;
pub mod pod;
pub mod preview;
mod probe;
mod process;
mod report;
pub mod roster;
pub mod runtime;
pub mod shim;
mod status;
pub mod volume;
mod worker;

pub use config::{EdgedConfig, ProcessConfig, RuntimeKind, Settings};
pub use edged::{Edged, EdgedError, Handle};
pub use local::SocketPathTooLong;
pub use metrics::{EdgedCounts, EdgedMetrics};
pub use paths::log_paths;
