//! The pod worker of one node: desired pods, plan, runtime, status.
//!
//! It reads the desired pods from the edge's local API, never from the network, and reports their
//! statuses to the edge. A stop or crash leaves pods running; the next start adopts them.
//!
//! ```text
//!   edge's unix socket
//!      | watch                                    ^ pod statuses, Node, delete requests
//!      v                                          |
//!   desired --> edged --> one worker per pod: observe -> plan -> execute -> report
//!                                   |
//!                                   v
//!                           runtime: process | hollow
//! ```
//!
//! | module | job | uses |
//! |---|---|---|
//! | [`pod`] | a pod's identity, its record, facts of its spec | `boot_time` |
//! | [`config`], [`metrics`] | settings and their bounds; counters | |
//! | `backoff` | waits that double | |
//! | [`boot_time`] | times in a boot of the machine | |
//! | `unix_channel` | gRPC over a unix socket | |
//! | [`pod_fields`] | what a runtime does with each field of a pod (pure) | |
//! | `event` | Events, counted and at a bounded rate (pure) | `pod` |
//! | `disk` | the layout of the directory, durable files, the records of pods | `pod`, `mountinfo` |
//! | [`log_file`] | opens log files, and finds their last rows | |
//! | [`mountinfo`] | the mounts that a process sees, from the kernel's list (pure) | |
//! | `desired` | the desired state, folded from the edge's watch | `pod`, `pod_fields`, `static_pods` |
//! | `static_pods` | the pods of the node's own files | `pod` |
//! | [`container`] | what a container is given: command, environment, volumes (pure) | `pod`, `desired` |
//! | [`runtime`] | the seams to what runs containers: `process` with its [`shim`], `hollow`, `memory` | `pod`, `container`, `disk`, `config` |
//! | `api` | the client of the edge's local API, reports of pods, Events | `pod`, `desired`, `event`, `config`, `metrics`, `backoff` |
//! | `node` | the Node object, its pressures and its reports | `api`, `config`, `backoff` |
//! | `worker` | one pod: [`plan`] and status (pure), probes, hooks, execution | all above |
//! | `collection` | images and ended containers that nothing needs any more | `worker` and what it uses |
//! | `cpus` | the processors that containers have for themselves | `container`, `disk`, `runtime` |
//! | [`devices`] | the devices that containers have, from device plugins | `container`, `disk` |
//! | `eviction` | measures the node, and evicts pods when it lacks a resource | `worker` and what it uses |
//! | [`mod@preview`] | what a node would do with pods, without running any (pure) | `worker` and what it uses |
//! | [`edged`] | the whole: which pods have a worker ([`worker_set`], pure), and the handle | all |

mod api;
mod backoff;
pub mod boot_time;
mod collection;
pub mod config;
pub mod container;
mod cpus;
mod desired;
pub mod devices;
mod disk;
pub mod edged;
mod event;
mod eviction;
pub mod log_file;
pub mod metrics;
pub mod mountinfo;
mod node;
pub mod pod;
pub mod pod_fields;
pub mod preview;
pub mod runtime;
mod static_pods;
mod unix_channel;
mod worker;

pub use api::client::SocketPathTooLong;
pub use config::{
    CpuPolicy, EdgedConfig, ImageCollection, PressureSettings, ProcessConfig, PullOffline,
    RuntimeKind, Settings, SoftThresholds,
};
pub use cpus::exclusive_cpus;
pub use disk::claim_record::{KeptClaim, kept_claims};
pub use disk::durable_file::or_absent;
pub use disk::file_error::FileError;
pub use disk::runtime_note::RuntimeNote;
pub use edged::{
    ContainerLogs, Edged, EdgedError, EndedPods, Handle, NOTICES_MAX, NodePods, WorkerEnded,
    worker_set,
};
pub use event::EventLevel;
pub use metrics::{EdgedCounts, EdgedMetrics};
pub use node::measurement::memory_bytes;
pub use runtime::process::{running_pods, shared_rights, shim};
pub use unix_channel::unix_channel;
pub use worker::{ProbeTotal, plan};
