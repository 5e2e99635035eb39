//! The sink: it compares what the nodes report with what the API shows, and sends the difference.
//!
//! ```text
//! picture, watches, presence, time ──► Queue ──► plan ──► request ──► Answer ──► memory, view
//!                                        ▲                                           │
//!                                        └───────────────── compare again ◄──────────┘
//! ```
//!
//! Only the writer of the log writes, and only as long as it is certainly the only one. The Leases alone
//! go by the presence of the nodes, also on a standby: what they state is true.
//!
//! There are three lanes. Leases come first, statuses of Nodes and pods next, Events last: none of them
//! is sent while a status waits.
//!
//! | module | what it owns |
//! |---|---|
//! | `desired` | what the picture says of an object |
//! | `plan` | which request comes next for an object |
//! | `csi_plan` | which request comes next for a CSINode |
//! | `mirrors`, `mirror_plan` | which node states a static pod, and which request comes next for its mirror |
//! | `draft` | the requests that follow from a plan |
//! | `queue` | which object comes next |
//! | `lease` | which Lease comes next |
//! | `event_plan`, `event_queue` | which request writes an Event, and which Event comes next |
//! | `event_lane` | the Events: reads them, sends the requests, takes the answers |
//! | `pace` | how many requests are on their way at once |
//! | `memory` | what is remembered of an object |
//! | `request`, `answer` | the requests, and what the answers mean |
//! | `consequence` | what follows from an answer |
//! | `run` | the task that does all of this |
//! | `troubles`, `metrics` | what is visible from outside |

mod answer;
mod consequence;
mod csi_plan;
mod desired;
mod draft;
mod event_lane;
mod event_plan;
mod event_queue;
mod lease;
mod memory;
mod metrics;
mod mirror_plan;
mod mirrors;
mod pace;
mod plan;
mod queue;
mod request;
mod run;
mod troubles;

use std::sync::Arc;

use async_trait::async_trait;
use headwater_controller::{Sink, SinkContext};
use tokio::sync::watch;

pub use self::metrics::SinkMetrics;
use self::run::SinkRun;
use crate::access::Connection;
use crate::act_as::ActAs;
use crate::cluster_view::ClusterView;
use crate::event_level::EventLevel;
use crate::kubelet_address::KubeletAddress;
use crate::offline::OfflinePolicy;

/// What a sink needs from outside.
pub struct SinkDependencies {
    /// As whom it writes about a node.
    pub act_as: ActAs,
    /// What becomes of the pods of a node that is away, where no annotation says so.
    pub offline: OfflinePolicy,
    /// Where API servers reach the kubelet's servers of the nodes; `None`: at each node.
    pub kubelet: Option<KubeletAddress>,
    /// Which Events of the nodes it writes.
    pub events: EventLevel,
    /// Milliseconds since the Unix epoch.
    pub wall_clock: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// What it counts.
    pub metrics: SinkMetrics,
    /// Gets what keeps it from writing, in sentences.
    pub troubles: watch::Sender<Vec<String>>,
}

/// A Kubernetes API as a sink of what the nodes report. Made by
/// [`KubernetesSource::sink`](crate::KubernetesSource::sink).
pub struct KubernetesSink {
    connection: Connection,
    /// The label selector of edge nodes, which a new Node has to meet.
    selector: String,
    view: ClusterView,
    dependencies: SinkDependencies,
}

impl KubernetesSink {
    pub(crate) fn new(
        connection: Connection,
        selector: String,
        view: ClusterView,
        dependencies: SinkDependencies,
    ) -> Self {
        Self { connection, selector, view, dependencies }
    }
}

#[async_trait]
impl Sink for KubernetesSink {
    async fn run(self: Box<Self>, context: SinkContext) {
        let stop = context.stop.clone();
        // Dropped at the stop with the requests on their way: each may have been done or not.
        let _ = stop.run_until_cancelled(SinkRun::new(*self, context).run()).await;
    }
}
