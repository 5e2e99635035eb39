//! The HTTP server of a node, with a kubelet's paths, JSON and parameters.
//!
//! It runs beside the pod worker and reads pods, logs and metrics from it. It speaks neither SPDY nor
//! WebSocket: for a stream it gets a one-time address of the container runtime, hands the upgrade
//! request on, and copies the bytes of the upgraded connection both ways.
//!
//! ```text
//!   API server --TLS, certificate--+
//!   person on loopback ------------+--> access --> route --> pods, logs, metrics: the pod worker
//!   `headwater exec`, unix socket -+                  \---> exec, attach, port-forward: the runtime
//! ```
//!
//! | path | answer |
//! |---|---|
//! | `/healthz`, `/healthz/ping`, `/healthz/syncloop` | `ok`, or the check that fails |
//! | `/pods`, `/runningpods/` | the desired pods with their statuses, the pods of the runtime |
//! | `/containerLogs/NAMESPACE/POD/CONTAINER` | a log: `follow`, `previous`, `tailLines`, `sinceSeconds`, `sinceTime`, `limitBytes`, `timestamps`, `stream` |
//! | `/exec`, `/attach` with `/NAMESPACE/POD[/UID]/CONTAINER` | a stream: `command`, `input`, `output`, `error`, `tty` |
//! | `/portForward/NAMESPACE/POD[/UID]` | a stream: `port`, by WebSocket |
//! | `/run/NAMESPACE/POD[/UID]/CONTAINER` | the output of `cmd` |
//! | `/metrics`, `/metrics/resource`, `/metrics/cadvisor`, `/metrics/probes`, `/stats/summary` | numbers of the node |
//!
//! | module | job |
//! |---|---|
//! | [`route`], [`query`] | what a request names (pure) |
//! | [`access`] | which client may ask (pure) |
//! | [`client`] | the client of a person on the node |
//! | [`fleet`] | the server of many nodes on one port, which a hub offers |
//! | `server` | connections and their bounds |
//! | `handler` | the answer to one request |
//! | `response` | bodies and refusals |
//! | [`container_logs`] | log files, as a container wrote them |
//! | `streams` | upgraded connections |
//! | `stall` | clients that do not read, streams that do not move |
//! | `metrics`, `usage` | numbers in the text format, and the summary |

pub mod access;
pub mod client;
pub mod container_logs;
pub mod fleet;
mod handler;
mod metrics;
pub mod query;
mod response;
pub mod route;
mod server;
mod stall;
mod streams;
mod usage;

pub use handler::{Kubelet, KubeletLimits};
pub use server::{Door, ListenError, listen_local, listen_shared};
