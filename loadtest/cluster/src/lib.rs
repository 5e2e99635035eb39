//! A real Kubernetes control plane on loopback: for tests and for development.
//!
//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl are one program, built
//! from Go modules, once, into the user's cache; Go must be there. Each part is a process of its own
//! and can be killed, frozen and started again on its data; all end with the process that started
//! them, however that ends.
//!
//! ```no_run
//! use headwater_cluster::{ControlPlane, ControlPlaneSettings, Part};
//!
//! # fn main() -> Result<(), headwater_cluster::ClusterError> {
//! let mut cluster = ControlPlane::start(ControlPlaneSettings::default())?;
//! let nodes = cluster.kubectl().args(["get", "nodes"]).output();
//! cluster.part(Part::ApiServer).kill()?;
//! cluster.part(Part::ApiServer).start()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `control_plane` | the parts together, their data, their clients |
//! | `metrics_server` | the server that `kubectl top` asks |
//! | `part` | the parts, in the order in which they start |
//! | `flags` | the flags of each part |
//! | `audit` | the audit log: which requests were refused, and which rights were not used |
//! | `health` | the requests by which a part is known to be ready |
//! | `certificates` | the CAs, and what they sign |
//! | `kubelet` | a kubelet, to which our pod worker is compared |
//! | `kubeconfig` | the file by which a client finds the API and proves who it is |
//! | `program` | the program in the cache |
//! | `source` | its source |
//! | `suite` | Kubernetes' own tests |
//! | `error` | the failures |

mod audit;
mod certificates;
mod control_plane;
mod error;
mod flags;
mod health;
mod kubeconfig;
mod kubelet;
mod metrics_server;
mod part;
mod program;
mod source;
mod suite;

pub use audit::{AuditError, AuditLog, AuditedRight};
pub use control_plane::{ControlPlane, ControlPlaneSettings};
pub use error::ClusterError;
pub use headwater_daemon::{Daemon, free_ports};
pub use kubelet::{Kubelet, KubeletSettings, NodePrograms};
pub use metrics_server::MetricsServer;
pub use part::Part;
pub use program::{ImagePrograms, Program};
pub use suite::{CaseOutcome, CaseResult, SuiteCase, SuiteRun};
